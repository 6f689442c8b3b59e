// Models on CUDA devices, with the fake driver: answers, where data may be, streams, state, memory.
#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <memory>

#include "cuda_fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::LoadOptions;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

using Floats = std::vector<float>;

struct Loaded {
  explicit Loaded(const ArchiveWriter& writer, int device = 0) : file(writer), model(load(file.path(), device)) {}
  static Model load(const std::string& path, int device) {
    LoadOptions options;
    options.device = {kDLCUDA, device};
    return Model::load(path, options);
  }
  TempFile file;
  Model model;
};

TensorView view(const DeviceBuffer& buffer, aotpack::Shape shape, aotpack::Shape strides = {}) {
  return TensorView(static_cast<const float*>(buffer.data()), std::move(shape), std::move(strides), buffer.device());
}

MutableTensorView written(const DeviceBuffer& buffer, aotpack::Shape shape, aotpack::Shape strides = {}) {
  return MutableTensorView(static_cast<float*>(buffer.data()), std::move(shape), std::move(strides), buffer.device());
}

// Bytes of a file that are mapped into this process and in memory.
size_t mapped_pages(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool of_file = false;
  size_t total = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) of_file = line.ends_with(path);  // "7f3e-7f3f r--p … path"
    if (of_file && line.starts_with("Rss:")) total += std::stoul(line.substr(4)) << 10;
  }
  return total;
}

}  // namespace

TEST_CASE("cuda: a model answers for inputs on the host and on the device") {
  const size_t before = CONTROL(fake_cuda_live)();
  std::vector<Tensor> kept;
  {
    const Loaded loaded(cuda_affine_archive({"x86-64", "cuda-sm_90", "cuda-sm_80"}));
    CHECK(aotpack::same_device(loaded.model.device(), {kDLCUDA, 0}));
    CHECK(loaded.model.entry_target(0) == "cuda-sm_90");
    CHECK(aotpack::same_device(loaded.model.input(0).device, {kDLCUDA, 0}));
    Context context(loaded.model);
    const Floats x = {0, 1, 2, 3, 4, 5, 6, 7};
    const Floats y = {1, 4, 7, 10, 9, 12, 15, 18};
    const Floats turned = {1, 6, 11, 16, 3, 8, 13, 18};
    const DeviceBuffer far(x);
    for (int round = 0; round < 3; ++round) {
      CHECK(values_of<float>(context.run({TensorView(x.data(), {2, 4})})[0].dl()) == y);
      CHECK(values_of<float>(context.run({view(far, {2, 4})})[0].dl()) == y);
      CHECK(values_of<float>(context.run({TensorView(x.data(), {2, 4}, {1, 2})})[0].dl()) == turned);
      CHECK(values_of<float>(context.run({view(far, {2, 4}, {1, 2})})[0].dl()) == turned);
      // A view that is not at a multiple of 16 bytes.
      const auto shifted = TensorView(static_cast<const float*>(far.data()) + 1, {1, 4}, {}, far.device());
      CHECK(values_of<float>(context.run({shifted})[0].dl()) == Floats{3, 6, 9, 12});
    }
    // Into buffers of the host and of the device, of any strides.
    Floats near_out(8), turned_out = {1, 9, 4, 12, 7, 15, 10, 18};
    const DeviceBuffer far_out(Floats(8));
    context.run_into({view(far, {2, 4})}, {MutableTensorView(near_out.data(), {2, 4})});
    CHECK(near_out == y);
    context.run_into({view(far, {2, 4})}, {MutableTensorView(near_out.data(), {2, 4}, {1, 2})});
    CHECK(near_out == turned_out);
    context.run_into({TensorView(x.data(), {2, 4})}, {written(far_out, {2, 4})});
    CHECK(far_out.read<float>(8) == y);
    context.run_into({view(far, {2, 4})}, {written(far_out, {2, 4}, {1, 2})});
    CHECK(far_out.read<float>(8) == turned_out);
    kept = context.run({view(far, {2, 4})});
  }
  // A result outlives its context and its model.
  CHECK(kept[0].device().device_type == kDLCUDA);
  CHECK(values_of<float>(kept[0].dl())[7] == 18);
  kept.clear();
  CHECK(CONTROL(fake_cuda_live)() == before);
  CHECK(CONTROL(fake_cuda_libraries)() <= 1);  // that of strided copies stays
}

TEST_CASE("cuda: the best target of the device is chosen, and PTX where its machine code does not run") {
  const Floats x = {1, 1, 1, 1};
  const auto first = [&](const Model& model) {
    Context context(model);
    return values_of<float>(context.run({TensorView(x.data(), {1, 4})})[0].dl())[0];
  };
  const ArchiveWriter both = cuda_affine_archive({"cuda-sm_80", "cuda-sm_90"});
  CHECK(first(Loaded(both, 0).model) == 3);                                 // 9.0: its own
  CHECK(first(Loaded(both, 1).model) == 4);                                 // 8.6: machine code of 8.0
  CHECK(first(Loaded(both, 2).model) == 4);                                 // 12.1: PTX of 8.0
  CHECK(first(Loaded(cuda_affine_archive({"cuda-sm_80"}), 0).model) == 4);  // 9.0: PTX
  CHECK(first(Loaded(cuda_affine_archive({"cuda-sm_80"}, false), 1).model) == 4);
  const auto refusal = [](const ArchiveWriter& writer, int device) {
    const aotpack::Error error = error_of([&] { const Loaded loaded(writer, device); });
    CHECK(error.code() == AOTPACK_UNSUPPORTED_TARGET);
    return message_of(error);
  };
  CHECK(refusal(cuda_affine_archive({"cuda-sm_90"}), 2)
            .find("has no module that cuda:2 (Fake GPU 2, compute capability 12.1) runs: cuda-sm_90 needs compute "
                  "capability 9.0 exactly") != std::string::npos);
  CHECK(refusal(cuda_affine_archive({"cuda-sm_80"}, false), 0)
            .find("runs code of cuda-sm_80 from PTX only, and kernel 'affine' has none") != std::string::npos);
  const TempFile gpu_only(cuda_affine_archive({"cuda-sm_90"}));
  CHECK(message_of(error_of([&] { Model::load(gpu_only.path()); })).find("cuda-sm_90 needs a CUDA device") !=
        std::string::npos);
}

TEST_CASE("cuda: an input on the wrong device is an error that says so") {
  const Loaded loaded(cuda_affine_archive(), 0);
  Context context(loaded.model);
  const DeviceBuffer other(Floats(4), 1);
  CHECK(refusal(context, {view(other, {1, 4})}) == "input 'x' must be on the CPU or cuda:0, got cuda:1");
  const DeviceBuffer own(Floats(4));
  const aotpack::Error error = error_of([&] { context.run_into({view(own, {1, 4})}, {written(other, {1, 4})}); });
  CHECK(message_of(error) == "output 'output' must be on the CPU or cuda:0, got cuda:1");
  Context on_cpu = context_of(affine_archive());
  CHECK(refusal(on_cpu, {view(own, {1, 4})}) == "input 'x' must be on the CPU, got cuda:0");
}

TEST_CASE("cuda: calls on a stream of the caller's end without waiting, others with it") {
  const Loaded loaded(cuda_affine_archive());
  Context context(loaded.model);
  Context lender(loaded.model);
  void* const own = context.stream();
  CHECK(own != nullptr);
  const DeviceBuffer x(Floats{1, 1, 1, 1});
  const std::vector<Tensor> waited = context.run({view(x, {1, 4})});
  CHECK(CONTROL(fake_cuda_pending)(own) == 0);
  CHECK(values_of<float>(waited[0].dl())[0] == 3);

  void* const borrowed = lender.stream();
  context.set_stream(borrowed);
  CHECK(context.stream() == borrowed);
  const std::vector<Tensor> pending = context.run({view(x, {1, 4})});
  CHECK(CONTROL(fake_cuda_pending)(borrowed) > 0);
  context.synchronize();
  CHECK(CONTROL(fake_cuda_pending)(borrowed) == 0);
  CHECK(values_of<float>(pending[0].dl())[0] == 3);
  // Memory of the host is in use no more when a call has returned.
  const Floats near = {1, 1, 1, 1};
  const std::vector<Tensor> from_host = context.run({TensorView(near.data(), {1, 4})});
  CHECK(CONTROL(fake_cuda_pending)(borrowed) == 0);
  CHECK(values_of<float>(from_host[0].dl())[0] == 3);

  context.set_stream(nullptr);
  CHECK(context.stream() != borrowed);
  // The legacy default stream, and one of another device.
  context.set_stream(reinterpret_cast<void*>(1));
  CHECK(context.run({view(x, {1, 4})}).size() == 1);
  const Loaded elsewhere(cuda_affine_archive({"cuda-sm_80"}), 1);
  Context foreign(elsewhere.model);
  const aotpack::Error error = error_of([&] { context.set_stream(foreign.stream()); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(message_of(error).find("it belongs to another context") != std::string::npos);
  context.set_stream(nullptr);
}

TEST_CASE("cuda: files of states, and calls that are atomic") {
  const size_t before = CONTROL(fake_cuda_live)();
  {
    const Loaded loaded(cuda_mutate_archive());
    const TempFile file;
    Context first(loaded.model);
    const DeviceBuffer x(Floats{1, 2, 3, 4});
    const auto run = [&](Context& context) { return values_of<float>(context.run({written(x, {4})})[1].dl())[0]; };
    CHECK(run(first) == 101);
    CHECK(run(first) == 102);
    first.save_state_file(file.path());
    CHECK(run(first) == 103);
    first.load_state_file(file.path());
    CHECK(run(first) == 103);
    Context second(loaded.model);
    second.load_state_file(file.path());
    CHECK(run(second) == 103);

    second.set_check_finite(true);
    CHECK(run(second) == 104);
    const DeviceBuffer bad(Floats{1, std::numeric_limits<float>::quiet_NaN(), 3, 4});
    CHECK(error_of([&] { second.run({written(bad, {4})}); }).code() == AOTPACK_EXECUTION_FAILED);
    CHECK(values_of<float>(second.state()[0].second.dl())[0] == 104);
    CHECK(run(second) == 105);
    // The first call of a context.
    Context third(loaded.model);
    third.set_check_finite(true);
    CHECK(error_of([&] { third.run({written(bad, {4})}); }).code() == AOTPACK_EXECUTION_FAILED);
    CHECK(run(third) == 101);
  }
  CHECK(CONTROL(fake_cuda_live)() == before);
}

TEST_CASE("cuda: inputs that are written to, and state") {
  const size_t before = CONTROL(fake_cuda_live)();
  {
    const Loaded loaded(cuda_mutate_archive());
    Context first(loaded.model);
    Context second(loaded.model);
    const DeviceBuffer far(Floats{1, 2, 3, 4});
    std::vector<Tensor> out = first.run({written(far, {4})});
    CHECK(far.read<float>(4) == Floats{2, 3, 4, 5});
    CHECK(values_of<float>(out[0].dl()) == Floats{2, 3, 4, 5});
    CHECK(values_of<float>(out[1].dl())[0] == 101);
    Floats near = {1, -1, 2, -1, 3, -1, 4, -1};
    out = first.run({MutableTensorView(near.data(), {4}, {2})});
    CHECK(near == Floats{2, -1, 3, -1, 4, -1, 5, -1});
    CHECK(values_of<float>(out[1].dl())[0] == 102);
    CHECK(values_of<float>(second.run({written(far, {4})})[1].dl())[0] == 101);
    const DeviceBuffer strided(Floats{1, -1, 2, -1, 3, -1, 4, -1});
    (void)first.run({written(strided, {4}, {2})});
    CHECK(strided.read<float>(8) == Floats{2, -1, 3, -1, 4, -1, 5, -1});

    aotpack::NamedTensors state = first.state();
    CHECK(values_of<float>(state[0].second.dl())[0] == 103);
    CHECK(aotpack::same_device(loaded.model.state()[0].device, {kDLCUDA, 0}));
    const float seven = 7;
    first.load_state({{state[0].first, TensorView(&seven, {1})}});
    CHECK(values_of<float>(first.run({written(far, {4})})[1].dl())[0] == 8);
    // A state that another context has returned is on the device.
    first.load_state({{state[0].first, state[0].second.view()}});
    CHECK(values_of<float>(first.run({written(far, {4})})[1].dl())[0] == 104);
    first.reset();
    CHECK(values_of<float>(first.run({written(far, {4})})[1].dl())[0] == 101);
  }
  CHECK(CONTROL(fake_cuda_live)() == before);
}

TEST_CASE("cuda: fills, uploads, downloads and numbers") {
  const Loaded loaded(cuda_moves_archive());
  Context context(loaded.model);
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  for (const int64_t k : {int64_t{5}, int64_t{-1}, int64_t{0x123456789ABCDEF}, int64_t{0}}) {
    const std::vector<Tensor> out = context.run({view(x, {4}), TensorView(&k, {})});
    CHECK(values_of<int64_t>(out[0].dl()) == std::vector<int64_t>{k, k, k});
    CHECK(values_of<uint8_t>(out[1].dl()) == std::vector<uint8_t>{7, 7, 7, 7, 7});
    CHECK(values_of<float>(out[2].dl()) == Floats{0, 3, 1, 4, 2, 5});
  }
  const DeviceBuffer number(std::vector<int64_t>{5});
  CHECK(refusal(context, {view(x, {4}), TensorView(static_cast<int64_t*>(number.data()), {}, {}, number.device())}) ==
        "input 'k' must be on the CPU, got cuda:0");
}

TEST_CASE("cuda: 10000 calls at steady memory") {
  const Loaded loaded(cuda_affine_archive());
  Context context(loaded.model);
  const DeviceBuffer far(Floats(400));
  const Floats near(400);
  size_t live = 0;
  for (int call = 0; call < 10000; ++call) {
    const int64_t rows = 1 + call % 100;
    if (call % 2 == 0) {
      (void)context.run({view(far, {rows, 4})});
    } else {
      (void)context.run({TensorView(near.data(), {rows, 4})});
    }
    if (call == 1000) live = CONTROL(fake_cuda_live_bytes)();
  }
  CHECK(CONTROL(fake_cuda_live_bytes)() == live);
}

TEST_CASE("cuda: large weights and inputs arrive whole") {
  ArchiveWriter writer = cuda_affine_archive();
  // Constants that reach the device in pieces, beside the small one.
  std::vector<uint32_t> words(5 << 20);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * 2654435761u);
  const std::string bytes = bytes_of(words);
  writer.files.insert(writer.files.begin() + 1, {"weights/1", bytes});
  Json& module = writer.manifest["entries"][0]["variants"][0]["targets"][0]["steps"][0]["module"];
  module["file"] = 2;
  for (Json& asset : module["assets"].items()) asset["file"] = 3;
  writer.manifest["constants"].push(
      constant("bulk", "uint32", {static_cast<int64_t>(words.size())}, {1}, 1, 0, bytes, true));
  const size_t pinned = CONTROL(fake_cuda_pinned)();
  const Loaded loaded(writer);
  CHECK(CONTROL(fake_cuda_pinned)() == pinned);
  // The pages of the archive are in this process no longer than their upload takes, but for what is read around it.
  const size_t left = mapped_pages(loaded.file.path());
  CHECK(left > 0);
  CHECK(left < bytes.size() / 4);
  Context context(loaded.model);
  const aotpack::NamedTensors state = context.state();
  REQUIRE(state.size() == 1);
  CHECK(values_of<uint32_t>(state[0].second.dl()) == words);
}
