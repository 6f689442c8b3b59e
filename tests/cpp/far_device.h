// A device whose memory the host cannot touch, for tests of the runtime on devices.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/strided.h"
#include "fixtures.h"
#include "hal/cpu/device.h"
#include "hal/imports.h"
#include "model/model.h"

namespace aotpack::tests {

// An address of the far device is one of this process with the highest bit flipped: whoever uses it as it is gets a
// fault.
inline constexpr uintptr_t kFar = uintptr_t{1} << 63;

inline bool is_far(const void* address) { return (reinterpret_cast<uintptr_t>(address) & kFar) != 0; }
inline void* flip(const void* address) {
  return address != nullptr ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ kFar) : nullptr;
}
inline void* here(const void* address) { return is_far(address) ? flip(address) : const_cast<void*>(address); }

using FarWork = std::vector<std::function<void()>>;

// Does nothing before somebody waits.
class FarStream final : public runtime::Stream {
 public:
  FarStream() : own_(std::make_unique<FarWork>()), work_(*own_) {}
  explicit FarStream(FarWork* borrowed) : work_(*borrowed) {}
  void* handle() noexcept override { return &work_; }
  void copy(void* to, const void* from, size_t bytes) override {
    work_.emplace_back([=] { std::memcpy(here(to), here(from), bytes); });
  }
  void copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                    const int64_t* sizes, int32_t rank, size_t item) override {
    const auto list = [&](const int64_t* values) { return std::vector<int64_t>(values, values + rank); };
    work_.emplace_back([to, from, rank, item, a = list(to_strides), b = list(from_strides), s = list(sizes)] {
      runtime::strided_copy(here(to), a.data(), here(from), b.data(), s.data(), rank, item);
    });
  }
  void give(std::function<void()> work) { work_.push_back(std::move(work)); }
  void wait() override {
    for (const auto& work : work_) work();
    work_.clear();
  }

 private:
  std::unique_ptr<FarWork> own_;
  FarWork& work_;
};

inline bool is_third_device(aotpack_module_device device) { return device.type == kDLCUDA && device.index == 3; }

// Runs a module of the CPU on far memory: moves what it is given and what it gives back. Results arrive some time after
// launch() has returned.
class FarExecutable final : public runtime::Executable {
 public:
  explicit FarExecutable(runtime::ExecutableSource source)
      : runtime::Executable(std::move(source)), near_(runtime::Allocator::create(runtime::cpu_device())) {}
  ~FarExecutable() override { near_->release(); }

  int32_t launch(const aotpack_module_call& call, runtime::Stream& stream) const override {
    CHECK(call.struct_size == sizeof call);
    CHECK(is_third_device(call.device));
    CHECK(call.stream == stream.handle());
    CHECK(call.features == (AOTPACK_MODULE_FEATURE_ASYNC | AOTPACK_MODULE_FEATURE_HOST_STEPS));
    for (uint32_t i = 0; i < table().num_inputs; ++i) {
      CHECK(is_third_device(call.input_devices[i]) == is_far(call.inputs[i].data));
    }
    for (uint32_t i = 0; i < table().num_constants; ++i) CHECK(is_third_device(call.constant_devices[i]));
    stream.wait();
    std::vector<aotpack_module_tensor> inputs(call.inputs, call.inputs + table().num_inputs);
    std::vector<aotpack_module_tensor> constants(call.constants, call.constants + table().num_constants);
    // Numbers are in memory of the host; here only numbers have rank 0.
    for (aotpack_module_tensor& tensor : inputs) CHECK(is_far(tensor.data) == (tensor.rank > 0));
    for (aotpack_module_tensor& tensor : constants) CHECK(is_far(tensor.data));
    for (auto* tensors : {&inputs, &constants}) {
      for (aotpack_module_tensor& tensor : *tensors) tensor.data = here(tensor.data);
    }
    runtime::CallState state;
    state.allocator = near_;
    aotpack_module_call near = call;
    near.runtime = &state;
    near.inputs = inputs.data();
    near.constants = constants.data();
    const int32_t code = table().run(&near);
    if (code != AOTPACK_MODULE_OK) return code;
    auto* far = static_cast<runtime::CallState*>(call.runtime);
    for (uint32_t i = 0; i < table().num_outputs; ++i) {
      aotpack_module_tensor& output = call.outputs[i];
      if (output.block == nullptr) {
        output.data = flip(output.data);
        continue;
      }
      size_t bytes = output.dtype == AOTPACK_DTYPE_UINT8 ? 1 : output.dtype == AOTPACK_DTYPE_FLOAT32 ? 4 : 8;
      for (int32_t axis = 0; axis < output.rank; ++axis) bytes *= static_cast<size_t>(output.sizes[axis]);
      void* data = far->allocate(bytes);
      CHECK(is_far(data));
      std::memset(here(data), 0xFF, bytes);
      static_cast<FarStream&>(stream).give([from = output.block, to = here(data), bytes] {
        std::memcpy(to, runtime::Allocator::data(from), bytes);
        runtime::Allocator::release_block(from);
      });
      output.block = output.data = data;
    }
    return code;
  }

 private:
  runtime::Allocator* near_;
};

class FarDevice final : public runtime::Device {
 public:
  DLDevice id() const noexcept override { return {kDLCUDA, 3}; }
  std::string description() const override { return "cuda:3"; }
  bool is_host() const noexcept override { return false; }
  const std::vector<std::string_view>& targets() const override { return runtime::cpu_device().targets(); }
  std::string missing(std::string_view target) const override { return runtime::cpu_device().missing(target); }
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    ++live;
    return flip(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
  }
  void free(void* memory) noexcept override {
    --live;
    std::free(flip(memory));
  }
  std::unique_ptr<runtime::Stream> make_stream() override { return std::make_unique<FarStream>(); }
  std::unique_ptr<runtime::Stream> borrow_stream(void* handle) override {
    return std::make_unique<FarStream>(static_cast<FarWork*>(handle));
  }
  std::unique_ptr<runtime::Executable> load(runtime::ExecutableSource source) override {
    return std::make_unique<FarExecutable>(std::move(source));
  }

  int live = 0;
};

struct Loaded {
  Loaded(const ArchiveWriter& writer, runtime::Device& device)
      : file(writer),
        model(new runtime::Model(file.path().c_str(), AOTPACK_VERIFY_CODE, runtime::FileMap::Mode::kMap, device)) {}
  ~Loaded() { model->release(); }
  TempFile file;
  runtime::Model* model;
};

inline DLTensor host_tensor(void* data, DLDataType dtype, int64_t* shape, int32_t rank, int64_t* strides = nullptr) {
  DLTensor tensor{};
  tensor.data = data;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = rank;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = strides;
  return tensor;
}

template <typename T>
std::vector<T> download(DLManagedTensorVersioned* tensor) {
  CHECK(tensor->dl_tensor.device.device_type == kDLCUDA);
  CHECK(tensor->dl_tensor.device.device_id == 3);
  CHECK(is_far(tensor->dl_tensor.data));
  size_t count = 1;
  for (int32_t i = 0; i < tensor->dl_tensor.ndim; ++i) count *= static_cast<size_t>(tensor->dl_tensor.shape[i]);
  std::vector<T> values(count);
  std::memcpy(values.data(), here(tensor->dl_tensor.data), count * sizeof(T));
  tensor->deleter(tensor);
  return values;
}

inline constexpr DLDataType kFloat = {kDLFloat, 32, 1};

}  // namespace aotpack::tests
