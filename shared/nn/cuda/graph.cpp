// CUDA graphs over at::cuda::CUDAGraph, and figures of the caching allocator.
//
// Only functions of libtorch's own libraries are called, so that programs need no CUDA library beside them.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "shim.h"

// As ATen/cuda/CUDAContextLight.h declares it; that header needs those of cuSPARSE, cuSOLVER and CCCL.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

void initialise() { at::globalContext().lazyInitDevice(c10::DeviceType::CUDA); }

// Makes a device current for a scope.
class OnDevice {
   public:
    explicit OnDevice(int device) : before_(c10::cuda::current_device()) {
        c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    }
    // Best effort: what fails here fails again, with a message, at the next call.
    ~OnDevice() {
        try {
            c10::cuda::set_device(before_);
        } catch (...) {
        }
    }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

   private:
    c10::DeviceIndex before_;
};

// One capture at a time, always on the same stream of a device: cuBLAS keeps one workspace (tens of MiB) per stream that
// it has seen. Replays run on the caller's current stream, which is the default one, so graphs that share that workspace
// follow each other.
std::mutex capturing;

c10::cuda::CUDAStream capture_stream(int device) {
    static std::map<int, c10::cuda::CUDAStream> streams;  // guarded by `capturing`
    auto found = streams.find(device);
    if (found == streams.end()) {
        auto stream = c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(device));
        found = streams.emplace(device, stream).first;
    }
    return found->second;
}

class Graph : public at::cuda::CUDAGraph {
   public:
    void begin(at::cuda::MempoolId_t pool) {
        begun_ = true;
        // Calls of other threads (a cudaMalloc beside us) do not spoil the capture in this mode.
        capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    }

    // After a capture that did not end well. libtorch leaves the allocator recording and the generators in capture mode.
    void undo() noexcept {
        if (!begun_ || capture_ended_) {
            return;
        }
        try {
            capture_end();
            return;
        } catch (...) {
        }
        try {
            allocator::endAllocateToPool(capture_dev_, mempool_id_);
            allocator::releasePool(capture_dev_, mempool_id_);
        } catch (...) {
        }
        for (auto& entry : captured_generator_states_) {
            entry.first->capturing_ = false;
        }
    }

   private:
    bool begun_ = false;
};

// What is in place while a capture runs: the lock, the device, the stream.
class Capture {
   public:
    explicit Capture(int device) : lock_(outermost()), device_(device), before_(c10::cuda::getCurrentCUDAStream()) {
        c10::cuda::setCurrentCUDAStream(capture_stream(device));
        nested = true;
    }
    ~Capture() {
        nested = false;
        try {
            c10::cuda::setCurrentCUDAStream(before_);
        } catch (...) {
        }
    }

   private:
    static std::unique_lock<std::mutex> outermost() {
        TORCH_CHECK(!nested, "a capture within a capture");
        return std::unique_lock<std::mutex>(capturing);
    }
    static thread_local bool nested;

    std::unique_lock<std::mutex> lock_;
    OnDevice device_;
    c10::cuda::CUDAStream before_;
};

thread_local bool Capture::nested = false;

}  // namespace

struct NnGraph {
    explicit NnGraph(int number) : device(number) {}
    int device;
    Graph graph;
    std::optional<Capture> capture;
};

char* nn_graph_begin(int device, NnGraph* pool, NnGraph** out) {
    return nn::caught([&] {
        initialise();
        auto made = std::make_unique<NnGraph>(device);
        made->capture.emplace(device);
        // The caller's warm-up ran on another stream.
        c10::cuda::device_synchronize();
        try {
            made->graph.begin(pool != nullptr ? pool->graph.pool() : at::cuda::MempoolId_t{0, 0});
        } catch (...) {
            made->graph.undo();
            throw;
        }
        *out = made.release();
    });
}

char* nn_graph_end(NnGraph* graph) {
    char* failed = nn::caught([&] { graph->graph.capture_end(); });
    if (failed != nullptr) {
        graph->graph.undo();
    }
    graph->capture.reset();
    return failed;
}

void nn_graph_abandon(NnGraph* graph) {
    graph->graph.undo();
    graph->capture.reset();
    delete graph;
}

char* nn_graph_replay(NnGraph* graph) {
    return nn::caught([&] { graph->graph.replay(); });
}

void nn_graph_free(NnGraph* graph) {
    // A replay may still run; its memory must not be given away before it ends.
    char* failed = nn_cuda_synchronize(graph->device);
    nn_error_free(failed);
    delete graph;
}

char* nn_cuda_synchronize(int device) {
    return nn::caught([&] {
        initialise();
        OnDevice on(device);
        c10::cuda::device_synchronize();
    });
}

char* nn_cuda_memory(int device, NnMemory* out) {
    return nn::caught([&] {
        initialise();
        auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
        constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
        out->allocated = static_cast<uint64_t>(stats.allocated_bytes[all].current);
        out->allocated_peak = static_cast<uint64_t>(stats.allocated_bytes[all].peak);
        out->reserved = static_cast<uint64_t>(stats.reserved_bytes[all].current);
        out->reserved_peak = static_cast<uint64_t>(stats.reserved_bytes[all].peak);
        out->free = static_cast<uint64_t>(allocator::get()->getMemoryInfo(static_cast<c10::DeviceIndex>(device)).first);
        out->total = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->totalGlobalMem;
    });
}

char* nn_cuda_reset_peak(int device) {
    return nn::caught([&] {
        initialise();
        allocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
    });
}

char* nn_cuda_empty_cache(int device) {
    return nn::caught([&] {
        initialise();
        OnDevice on(device);
        allocator::emptyCache();
    });
}

char* nn_cuda_name(int device, char* out, size_t size) {
    return nn::caught([&] {
        initialise();
        const char* name = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->name;
        std::strncpy(out, name, size - 1);
        out[size - 1] = '\0';
    });
}
