// Replacing the weights of models on CUDA devices, with the fake driver.
#include <doctest/doctest.h>

#include <algorithm>

#include "cuda_weights_fixture.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::NamedViews;
using aotpack::TensorView;
using aotpack::UpdateOptions;

namespace {

struct Swapped {
  explicit Swapped(std::optional<int> graphs = {})
      : file(cuda_updatable_archive()), model(load_with(file.path(), graphs)) {}
  TempFile file;
  Model model;
};

size_t live_bytes() { return CONTROL(fake_cuda_live_bytes)(); }

float count_of(Context& context) {
  Floats x(4);
  return values_of<float>(context.run({MutableTensorView(x.data(), {4})}, "count")[1].dl()).front();
}

}  // namespace

TEST_CASE("cuda weights: an update changes what depends on it, in every context, and a reset takes it back") {
  const CudaWeights before;
  Swapped swapped;
  Model& model = swapped.model;
  Context old(model);
  CHECK(call(old) == expected(before));
  for (uint32_t seed = 1; seed < 4; ++seed) {
    const CudaWeights after = random_cuda_weights(seed);
    model.update_weights(after.views());
    CHECK(call(old) == expected(after));
    Context fresh(model);
    CHECK(call(fresh) == expected(after));
  }
  model.reset_weights();
  CHECK(model.weight_generation() == 4);
  CHECK(call(old) == expected(before));
}

TEST_CASE("cuda weights: no graph has the address of weights that were replaced") {
  Swapped swapped;
  Context context(swapped.model);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const CudaWeights now = seed == 0 ? CudaWeights() : random_cuda_weights(seed);
    if (seed != 0) swapped.model.update_weights(now.views());
    const uint64_t before = launches();
    for (int round = 0; round < 4; ++round) CHECK(call(context) == expected(now));
    // The first call of each entry launches its kernels; what the last weights were part of is gone.
    CHECK(launches() - before == 9);
    CHECK(CONTROL(fake_cuda_execs)() <= 6);
  }
  swapped.model.reset_weights();
  for (int round = 0; round < 4; ++round) CHECK(call(context) == expected(CudaWeights()));
}

TEST_CASE("cuda weights: graphs that fill a context make room for those of new weights at once") {
  Swapped swapped(2);
  Context context(swapped.model);
  const Floats x(8);
  const auto run = [&](int64_t k) { (void)context.run({TensorView(x.data(), {2, 4}), TensorView(&k, {})}); };
  for (int round = 0; round < 3; ++round) run(1), run(2);
  CHECK(CONTROL(fake_cuda_graphs)() == 2);
  const uint64_t before = launches();
  swapped.model.update_weights(random_cuda_weights(1).views());
  for (int round = 0; round < 3; ++round) run(1), run(2);
  CHECK(launches() - before == 4);
  CHECK(CONTROL(fake_cuda_graphs)() == 2);
}

TEST_CASE("cuda weights: the device holds one set between updates, and nothing of the archive besides") {
  const size_t before = live_bytes();
  {
    Swapped swapped(0);
    Context context(swapped.model);
    (void)call(context);
    const size_t loaded = live_bytes();
    for (uint32_t seed = 1; seed < 5; ++seed) {
      swapped.model.update_weights(random_cuda_weights(seed).views());
      CHECK(live_bytes() == loaded);
      (void)call(context);
    }
    // One small weight: the large one stays where it is.
    const uint64_t copies = CONTROL(fake_cuda_calls)("cuMemcpyAsync");
    const CudaWeights other = random_cuda_weights(9);
    UpdateOptions partial;
    partial.partial = true;
    swapped.model.update_weights({{"gain", TensorView(other.gain.data(), {4})}}, partial);
    CHECK(CONTROL(fake_cuda_calls)("cuMemcpyAsync") - copies <= 3);
    CHECK(live_bytes() <= loaded + 4096);
    CudaWeights now = random_cuda_weights(4);
    now.gain = other.gain;
    CHECK(call(context) == expected(now));
    swapped.model.reset_weights();
    CHECK(live_bytes() == loaded);
    CHECK(call(context) == expected(CudaWeights()));
  }
  CHECK(live_bytes() == before);
}

TEST_CASE("cuda weights: partial updates start from the last one or from the archive") {
  Swapped swapped;
  Model& model = swapped.model;
  Context context(model);
  const CudaWeights one = random_cuda_weights(1), two = random_cuda_weights(2);
  UpdateOptions options;
  options.partial = true;
  model.update_weights(one.views());
  // The other factor of what is folded is on the device alone, or only what the fold reads.
  model.update_weights({{"gain", TensorView(two.gain.data(), {4})}}, options);
  CudaWeights now = one;
  now.gain = two.gain;
  CHECK(call(context) == expected(now));
  model.update_weights({{"weight", TensorView(two.weight.data(), {4})}}, options);
  now.weight = two.weight;
  CHECK(call(context) == expected(now));
  options.from_archive = true;
  model.update_weights({{"weight", TensorView(one.weight.data(), {4})}}, options);
  now = CudaWeights();
  now.weight = one.weight;
  CHECK(call(context) == expected(now));
  // What only the fold reads is not kept on request; what calls read is there.
  options.from_archive = false;
  UpdateOptions discard;
  discard.keep_originals = false;
  model.update_weights(one.views(), discard);
  CHECK(call(context) == expected(one));
  const NamedViews weight = {{"weight", TensorView(two.weight.data(), {4})}};
  const NamedViews gain = {{"gain", TensorView(two.gain.data(), {4})}};
  CHECK(message_of(error_of([&] {
          model.update_weights(weight, options);
        })).find("'gain' is missing: it is needed, and an earlier update did not keep it") != std::string::npos);
  model.update_weights(gain, options);
  now = one;
  now.gain = two.gain;
  CHECK(call(context) == expected(now));
}

TEST_CASE("cuda weights: tensors may be on the device, with any strides") {
  Swapped swapped;
  Context context(swapped.model);
  const CudaWeights after = random_cuda_weights(1);
  const Floats reversed(after.weight.rbegin(), after.weight.rend());
  Floats spread(8);
  for (size_t i = 0; i < 4; ++i) spread[2 * i] = after.gain[i];
  const DeviceBuffer weight(reversed), gain(spread), bulk(after.bulk), elsewhere(after.weight, 1);
  const auto far = [](const DeviceBuffer& buffer, int64_t offset, int64_t stride) {
    return TensorView(static_cast<const float*>(buffer.data()) + offset, {4}, {stride}, buffer.device());
  };
  NamedViews views = after.views();
  views[0].second = far(weight, 3, -1);
  views[1].second = far(gain, 0, 2);
  views[3].second = view(bulk, {kBulkRows, 4});
  swapped.model.update_weights(views);
  CHECK(call(context) == expected(after));
  UpdateOptions discard;
  discard.keep_originals = false;
  swapped.model.update_weights(views, discard);
  CHECK(call(context) == expected(after));
  views[0].second = far(elsewhere, 0, 1);
  CHECK(message_of(error_of([&] { swapped.model.update_weights(views); })) ==
        "the update is rejected: 'weight' must be on the CPU or cuda:0, got cuda:1");
  CHECK(call(context) == expected(after));
}

TEST_CASE("cuda weights: low-rank changes are added to what is on the device") {
  Swapped swapped;
  Context context(swapped.model);
  CudaWeights now = random_cuda_weights(3);
  swapped.model.update_weights(now.views());
  const Floats down = {1, 2, 3, 4};
  const Floats up(kBulkRows, 2);
  UpdateOptions options;
  options.partial = true;
  options.deltas = {{"bulk", TensorView(down.data(), {1, 4}), TensorView(up.data(), {kBulkRows, 1}), 0.5}};
  for (int round = 0; round < 2; ++round) {
    swapped.model.update_weights({}, options);
    for (size_t i = 0; i < now.bulk.size(); ++i) now.bulk[i] += down[i % 4];
    CHECK(call(context) == expected(now));
  }
  options.from_archive = true;
  swapped.model.update_weights({}, options);
  now = CudaWeights();
  for (size_t i = 0; i < now.bulk.size(); ++i) now.bulk[i] += down[i % 4];
  CHECK(call(context) == expected(now));
}

TEST_CASE("cuda weights: state starts from the weights of its first call or reset") {
  Swapped swapped;
  Context old(swapped.model);
  CHECK(count_of(old) == 101);
  const CudaWeights after = random_cuda_weights(1);
  swapped.model.update_weights(after.views());
  CHECK(count_of(old) == 102);
  CHECK(count_of(old) == 103);
  Context fresh(swapped.model);
  CHECK(values_of<float>(fresh.state()[0].second.dl()) == after.total);
  CHECK(count_of(fresh) == after.total[0] + 1);
  old.reset();
  CHECK(values_of<float>(old.state()[0].second.dl()) == after.total);
  for (int round = 1; round < 4; ++round) CHECK(count_of(old) == after.total[0] + static_cast<float>(round));
  const Floats seven = {7};
  old.load_state({{"total", TensorView(seven.data(), {1})}});
  CHECK(count_of(old) == 8);
}

TEST_CASE("cuda weights: work that waits on a stream of the caller's reads the weights that it was given with") {
  const CudaWeights before;
  Swapped swapped;
  Context lender(swapped.model), context(swapped.model);
  void* const stream = lender.stream();
  context.set_stream(stream);
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  const int64_t k = 3;
  const auto submit = [&] { return context.run({view(x, {1, 4}), TensorView(&k, {})}); };
  for (int round = 0; round < 3; ++round) {
    const std::vector<aotpack::Tensor> waiting = submit();
    CHECK(CONTROL(fake_cuda_pending)(stream) > 0);
    const CudaWeights after = random_cuda_weights(static_cast<uint32_t>(round) + 1);
    const CudaResult old = round == 0 ? expected(before) : expected(random_cuda_weights(static_cast<uint32_t>(round)));
    swapped.model.update_weights(after.views());
    const std::vector<aotpack::Tensor> next = submit();
    context.synchronize();
    CHECK(values_of<float>(waiting[0].dl()) == old.y);
    CHECK(values_of<float>(next[0].dl()) == expected(after).y);
  }
}

TEST_CASE("cuda weights: what the caller captures keeps its weights") {
  Swapped swapped(0);
  Context lender(swapped.model);
  const size_t loaded = live_bytes();
  {
    Context context(swapped.model);
    context.set_stream(lender.stream());
    const DeviceBuffer x(Floats{1, 2, 3, 4});
    const int64_t k = 3;
    const auto submit = [&] { return context.run({view(x, {1, 4}), TensorView(&k, {})}); };
    (void)submit();
    CONTROL(fake_cuda_set_capturing)(lender.stream(), 1);
    const std::vector<aotpack::Tensor> captured = submit();
    CONTROL(fake_cuda_set_capturing)(lender.stream(), 0);
    swapped.model.update_weights(random_cuda_weights(1).views());
    // The weights that were captured and the new ones.
    CHECK(live_bytes() > loaded + (20u << 20));
    swapped.model.update_weights(random_cuda_weights(2).views());
    CHECK(live_bytes() < loaded + (41u << 20));
    context.synchronize();
  }
  CHECK(live_bytes() == loaded);
}
