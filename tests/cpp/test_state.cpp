// What a model writes to: every context has its own, which can be read, replaced and reset.
#include <doctest/doctest.h>

#include <fstream>
#include <numeric>

#include "call/context.h"
#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::NamedTensors;
using aotpack::NamedViews;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

struct State {
  int64_t count;
  float bulk;
  bool operator==(const State& other) const { return count == other.count && bulk == other.bulk; }
};

// Adds one to each and returns them.
State call(Context& context, const char* entry = "forward") {
  const float x[4] = {};
  const std::vector<Tensor> outputs = context.run({TensorView(x, {1, 4})}, entry);
  return {*outputs[3].data<int64_t>(), *outputs[4].data<float>()};
}

State read(Context& context) {
  const NamedTensors state = context.state();
  REQUIRE(state.size() == 2);
  CHECK(state[0].first == "count");
  CHECK(state[1].first == "bulk");
  CHECK(state[1].second.numel() == kBulk);
  return {*state[0].second.data<int64_t>(), state[1].second.data<float>()[0]};
}

NamedViews views_of(const NamedTensors& state) {
  NamedViews views;
  for (const auto& [name, tensor] : state) views.emplace_back(name, tensor.view());
  return views;
}

// Bytes of this process that no other shares and that were written to.
size_t private_dirty() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  size_t kilobytes = 0;
  while (rollup >> word) {
    if (word == "Private_Dirty:") rollup >> kilobytes;
  }
  return kilobytes << 10;
}

}  // namespace

TEST_CASE("what a model tells about its state") {
  const Model model = load(updatable_archive());
  const std::vector<aotpack_weight_info> infos = model.state();
  REQUIRE(infos.size() == 2);
  CHECK(std::string(infos[0].name) == "count");
  CHECK(aotpack::same_dtype(infos[0].dtype, aotpack::dtype_of<int64_t>()));
  CHECK(infos[1].sizes[0] == kBulk);
  CHECK(aotpack_model_state(model.handle(), 2) == nullptr);
  CHECK(load(affine_archive()).state().empty());
}

TEST_CASE("state accumulates in a context, is shared by its entries and by no other context") {
  const Model model = load(updatable_archive());
  Context first(model, 1);
  Context second(model, 1);
  CHECK(read(first) == State{100, 0.5f});
  CHECK(call(first) == State{101, 1.5f});
  CHECK(call(first, "again") == State{102, 2.5f});
  CHECK(read(first) == State{102, 2.5f});
  CHECK(call(second) == State{101, 1.5f});
  first.reset();
  CHECK(read(first) == State{100, 0.5f});
  CHECK(call(first, "again") == State{101, 1.5f});
  CHECK(read(second) == State{101, 1.5f});
}

TEST_CASE("a state that was read is a copy, and can be loaded, also into a context that was never called") {
  const Model model = load(updatable_archive());
  Context first(model, 1);
  for (int i = 0; i < 3; ++i) call(first);
  const NamedTensors kept = first.state();
  call(first);
  CHECK(*kept[0].second.data<int64_t>() == 103);
  first.load_state(views_of(kept));
  CHECK(call(first) == State{104, 4.5f});
  Context second(model, 1);
  second.load_state(views_of(kept));
  CHECK(read(second) == State{103, 3.5f});
  CHECK(call(second, "again") == State{104, 4.5f});
  // Any layout.
  std::vector<float> bulk(2 * kBulk);
  std::iota(bulk.begin(), bulk.end(), 0.0f);
  const int64_t count = -1;
  second.load_state(
      {{"bulk", TensorView(bulk.data() + 2 * kBulk - 2, {kBulk}, {-2})}, {"count", TensorView(&count, {1})}});
  CHECK(read(second) == State{-1, 2.0f * kBulk - 2});
  const NamedTensors loaded = second.state();
  CHECK(loaded[1].second.data<float>()[kBulk - 1] == 0);
  CHECK(call(second) == State{0, 2.0f * kBulk - 1});
}

TEST_CASE("a state that does not fit is refused whole") {
  const Model model = load(updatable_archive());
  Context context(model, 1);
  call(context);
  const int64_t count = 5;
  const std::vector<float> bulk(kBulk);
  const TensorView good_count(&count, {1});
  const TensorView good_bulk(bulk.data(), {kBulk});
  const auto refusal = [&](const NamedViews& views) {
    const aotpack::Error error = error_of([&] { context.load_state(views); });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    return message_of(error);
  };
  CHECK(refusal({{"count", good_count}}) == "the state is rejected: 'bulk' is missing");
  CHECK(refusal({}) == "the state is rejected: 'count' is missing; 'bulk' is missing");
  CHECK(refusal({{"count", good_count}, {"bulk", good_bulk}, {"weight", good_bulk}}) ==
        "the state is rejected: there is no 'weight'");
  CHECK(refusal({{"count", good_bulk}, {"bulk", good_bulk}}) ==
        "the state is rejected: 'count': expected int64 [1], got float32 [262144]");
  CHECK(read(context) == State{101, 1.5f});
  aotpack::Error error = error_of([&] {
    DLManagedTensorVersioned* tensor = nullptr;
    aotpack::detail::check(aotpack_context_get_state(context.handle(), 2, &tensor));
  });
  CHECK(message_of(error) == "there is no state tensor 2; the model has 2");
}

TEST_CASE("an update of the weights leaves states alone; the next reset takes the new initial values") {
  Model model = load(updatable_archive());
  Context called(model, 1);
  Context idle(model, 1);
  call(called);
  UpdatableWeights weights;
  weights.count = {500};
  weights.bulk.assign(kBulk, 7);
  const int64_t unused = 0;
  const NamedViews views = {{"weight", TensorView(weights.weight.data(), {4})},
                            {"gain", TensorView(weights.gain.data(), {4})},
                            {"bias", TensorView(weights.bias.data(), {4})},
                            {"matrix", TensorView(weights.matrix.data(), {2, 3})},
                            {"count", TensorView(weights.count.data(), {1})},
                            {"bulk", TensorView(weights.bulk.data(), {kBulk})},
                            {"unused", TensorView(&unused, {})}};
  model.update_weights(views);
  CHECK(read(called) == State{101, 1.5f});
  CHECK(call(called) == State{102, 2.5f});
  CHECK(read(idle) == State{500, 7.0f});
  CHECK(call(idle) == State{501, 8.0f});
  called.reset();
  CHECK(call(called, "again") == State{501, 8.0f});
  // The set's own value is no context's to write to.
  Context fresh(model, 1);
  CHECK(call(fresh) == State{501, 8.0f});
  model.reset_weights();
  idle.reset();
  CHECK(call(idle) == State{101, 1.5f});
  CHECK(call(called) == State{502, 9.0f});
}

TEST_CASE("a large state costs memory only where it is written to") {
  UpdatableWeights weights;
  weights.bulk.assign(kBulk, 0.25f);
  const Model model = load(updatable_archive(weights));
  std::vector<Context> contexts;
  const size_t before = private_dirty();
  for (int i = 0; i < 32; ++i) {
    contexts.emplace_back(model, 1);
    CHECK(call(contexts.back()) == State{101, 1.25f});
  }
  CHECK(private_dirty() - before < size_t{8} << 20);  // of 32 MiB
  for (Context& context : contexts) CHECK(call(context) == State{102, 2.25f});
  Context fresh(model, 1);
  CHECK(call(fresh) == State{101, 1.25f});
}

TEST_CASE("the file may be replaced meanwhile") {
  const TempFile file(updatable_archive());
  const Model model = Model::load(file.path());
  UpdatableWeights other;
  other.bulk.assign(kBulk, 9);
  const TempFile replacement(updatable_archive(other));
  REQUIRE(std::rename(replacement.path().c_str(), file.path().c_str()) == 0);
  Context context(model, 1);
  CHECK(call(context) == State{101, 1.5f});
}

TEST_CASE("reset gives the memory back") {
  Context context(load(updatable_archive()), 1);
  aotpack::runtime::Allocator& pool =
      *reinterpret_cast<aotpack::runtime::Context*>(context.handle())->workspace().allocator();
  call(context);
  CHECK(pool.statistics().live_bytes > 0);
  CHECK(pool.statistics().live_bytes < 4096);  // the large one is mapped
  context.reset();
  CHECK(pool.statistics().live_bytes == 0);
  context.reset();
  CHECK(call(context) == State{101, 1.5f});
}
