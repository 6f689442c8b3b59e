// The CPU as a device, and models on a device whose memory the host cannot touch.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/strided.h"
#include "call/context.h"
#include "fixtures.h"
#include "hal/cpu/device.h"
#include "model/model.h"

using namespace aotpack::runtime;
using aotpack::tests::affine_archive;
using aotpack::tests::bools_archive;
using aotpack::tests::mutate_archive;
using aotpack::tests::TempFile;

namespace {

// An address of the far device is one of this process with the highest bit flipped: whoever uses it as it is gets a
// fault.
constexpr uintptr_t kFar = uintptr_t{1} << 63;

bool is_far(const void* address) { return (reinterpret_cast<uintptr_t>(address) & kFar) != 0; }
void* flip(const void* address) {
  return address != nullptr ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ kFar) : nullptr;
}
void* here(const void* address) { return is_far(address) ? flip(address) : const_cast<void*>(address); }

using FarWork = std::vector<std::function<void()>>;

// Does nothing before somebody waits.
class FarStream final : public Stream {
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
      strided_copy(here(to), a.data(), here(from), b.data(), s.data(), rank, item);
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

bool is_third_device(aotpack_module_device device) { return device.type == kDLCUDA && device.index == 3; }

// Runs a module of the CPU on far memory: moves what it is given and what it gives back. Results arrive some time after
// launch() has returned.
class FarExecutable final : public Executable {
 public:
  explicit FarExecutable(ExecutableSource source)
      : Executable(std::move(source)), near_(Allocator::create(cpu_device())) {}
  ~FarExecutable() override { near_->release(); }

  int32_t launch(const aotpack_module_call& call, Stream& stream) const override {
    CHECK(call.struct_size == sizeof call);
    CHECK(is_third_device(call.device));
    CHECK(call.stream == stream.handle());
    CHECK(call.features == AOTPACK_MODULE_FEATURE_ASYNC);
    for (uint32_t i = 0; i < table().num_inputs; ++i) CHECK(is_third_device(call.input_devices[i]));
    for (uint32_t i = 0; i < table().num_constants; ++i) CHECK(is_third_device(call.constant_devices[i]));
    stream.wait();
    std::vector<aotpack_module_tensor> inputs(call.inputs, call.inputs + table().num_inputs);
    std::vector<aotpack_module_tensor> constants(call.constants, call.constants + table().num_constants);
    for (aotpack_module_tensor& tensor : inputs) CHECK(is_far(tensor.data));
    for (aotpack_module_tensor& tensor : constants) CHECK(is_far(tensor.data));
    for (auto* tensors : {&inputs, &constants}) {
      for (aotpack_module_tensor& tensor : *tensors) tensor.data = flip(tensor.data);
    }
    CallState state;
    state.allocator = near_;
    aotpack_module_call near = call;
    near.runtime = &state;
    near.inputs = inputs.data();
    near.constants = constants.data();
    const int32_t code = table().run(&near);
    if (code != AOTPACK_MODULE_OK) return code;
    Allocator* far = static_cast<CallState*>(call.runtime)->allocator;
    for (uint32_t i = 0; i < table().num_outputs; ++i) {
      aotpack_module_tensor& output = call.outputs[i];
      if (output.block == nullptr) {
        output.data = flip(output.data);
        continue;
      }
      size_t bytes = output.dtype == AOTPACK_DTYPE_UINT8 ? 1 : output.dtype == AOTPACK_DTYPE_FLOAT32 ? 4 : 8;
      for (int32_t axis = 0; axis < output.rank; ++axis) bytes *= static_cast<size_t>(output.sizes[axis]);
      void* block = far->allocate(bytes);
      CHECK(is_far(Allocator::data(block)));
      std::memset(here(Allocator::data(block)), 0xFF, bytes);
      static_cast<FarStream&>(stream).give([from = output.block, to = here(Allocator::data(block)), bytes] {
        std::memcpy(to, Allocator::data(from), bytes);
        Allocator::release_block(from);
      });
      output.block = block;
      output.data = Allocator::data(block);
    }
    return code;
  }

 private:
  Allocator* near_;
};

class FarDevice final : public Device {
 public:
  DLDevice id() const noexcept override { return {kDLCUDA, 3}; }
  bool is_host() const noexcept override { return false; }
  const std::vector<std::string_view>& targets() const override { return cpu_device().targets(); }
  std::string missing(std::string_view target) const override { return cpu_device().missing(target); }
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    ++live;
    return flip(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
  }
  void free(void* memory) noexcept override {
    --live;
    std::free(flip(memory));
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<FarStream>(); }
  std::unique_ptr<Stream> borrow_stream(void* handle) override {
    return std::make_unique<FarStream>(static_cast<FarWork*>(handle));
  }
  std::unique_ptr<Executable> load(ExecutableSource source) override {
    return std::make_unique<FarExecutable>(std::move(source));
  }

  int live = 0;
};

struct Loaded {
  Loaded(const aotpack::tests::ArchiveWriter& writer, Device& device)
      : file(writer), model(new Model(file.path().c_str(), AOTPACK_VERIFY_CODE, FileMap::Mode::kMap, device)) {}
  ~Loaded() { model->release(); }
  TempFile file;
  Model* model;
};

DLTensor host_tensor(void* data, DLDataType dtype, int64_t* shape, int32_t rank, int64_t* strides = nullptr) {
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

constexpr DLDataType kFloat = {kDLFloat, 32, 1};

}  // namespace

TEST_CASE("the CPU as a device") {
  Device& cpu = cpu_device();
  CHECK(cpu.is_host());
  CHECK(cpu.id().device_type == kDLCPU);
  for (const size_t alignment : {16u, 64u, 4096u}) {
    for (const size_t bytes : {0u, 1u, 63u, 4096u, 100001u}) {
      void* memory = cpu.allocate(bytes, alignment);
      REQUIRE((memory != nullptr || bytes == 0));
      CHECK(reinterpret_cast<uintptr_t>(memory) % alignment == 0);
      if (bytes > 0) std::memset(memory, 1, bytes);
      cpu.free(memory);
    }
  }
  CHECK(cpu.allocate(SIZE_MAX, 64) == nullptr);
  CHECK(cpu.allocate(SIZE_MAX - 64, 64) == nullptr);
  const std::unique_ptr<Stream> stream = cpu.make_stream();
  CHECK(stream->handle() == nullptr);
  const int source[4] = {1, 2, 3, 4};
  int sink[4] = {};
  stream->copy(sink, source, sizeof sink);  // done when it returns
  CHECK(sink[3] == 4);
  const int64_t sizes[2] = {2, 2}, rows[2] = {2, 1}, columns[2] = {1, 2};
  stream->copy_strided(sink, columns, source, rows, sizes, 2, sizeof(int));
  CHECK(sink[1] == 3);
  stream->copy(nullptr, nullptr, 0);
  stream->wait();
}

TEST_CASE("a device with memory of its own: inputs, constants and outputs cross over") {
  FarDevice far;
  DLManagedTensorVersioned* output = nullptr;
  {
    const Loaded loaded(affine_archive(), far);
    CHECK(far.live == 1);  // the constant
    Context context(loaded.model, 1);
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t shape[2] = {2, 4};
    int64_t turned[2] = {1, 2};
    for (int round = 0; round < 3; ++round) {
      DLTensor input = host_tensor(x, kFloat, shape, 2);
      const DLTensor* inputs[] = {&input};
      context.run(0, inputs, 1, &output, 1);
      CHECK(download<float>(output) == std::vector<float>{1, 4, 7, 10, 9, 12, 15, 18});
      input.strides = turned;
      context.run(0, inputs, 1, &output, 1);
      CHECK(download<float>(output) == std::vector<float>{1, 6, 11, 16, 3, 8, 13, 18});
      // Into memory of the host, through any strides.
      float y[8] = {};
      DLTensor buffer = host_tensor(y, kFloat, shape, 2, turned);
      const DLTensor* buffers[] = {&buffer};
      input.strides = nullptr;
      context.run_into(0, inputs, 1, buffers, 1);
      CHECK(std::vector<float>(y, y + 8) == std::vector<float>{1, 9, 4, 12, 7, 15, 10, 18});
    }
    // A call that is refused leaves nothing behind, and a result outlives context and model.
    DLTensor input = host_tensor(x, kFloat, shape, 2);
    const DLTensor* inputs[] = {&input};
    CHECK_THROWS_AS(context.run_into(0, inputs, 1, inputs, 0), Error);
    context.run(0, inputs, 1, &output, 1);
  }
  CHECK(download<float>(output).size() == 8);
  CHECK(far.live == 0);
}

TEST_CASE("a device with memory of its own: the stream of a context") {
  FarDevice far;
  {
    const Loaded loaded(affine_archive(), far);
    const aotpack_value_info& info = loaded.model->entries()[0].infos.outputs()[0];
    CHECK(info.device.device_type == kDLCUDA);
    CHECK(info.device.device_id == 3);
    Context context(loaded.model, 1);
    void* const own = context.stream();
    CHECK(own != nullptr);
    float x[4] = {0, 1, 2, 3};
    int64_t shape[2] = {1, 4};
    const DLTensor input = host_tensor(x, kFloat, shape, 2);
    const DLTensor* inputs[] = {&input};
    DLManagedTensorVersioned* output = nullptr;
    const auto run = [&] {
      context.run(0, inputs, 1, &output, 1);
      return download<float>(output);
    };
    FarWork mine;
    bool done = false;
    mine.emplace_back([&] { done = true; });
    context.set_stream(&mine);
    CHECK(context.stream() == &mine);
    CHECK_FALSE(done);
    CHECK(run() == std::vector<float>{1, 4, 7, 10});
    CHECK(done);
    mine.emplace_back([&] { done = false; });
    context.synchronize();
    CHECK_FALSE(done);
    CHECK(mine.empty());
    // Changing it waits for the work of the old one.
    mine.emplace_back([&] { done = true; });
    context.set_stream(nullptr);
    CHECK(done);
    CHECK(context.stream() != &mine);
    CHECK(run() == std::vector<float>{1, 4, 7, 10});
  }
  CHECK(far.live == 0);
}

TEST_CASE("a device with memory of its own: inputs that are written to, and state") {
  FarDevice far;
  {
    const Loaded loaded(mutate_archive(), far);
    Context first(loaded.model, 1);
    Context second(loaded.model, 1);
    float x[8] = {1, -1, 2, -1, 3, -1, 4, -1};
    int64_t shape[1] = {4};
    int64_t stride[1] = {2};
    const DLTensor input = host_tensor(x, kFloat, shape, 1, stride);
    const DLTensor* inputs[] = {&input};
    DLManagedTensorVersioned* output = nullptr;
    const auto run = [&](Context& context) {
      context.run(0, inputs, 1, &output, 1);
      return download<int64_t>(output)[0];
    };
    CHECK(run(first) == 101);
    CHECK(std::vector<float>(x, x + 8) == std::vector<float>{2, -1, 3, -1, 4, -1, 5, -1});
    CHECK(run(first) == 102);
    CHECK(run(second) == 101);
    CHECK(download<int64_t>(first.get_state(0))[0] == 102);
    int64_t seven[1] = {7};
    const ConstantRecord& record = loaded.model->archive().manifest().constants[loaded.model->state()[0]];
    std::vector<int64_t> sizes = record.shape;
    const DLTensor given = host_tensor(seven, record.dtype->dlpack, sizes.data(), static_cast<int32_t>(sizes.size()));
    const DLTensor* values[] = {&given};
    const char* names[] = {record.name.c_str()};
    first.load_state(names, values, 1);
    CHECK(run(first) == 8);
    first.reset();
    CHECK(run(first) == 101);
  }
  CHECK(far.live == 0);
}

TEST_CASE("a device with memory of its own: bools are 0 and 1 there") {
  FarDevice far;
  {
    const Loaded loaded(bools_archive({0, 1, 1, 0}, {1, 0, 0, 1}), far);
    Context context(loaded.model, 1);
    uint8_t mask[6] = {0, 255, 2, 0, 1, 128};
    uint8_t flag[1] = {4};
    uint8_t marks[4] = {0, 9, 1, 0};
    int64_t shape[2] = {2, 3};
    int64_t turned[2] = {1, 2};
    int64_t four[1] = {4};
    constexpr DLDataType kBool = {kDLBool, 8, 1};
    const DLTensor tensors[3] = {host_tensor(mask, kBool, shape, 2, turned), host_tensor(flag, kBool, four, 0),
                                 host_tensor(marks, kBool, four, 1)};
    const DLTensor* inputs[] = {&tensors[0], &tensors[1], &tensors[2]};
    DLManagedTensorVersioned* output = nullptr;
    context.run(0, inputs, 3, &output, 1);
    CHECK(download<uint8_t>(output) == std::vector<uint8_t>{0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1});
    CHECK(std::vector<uint8_t>(marks, marks + 4) == std::vector<uint8_t>{1, 1, 1, 0});
    CHECK(std::vector<uint8_t>(mask, mask + 6) == std::vector<uint8_t>{0, 255, 2, 0, 1, 128});
  }
  CHECK(far.live == 0);
}
