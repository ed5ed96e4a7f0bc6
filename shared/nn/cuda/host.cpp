// Page-locked host memory and copies that do not wait. A tensor is handed over as libtorch's own handle.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "shim.h"

char* nn_pin(const void* tensor, void** out) {
    return nn::caught([&] { *out = new at::Tensor(static_cast<const at::Tensor*>(tensor)->pin_memory()); });
}

char* nn_copy_async(const void* into, const void* from) {
    return nn::caught([&] {
        at::NoGradGuard no_grad;
        static_cast<const at::Tensor*>(into)->copy_(*static_cast<const at::Tensor*>(from), /*non_blocking=*/true);
    });
}
