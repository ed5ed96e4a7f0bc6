// What libtorch's C++ API has and tch does not: CUDA graphs, device memory figures, numeric switches.
//
// Every function that can fail returns a message in malloc'd memory (null: it worked), to be freed with nn_error_free.
// No exception leaves. `device` is a CUDA device number that exists.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>

extern "C" {

struct NnGraph;
struct NnKernels;

// Mirrored by `MemoryFigures` in src/shim.rs; bytes.
struct NnMemory {
    uint64_t allocated;
    uint64_t allocated_peak;
    uint64_t reserved;
    uint64_t reserved_peak;
    uint64_t free;
    uint64_t total;
};

void nn_error_free(char* message);

// context.cpp
const char* nn_torch_version();
char* nn_tf32_set(bool allow);
char* nn_tf32_get(bool* allowed);
char* nn_bf16_reduction_set(bool allow);
char* nn_cudnn_attention_set(bool allow);

// host.cpp; tensors are libtorch's handles, `out` becomes one that the caller owns
char* nn_pin(const void* tensor, void** out);
char* nn_copy_async(const void* into, const void* from);

// graph.cpp, or without_cuda.cpp where libtorch has no CUDA part
char* nn_graph_begin(int device, NnGraph* pool, NnGraph** out);
char* nn_graph_end(NnGraph* graph);
void nn_graph_abandon(NnGraph* graph);
char* nn_graph_replay(NnGraph* graph);
void nn_graph_free(NnGraph* graph);
char* nn_cuda_synchronize(int device);
char* nn_cuda_memory(int device, NnMemory* out);
char* nn_cuda_reset_peak(int device);
char* nn_cuda_empty_cache(int device);
char* nn_cuda_name(int device, char* out, size_t size);

// kernels.cpp, or without_cuda.cpp. Loaded kernels stay for the life of the process. Parameters of a kernel in their order:
// the addresses of tensors, whole numbers as int, one float.
char* nn_kernels_load(int device, const char* source, NnKernels** out);
char* nn_kernel_launch(NnKernels* kernels, const char* name, const uint32_t* grid, uint32_t block, uint32_t shared,
                       const void* const* tensors, size_t tensor_count, const int64_t* numbers, size_t number_count,
                       float real);

}  // extern "C"

namespace nn {

inline char* message(const char* text) {
    char* copy = strdup(text);
    if (copy == nullptr) {
        std::abort();  // An error must not read as success.
    }
    return copy;
}

// Runs `work`; an exception becomes a message.
template <typename Work>
char* caught(Work work) noexcept {
    try {
        work();
        return nullptr;
    } catch (const std::exception& error) {
        return message(error.what());
    } catch (...) {
        return message("unknown C++ exception");
    }
}

}  // namespace nn
