// Stands in for graph.cpp where libtorch has no CUDA part: every call fails. The Rust side asks for the number of devices
// first, so these are reached only by mistake.
#include "shim.h"

static char* none() { return nn::message("this program was built against a libtorch without CUDA"); }

char* nn_graph_begin(int, NnGraph*, NnGraph**) { return none(); }
char* nn_graph_end(NnGraph*) { return none(); }
void nn_graph_abandon(NnGraph*) {}
char* nn_graph_replay(NnGraph*) { return none(); }
void nn_graph_free(NnGraph*) {}
char* nn_cuda_synchronize(int) { return none(); }
char* nn_cuda_memory(int, NnMemory*) { return none(); }
char* nn_cuda_reset_peak(int) { return none(); }
char* nn_cuda_empty_cache(int) { return none(); }
char* nn_cuda_name(int, char*, size_t) { return none(); }
char* nn_kernels_load(int, const char*, NnKernels**) { return none(); }
char* nn_kernel_launch(NnKernels*, const char*, const uint32_t*, uint32_t, uint32_t, const void* const*, size_t,
                       const int64_t*, size_t, float) {
    return none();
}
