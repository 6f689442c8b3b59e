// The CPU as a device, and models on a device whose memory the host cannot touch.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/status.h"
#include "call/context.h"
#include "far_device.h"

using namespace aotpack::runtime;
using aotpack::tests::affine_archive;
using aotpack::tests::bools_archive;
using aotpack::tests::download;
using aotpack::tests::FarDevice;
using aotpack::tests::FarWork;
using aotpack::tests::host_tensor;
using aotpack::tests::kFloat;
using aotpack::tests::Loaded;
using aotpack::tests::mutate_archive;

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
