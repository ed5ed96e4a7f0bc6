// Kernels of our own: CUDA C++ compiled at run time with NVRTC for the device at hand, launched on libtorch's current
// stream, so that they can be part of a captured graph.
//
// NVRTC and the driver are opened by name: programs link neither.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shim.h"

// As ATen/cuda/CUDAContextLight.h declares it; that header needs those of cuSPARSE, cuSOLVER and CCCL.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}

namespace {

void* open(std::initializer_list<const char*> names) {
    std::string tried;
    for (const char* name : names) {
        if (void* handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
            return handle;
        }
        tried += std::string(" ") + name;
    }
    TORCH_CHECK(false, "cannot open any of", tried, ": is it in the library path?");
}

template <typename F>
void find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    TORCH_CHECK(function != nullptr, "no function ", name, " in its library");
}

struct Api {
    decltype(&nvrtcCreateProgram) create;
    decltype(&nvrtcCompileProgram) compile;
    decltype(&nvrtcGetProgramLogSize) log_size;
    decltype(&nvrtcGetProgramLog) log;
    decltype(&nvrtcGetCUBINSize) cubin_size;
    decltype(&nvrtcGetCUBIN) cubin;
    decltype(&nvrtcDestroyProgram) destroy;
    decltype(&cuModuleLoadData) load;
    decltype(&cuModuleGetFunction) function;
    decltype(&cuLaunchKernel) launch;

    Api() {
        void* nvrtc = open({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
        void* cuda = open({"libcuda.so.1", "libcuda.so"});
        find(nvrtc, "nvrtcCreateProgram", create);
        find(nvrtc, "nvrtcCompileProgram", compile);
        find(nvrtc, "nvrtcGetProgramLogSize", log_size);
        find(nvrtc, "nvrtcGetProgramLog", log);
        find(nvrtc, "nvrtcGetCUBINSize", cubin_size);
        find(nvrtc, "nvrtcGetCUBIN", cubin);
        find(nvrtc, "nvrtcDestroyProgram", destroy);
        find(cuda, "cuModuleLoadData", load);
        find(cuda, "cuModuleGetFunction", function);
        find(cuda, "cuLaunchKernel", launch);
    }
};

const Api& api() {
    static const Api api;
    return api;
}

std::string compiled(const char* source, const std::string& architecture) {
    nvrtcProgram program;
    TORCH_CHECK(api().create(&program, source, "plexforge.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS, "no NVRTC program");
    const char* options[] = {architecture.c_str(), "--std=c++17", "-default-device"};
    auto result = api().compile(program, 3, options);
    if (result != NVRTC_SUCCESS) {
        size_t size = 0;
        api().log_size(program, &size);
        std::string log(size, '\0');
        api().log(program, log.data());
        api().destroy(&program);
        TORCH_CHECK(false, "the kernels do not compile: ", log);
    }
    size_t size = 0;
    api().cubin_size(program, &size);
    std::string cubin(size, '\0');
    api().cubin(program, cubin.data());
    api().destroy(&program);
    return cubin;
}

}  // namespace

struct NnKernels {
    CUmodule module;
    std::mutex lock;
    std::map<std::string, CUfunction> functions;
};

char* nn_kernels_load(int device, const char* source, NnKernels** out) {
    return nn::caught([&] {
        c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
        // Makes the device's context, which the driver's functions need.
        c10::cuda::device_synchronize();
        auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
        auto architecture = "--gpu-architecture=sm_" + std::to_string(properties->major) + std::to_string(properties->minor);
        std::string cubin = compiled(source, architecture);
        auto kernels = std::make_unique<NnKernels>();
        auto loaded = api().load(&kernels->module, cubin.data());
        TORCH_CHECK(loaded == CUDA_SUCCESS, "the kernels cannot be loaded: driver error ", static_cast<int>(loaded));
        *out = kernels.release();
    });
}

char* nn_kernel_launch(NnKernels* kernels, const char* name, const uint32_t* grid, uint32_t block, uint32_t shared,
                       const void* const* tensors, size_t tensor_count, const int64_t* numbers, size_t number_count,
                       float real) {
    return nn::caught([&] {
        CUfunction function;
        {
            std::lock_guard<std::mutex> guard(kernels->lock);
            auto found = kernels->functions.find(name);
            if (found == kernels->functions.end()) {
                auto got = api().function(&function, kernels->module, name);
                TORCH_CHECK(got == CUDA_SUCCESS, "no kernel ", name);
                found = kernels->functions.emplace(name, function).first;
            }
            function = found->second;
        }
        // In the order of the parameters: addresses, whole numbers, one real number.
        std::vector<void*> addresses(tensor_count);
        std::vector<int> ints(number_count);
        std::vector<void*> parameters;
        for (size_t i = 0; i < tensor_count; ++i) {
            addresses[i] = static_cast<const at::Tensor*>(tensors[i])->data_ptr();
            parameters.push_back(&addresses[i]);
        }
        for (size_t i = 0; i < number_count; ++i) {
            ints[i] = static_cast<int>(numbers[i]);
            parameters.push_back(&ints[i]);
        }
        parameters.push_back(&real);
        auto stream = c10::cuda::getCurrentCUDAStream().stream();
        auto launched = api().launch(function, grid[0], grid[1], grid[2], block, 1, 1, shared, stream, parameters.data(), nullptr);
        TORCH_CHECK(launched == CUDA_SUCCESS, "kernel ", name, ": driver error ", static_cast<int>(launched));
    });
}
