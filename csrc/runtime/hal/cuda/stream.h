// Streams of a CUDA device.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hal/cuda/current.h"
#include "hal/cuda/device.h"
#include "hal/stream.h"

namespace aotpack::runtime::cuda {

class Providers;

class CudaStream final : public Stream {
 public:
  // A new stream that does not wait for the legacy default stream. Throws what CudaDevice::check throws.
  explicit CudaStream(CudaDevice& device);
  // One of the caller's; 1 and 2 are the legacy default stream and that of the thread. Throws INVALID_ARGUMENT where it
  // is of another device.
  CudaStream(CudaDevice& device, void* borrowed);
  ~CudaStream() override;

  void* handle() noexcept override { return stream_; }
  void copy(void* to, const void* from, size_t bytes) override;
  void copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                    const int64_t* sizes, int32_t rank, size_t item) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;
  void copy_strided_on_device(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                              const int64_t* sizes, int32_t rank, size_t item) override;
  void begin() override {
    current_.emplace(device_);
    follows_launch_ = false;
  }
  void end() noexcept override { current_.reset(); }
  void wait() override;
  void finish() override;
  bool is_captured() override;

  void launch(const aotpack_module_launch& launch) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void fill(void* to, uint64_t value, size_t item, size_t count) override;
  void tensor_map(const aotpack_module_tensor_map& map) override { device_.tensor_map(map); }
  bool provide(const aotpack_module_library_call& call, WorkMemory& memory) override;
  void take_over(Stream& before) override;
  // The handle for the driver, which gets work next.
  StreamHandle busy() noexcept {
    is_idle_ = false;
    follows_launch_ = false;
    return stream_;
  }

 private:
  // Memory of the driver that the device reads while the host goes on.
  struct Pinned {
    Pinned(CudaDevice& owner, size_t bytes);
    ~Pinned();
    CudaDevice& device;
    char* data = nullptr;
  };

  // Whether memory is the device's; otherwise it is the host's.
  bool is_of_device(const void* address) const noexcept;
  void submit_copy(void* to, const void* from, size_t bytes);
  void copy_within_device(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                          const int64_t* sizes, int32_t rank, size_t item);
  void copy_from_host(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                      const int64_t* sizes, int32_t rank, size_t item);
  void copy_to_host(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                    const int64_t* sizes, int32_t rank, size_t item);

  CudaDevice& device_;
  const Driver& driver_;
  StreamHandle stream_ = nullptr;
  std::optional<Current> current_;  // during a call
  bool is_own_ = true;
  bool is_idle_ = true;                        // since the last wait()
  bool follows_launch_ = false;                // the last work of this call is a kernel of a module
  bool uses_host_memory_ = false;              // of some copy since the last wait()
  std::vector<std::unique_ptr<char[]>> held_;  // what such copies read
  std::unique_ptr<Pinned> staging_;            // for small uploads; made at the first
  std::unique_ptr<Providers> providers_;       // made when a call first asks for a library
  size_t staged_ = 0;                          // bytes of it that copies since the last wait() read
};

}  // namespace aotpack::runtime::cuda
