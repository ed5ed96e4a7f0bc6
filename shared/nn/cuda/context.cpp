// Switches of libtorch's global context. They exist with and without CUDA.
#include <ATen/Context.h>
#include <torch/version.h>

#include "shim.h"

void nn_error_free(char* message) { std::free(message); }

const char* nn_torch_version() { return TORCH_VERSION; }

char* nn_tf32_set(bool allow) {
    return nn::caught([&] {
        at::globalContext().setAllowTF32CuBLAS(allow);
        at::globalContext().setAllowTF32CuDNN(allow);
    });
}

char* nn_tf32_get(bool* allowed) {
    return nn::caught([&] {
        *allowed = at::globalContext().allowTF32CuBLAS() || at::globalContext().allowTF32CuDNN();
    });
}

char* nn_bf16_reduction_set(bool allow) {
    return nn::caught([&] { at::globalContext().setAllowBF16ReductionCuBLAS(allow); });
}

char* nn_cudnn_attention_set(bool allow) {
    return nn::caught([&] { at::globalContext().setSDPUseCuDNN(allow); });
}
