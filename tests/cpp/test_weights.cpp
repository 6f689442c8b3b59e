// Replacing weights: what is refused, what changes, and what calls see meanwhile.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "model/model.h"
#include "weights_fixture.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::NamedViews;
using aotpack::TensorView;

TEST_CASE("a frozen model has no weights to replace") {
  Model model = load(affine_archive());
  CHECK_FALSE(model.is_updatable());
  CHECK(model.weights().empty());
  CHECK(refusal(model, {}).find("is frozen (it was built without --updatable): its weights are fixed") !=
        std::string::npos);
  CHECK(error_of([&] { model.reset_weights(); }).code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(model.weight_generation() == 0);
}

TEST_CASE("what an update brings") {
  const Model model = load(updatable_archive());
  const std::vector<aotpack_weight_info> infos = model.weights();
  CHECK(model.is_updatable());
  REQUIRE(infos.size() == 8);
  CHECK(std::string(infos[4].name) == "matrix");
  CHECK(infos[4].rank == 2);
  CHECK(infos[4].sizes[0] == 2);
  CHECK(infos[4].sizes[1] == 3);
  CHECK(aotpack::same_dtype(infos[7].dtype, aotpack::dtype_of<int64_t>()));
  CHECK(infos[7].rank == 0);
  CHECK(aotpack_model_weight(model.handle(), 8) == nullptr);
}

TEST_CASE("an update changes everything that depends on it, in every context and entry, and a reset takes it back") {
  const UpdatableWeights before;
  const UpdatableWeights after = random_weights(1);
  Model model = load(updatable_archive(before));
  Context old(model);
  CHECK(call(old) == expected(before));
  model.update_weights(views_of(after), 3);
  CHECK(model.weight_generation() == 1);
  CHECK(call(old) == expected(after));
  CHECK(call(old, "again") == expected(after));
  Context fresh(model);
  CHECK(call(fresh) == expected(after));
  model.update_weights(views_of(random_weights(2)));
  model.update_weights(views_of(after));
  CHECK(call(fresh) == expected(after));
  model.reset_weights();
  CHECK(model.weight_generation() == 4);
  CHECK(call(old) == expected(before));
  CHECK(call(fresh, "again") == expected(before));
}

TEST_CASE("the caller's tensors are copied, whatever their strides and alignment") {
  UpdatableWeights after = random_weights(3);
  Model model = load(updatable_archive());
  const std::vector<float> transposed = {after.matrix[0], after.matrix[3], after.matrix[1],
                                         after.matrix[4], after.matrix[2], after.matrix[5]};
  const std::vector<float> reversed(after.weight.rbegin(), after.weight.rend());
  std::vector<char> shifted(17);
  std::memcpy(shifted.data() + 1, after.gain.data(), 16);
  const float one_bias = 2.5f;
  NamedViews views = replaced(views_of(after), "matrix", TensorView(transposed.data(), {2, 3}, {1, 2}));
  views = replaced(views, "weight", TensorView(reversed.data() + 3, {4}, {-1}));
  views = replaced(views, "gain", TensorView(shifted.data() + 1, aotpack::dtype_of<float>(), {4}));
  views = without(replaced(views, "bias", TensorView(&one_bias, {4}, {0})), "tied");
  model.update_weights(views);
  after.bias.assign(4, 2.5f);
  const Result result = expected(after);
  std::fill(shifted.begin(), shifted.end(), '\0');
  Context context(model);
  CHECK(call(context) == result);
}

TEST_CASE("of tied weights one will do; two must agree") {
  const UpdatableWeights after = random_weights(4);
  Model model = load(updatable_archive());
  model.update_weights(without(views_of(after), "bias"));
  Context context(model);
  CHECK(call(context) == expected(after));
  // Equal bytes in another layout.
  std::vector<float> spread(8);
  for (size_t i = 0; i < 4; ++i) spread[2 * i] = after.bias[i];
  model.update_weights(replaced(views_of(after), "tied", TensorView(spread.data(), {4}, {2})));
  spread[6] += 1;
  CHECK(refusal(model, replaced(views_of(after), "tied", TensorView(spread.data(), {4}, {2}))) ==
        "the update is rejected: 'bias' and 'tied' are one tensor of the model, but differ");
  CHECK(refusal(model, without(without(views_of(after), "bias"), "tied")) ==
        "the update is rejected: 'bias' is missing; 'tied' is missing");
}

TEST_CASE("what does not fit is refused whole, and everything that is wrong is told") {
  const UpdatableWeights before;
  const UpdatableWeights after = random_weights(5);
  Model model = load(updatable_archive(before));
  Context context(model);
  const NamedViews good = views_of(after);
  const float none[5] = {};
  const auto error_with = [&](const std::string& name, TensorView view) {
    return refusal(model, replaced(good, name, view));
  };
  CHECK(refusal(model, without(good, "unused")) == "the update is rejected: 'unused' is missing");
  CHECK(error_with("unused", TensorView(none, {})) ==
        "the update is rejected: 'unused': expected int64 [], got float32 []");
  CHECK(error_with("weight", TensorView(none, {5})) ==
        "the update is rejected: 'weight': expected float32 [4], got float32 [5]");
  CHECK(error_with("matrix", TensorView(none, {2, 1, 3})) ==
        "the update is rejected: 'matrix': expected float32 [2, 3], got float32 [2, 1, 3]");
  CHECK(error_with("count", TensorView(none, {1})) ==
        "the update is rejected: 'count': expected int64 [1], got float32 [1]");
  CHECK(error_with("gain", TensorView(static_cast<float*>(nullptr), {4})) ==
        "the update is rejected: 'gain' has no data");
  NamedViews extra = good;
  extra.emplace_back("other", TensorView(none, {1}));
  CHECK(refusal(model, extra) == "the update is rejected: there is no 'other'");
  NamedViews twice = good;
  twice.push_back(good[0]);
  CHECK(refusal(model, twice) == "the update is rejected: 'weight' is given twice");
  CHECK(refusal(model, without(replaced(extra, "weight", TensorView(none, {5})), "gain")) ==
        "the update is rejected: 'weight': expected float32 [4], got float32 [5]; there is no 'other'; 'gain' is "
        "missing");
  NamedViews many;
  for (int i = 0; i < 12; ++i) many.emplace_back("x" + std::to_string(i), TensorView(none, {1}));
  CHECK(refusal(model, many).find("there is no 'x9'; and 10 more") != std::string::npos);

  DLTensor device = good[0].second.dl();
  device.device = {kDLCUDA, 1};
  std::vector<DLTensor> tensors;
  std::vector<const char*> names;
  std::vector<const DLTensor*> pointers;
  for (const auto& [name, view] : good) {
    tensors.push_back(view.dl());
    names.push_back(name.c_str());
  }
  for (const DLTensor& tensor : tensors) pointers.push_back(&tensor);
  const auto update = [&](size_t count) {
    aotpack::detail::check(aotpack_model_update_weights(model.handle(), names.data(), pointers.data(), count, nullptr));
  };
  pointers[0] = &device;
  CHECK(message_of(error_of([&] { update(8); })) == "the update is rejected: 'weight' must be on the CPU, got cuda:1");
  pointers[0] = nullptr;
  CHECK(message_of(error_of([&] { update(8); })) == "the update is rejected: 'weight' is NULL");
  names[0] = nullptr;
  CHECK(message_of(error_of([&] { update(8); })) == "the update is rejected: name 0 is NULL; 'weight' is missing");
  CHECK_THROWS_AS(aotpack::detail::check(aotpack_model_update_weights(model.handle(), nullptr, nullptr, 8, nullptr)),
                  aotpack::Error);
  CHECK_THROWS_AS(model.update_weights(good, -1), aotpack::Error);

  CHECK(model.weight_generation() == 0);
  CHECK(call(context) == expected(before));
}

TEST_CASE("a fold that fails changes nothing") {
  UpdatableWeights after = random_weights(6);
  after.gain[0] = 0;
  Model model = load(updatable_archive());
  const aotpack::Error error = error_of([&] { model.update_weights(views_of(after)); });
  CHECK(error.code() == AOTPACK_EXECUTION_FAILED);
  CHECK(message_of(error) == "the new weights cannot be folded: entry 'fold': gain begins with 0");
  CHECK(model.weight_generation() == 0);
  Context context(model);
  CHECK(call(context) == expected(UpdatableWeights()));
}

TEST_CASE("weights that nobody uses any more are freed, also while contexts are idle") {
  Model model = load(updatable_archive());
  auto* inner = reinterpret_cast<aotpack::runtime::Model*>(model.handle());
  std::vector<std::weak_ptr<const aotpack::runtime::WeightSet>> sets;
  std::vector<Context> contexts;
  for (uint32_t i = 0; i < 3; ++i) {
    model.update_weights(views_of(random_weights(i)));
    call(contexts.emplace_back(model));
    sets.push_back(inner->weights().owner());
  }
  CHECK(sets[0].expired());
  CHECK(sets[1].expired());
  {
    // What a running call has.
    const aotpack::runtime::WeightsInUse running = inner->weights();
    model.reset_weights();
    CHECK_FALSE(sets[2].expired());
  }
  CHECK(sets[2].expired());
}

TEST_CASE("4 threads call while another replaces the weights 100 times: every call sees one set") {
  constexpr uint32_t kSets = 5;
  std::vector<UpdatableWeights> sets;
  std::vector<Result> results;
  for (uint32_t i = 0; i < kSets; ++i) {
    sets.push_back(random_weights(i));
    results.push_back(expected(sets.back()));
  }
  const TempFile file(updatable_archive(sets[0]));
  Model model = Model::load(file.path());
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::atomic<int> calls{0};
  std::atomic<uint32_t> met{0};  // a bit per set
  std::vector<std::thread> threads;
  for (int self = 0; self < 4; ++self) {
    threads.emplace_back([&, self] {
      Context context(model, 1);
      do {
        const Result result = call(context, self % 2 == 0 ? "forward" : "again");
        const auto found = std::find(results.begin(), results.end(), result);
        if (found == results.end()) {
          ++wrong;
        } else {
          met |= 1u << (found - results.begin());
        }
        ++calls;
      } while (!done);
    });
  }
  for (uint32_t i = 1; i <= 100; ++i) {
    const UpdatableWeights& next = sets[i % kSets];
    if (i % kSets == 0 && i % 2 == 0) {
      model.reset_weights();
    } else {
      model.update_weights(views_of(next));
    }
    Context context(model, 1);
    if (!(call(context) == results[i % kSets])) ++wrong;
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(model.weight_generation() == 100);
  CHECK(met > 0);
  MESSAGE(calls.load() << " calls, sets met: " << met.load());
}

TEST_CASE("updates from several threads wait for each other") {
  const TempFile file(updatable_archive());
  Model model = Model::load(file.path());
  std::vector<std::thread> threads;
  for (uint32_t self = 0; self < 4; ++self) {
    threads.emplace_back([&, self] {
      Model mine = model;
      const UpdatableWeights weights = random_weights(self);
      for (int i = 0; i < 10; ++i) mine.update_weights(views_of(weights));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(model.weight_generation() == 40);
  Context context(model);
  const Result result = call(context);
  bool known = false;
  for (uint32_t i = 0; i < 4; ++i) known = known || result == expected(random_weights(i));
  CHECK(known);
}
