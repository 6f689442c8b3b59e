// Updates of some of the weights, and low-rank changes of them.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "model/model.h"
#include "update/update.h"
#include "weights_fixture.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::NamedViews;
using aotpack::TensorView;
using aotpack::UpdateOptions;

namespace {

UpdateOptions partial() {
  UpdateOptions options;
  options.partial = true;
  return options;
}

NamedViews only(const UpdatableWeights& weights, const std::string& name) {
  NamedViews views;
  for (const auto& item : views_of(weights)) {
    if (item.first == name) views.push_back(item);
  }
  return views;
}

std::string refusal(Model& model, const NamedViews& views, const UpdateOptions& options) {
  const aotpack::Error error = error_of([&] { model.update_weights(views, options); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  return message_of(error);
}

Result result_of(const Model& model) {
  Context context(model);
  return call(context);
}

// A delta of rank 2 for `matrix`, and what it makes of it.
const float kDown[6] = {1, 2, 3, -4, 5, 6};  // [2, 3]
const float kUp[4] = {0.5f, 1, -1, 2};       // [2, 2]

aotpack::WeightDelta delta(const char* name = "matrix", double scale = 2) {
  return {name, TensorView(kDown, {2, 3}), TensorView(kUp, {2, 2}), scale};
}

UpdatableWeights with_delta(UpdatableWeights weights, float scale = 2) {
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      weights.matrix[3 * i + j] += scale * (kUp[2 * i] * kDown[j] + kUp[2 * i + 1] * kDown[3 + j]);
    }
  }
  return weights;
}

}  // namespace

TEST_CASE("weights that are not given keep the values of the last update, or those of the archive") {
  const UpdatableWeights archived;
  const UpdatableWeights first = random_weights(1);
  const UpdatableWeights second = random_weights(2);
  Model model = load(updatable_archive(archived));
  UpdatableWeights now = archived;
  const auto check_after = [&](const UpdatableWeights& given, const char* name, UpdateOptions options = partial()) {
    model.update_weights(only(given, name), options);
    CHECK(result_of(model) == expected(now));
  };
  now.gain = first.gain;  // the fold's other input is the archive's
  check_after(first, "gain");
  now.bias = first.bias;
  check_after(first, "tied");
  now.matrix = first.matrix;
  check_after(first, "matrix");
  now.weight = first.weight;  // the fold's other input is that of an update
  check_after(first, "weight");
  check_after(first, "unused");
  model.update_weights(views_of(second));
  now = second;
  now.gain = first.gain;
  check_after(first, "gain");
  model.update_weights({}, partial());
  CHECK(result_of(model) == expected(now));
  CHECK(model.weight_generation() == 8);

  UpdateOptions from_archive = partial();
  from_archive.from_archive = true;
  now = archived;
  now.weight = second.weight;
  check_after(second, "weight", from_archive);
  model.update_weights({}, from_archive);
  CHECK(result_of(model) == expected(archived));
  model.reset_weights();
  now = archived;
  now.gain = second.gain;
  check_after(second, "gain");
}

TEST_CASE("the initial state is updated alone, too") {
  Model model = load(updatable_archive());
  Context old(model);
  int64_t count = 0;
  call(old, "forward", &count);
  model.update_weights(only(random_weights(7), "count"), partial());
  call(old, "forward", &count);
  CHECK(count == 102);
  float bulk = 0;
  Context fresh(model);
  call(fresh, "forward", &count, &bulk);
  CHECK(count == 7001);
  CHECK(bulk == 1.5f);
}

TEST_CASE("a partial update shares what it does not change") {
  Model model = load(updatable_archive());
  auto* inner = reinterpret_cast<aotpack::runtime::Model*>(model.handle());
  const auto data = [&] {
    std::vector<const void*> found;
    for (size_t i = 0; i < 7; ++i) found.push_back(inner->weights()->data(i));
    return found;
  };
  const UpdatableWeights archived;
  const std::vector<const void*> before = data();
  model.update_weights(only(random_weights(1), "bias"), partial());
  std::vector<const void*> after = data();
  for (size_t i = 0; i < 7; ++i) CHECK((after[i] == before[i]) == (i != 2));
  // The fold runs, and gives what there was.
  model.update_weights(only(archived, "gain"), partial());
  CHECK(data()[3] == before[3]);
  CHECK(data()[2] == after[2]);
  CHECK(data()[1] != before[1]);
}

TEST_CASE("a partial update is explicit, and refused whole like any other") {
  const UpdatableWeights after = random_weights(1);
  Model model = load(updatable_archive());
  CHECK(refusal(model, without(views_of(after), "gain")) == "the update is rejected: 'gain' is missing");
  NamedViews wrong = only(after, "bias");
  wrong.emplace_back("other", TensorView(kUp, {4}));
  CHECK(refusal(model, wrong, partial()) == "the update is rejected: there is no 'other'");
  wrong = {{"weight", TensorView(kDown, {6})}, {"bias", TensorView(kUp, {4})}, {"bias", TensorView(kUp, {4})}};
  CHECK(refusal(model, wrong, partial()) ==
        "the update is rejected: 'weight': expected float32 [4], got float32 [6]; 'bias' is given twice");
  wrong = {{"tied", TensorView(kUp, {4})}, {"bias", TensorView(after.weight.data(), {4})}};
  CHECK(refusal(model, wrong, partial()) ==
        "the update is rejected: 'bias' and 'tied' are one tensor of the model, but differ");
  UpdatableWeights unfoldable;
  unfoldable.gain[0] = 0;
  const NamedViews views = only(unfoldable, "gain");
  CHECK(error_of([&] { model.update_weights(views, partial()); }).code() == AOTPACK_EXECUTION_FAILED);
  Model frozen = load(affine_archive());
  CHECK(refusal(frozen, {}, partial()).find("is frozen") != std::string::npos);
  CHECK(model.weight_generation() == 0);
  CHECK(result_of(model) == expected(UpdatableWeights()));
}

TEST_CASE("originals that were not kept are asked for where they are needed") {
  const UpdatableWeights first = random_weights(1);
  const UpdatableWeights second = random_weights(2);
  Model model = load(updatable_archive());
  UpdateOptions lean;
  lean.keep_originals = false;
  model.update_weights(views_of(first), lean);
  CHECK(result_of(model) == expected(first));
  auto* inner = reinterpret_cast<aotpack::runtime::Model*>(model.handle());
  CHECK(inner->weights()->data(1) == nullptr);
  CHECK(inner->weights()->data(0) != nullptr);  // the model reads it, too

  UpdatableWeights now = first;
  now.bias = second.bias;  // the fold does not read it
  model.update_weights(only(second, "bias"), partial());
  CHECK(result_of(model) == expected(now));
  CHECK(refusal(model, only(second, "weight"), partial()) ==
        "the update is rejected: 'gain' is missing: it is needed, and an earlier update did not keep it");
  now.gain = second.gain;
  model.update_weights(only(second, "gain"), partial());
  now.weight = second.weight;
  model.update_weights(only(second, "weight"), partial());
  CHECK(result_of(model) == expected(now));
}

TEST_CASE("low-rank changes") {
  const UpdatableWeights archived;
  const UpdatableWeights first = random_weights(1);
  Model model = load(updatable_archive(archived));
  UpdateOptions options = partial();
  options.deltas = {delta()};
  model.update_weights({}, options);  // `matrix` is kept transposed
  CHECK(result_of(model) == expected(with_delta(archived)));
  model.update_weights({}, options);
  CHECK(result_of(model) == expected(with_delta(with_delta(archived))));
  options.from_archive = true;
  model.update_weights({}, options);
  CHECK(result_of(model) == expected(with_delta(archived)));

  // To what is given in the same update, which need not be partial.
  options = UpdateOptions();
  options.deltas = {delta("matrix", -1)};
  model.update_weights(views_of(first), options);
  CHECK(result_of(model) == expected(with_delta(first, -1)));
  // Factors of any strides, dtype and rank, none too.
  const double up[4] = {0.5, -1, 1, 2};  // transposed
  const float spread[12] = {1, 0, 2, 0, 3, 0, -4, 0, 5, 0, 6, 0};
  options.deltas = {{"matrix", TensorView(spread, {2, 3}, {6, 2}), TensorView(up, {2, 2, 1}, {1, 2, 7}), 2}};
  model.update_weights(views_of(first), options);
  CHECK(result_of(model) == expected(with_delta(first)));
  options.deltas = {{"matrix", TensorView(spread, {0, 3}), TensorView(up, {2, 0}), 2}};
  model.update_weights(views_of(first), options);
  CHECK(result_of(model) == expected(first));
}

TEST_CASE("wrong low-rank changes") {
  Model model = load(updatable_archive());
  const int64_t integers[6] = {};
  const auto error_with = [&](std::vector<aotpack::WeightDelta> deltas) {
    UpdateOptions options = partial();
    options.deltas = std::move(deltas);
    return refusal(model, {}, options).substr(std::strlen("the update is rejected: "));
  };
  const TensorView down(kDown, {2, 3});
  const TensorView up(kUp, {2, 2});
  CHECK(error_with({delta("other"), delta(), delta()}) == "there is no 'other'; 'matrix' has two deltas");
  CHECK(error_with({delta("count")}) == "'count': a delta of a weight that is int64");
  CHECK(error_with({delta("matrix", std::numeric_limits<double>::infinity())}) ==
        "'matrix': the scale of a delta must be finite");
  CHECK(error_with({{"matrix", TensorView(integers, {2, 3}), up}}) ==
        "'matrix': down is int64 [2, 3], which is not floating-point");
  CHECK(error_with({{"matrix", down, TensorView(static_cast<float*>(nullptr), {2, 2})}}) == "'matrix': up has no data");
  for (const auto& [wrong_down, wrong_up] :
       {std::pair(up, down), std::pair(down, TensorView(kUp, {2, 1})), std::pair(down, TensorView(kUp, {4})),
        std::pair(TensorView(kDown, {1, 3}), up), std::pair(TensorView(kDown, {2, 1, 3}), up),
        std::pair(down, TensorView(kUp, {2, 2, 2}, {1, 1, 0}))}) {
    CHECK(error_with({{"matrix", wrong_down, wrong_up}}).find("the weight has the shape [2, 3], which") !=
          std::string::npos);
  }
  CHECK(error_with({delta("bias")}).find("the weight has the shape [4], which") != std::string::npos);

  aotpack_update_options options{};
  options.struct_size = sizeof options;
  const auto code = [&] {
    aotpack_status* status = aotpack_model_update_weights(model.handle(), nullptr, nullptr, 0, &options);
    const aotpack_code found = aotpack_status_code(status);
    aotpack_status_release(status);
    return found;
  };
  const auto message = [&] {
    aotpack_status* status = aotpack_model_update_weights(model.handle(), nullptr, nullptr, 0, &options);
    CHECK(aotpack_status_code(status) == AOTPACK_INVALID_ARGUMENT);
    const std::string text = aotpack_status_message(status);
    aotpack_status_release(status);
    return text;
  };
  options.delta_count = 1;
  options.flags = AOTPACK_UPDATE_PARTIAL;
  CHECK(code() == AOTPACK_INVALID_ARGUMENT);
  const aotpack_weight_delta* pointer = nullptr;
  options.deltas = &pointer;
  CHECK(code() == AOTPACK_INVALID_ARGUMENT);
  aotpack_weight_delta given{};
  pointer = &given;
  CHECK(message() == "aotpack_weight_delta.struct_size is not set");
  given.struct_size = sizeof given;
  CHECK(message().find("the name of delta 0 is NULL") != std::string::npos);
  given.name = "matrix";
  CHECK(message().find("'matrix': ") != std::string::npos);
  options.delta_count = 0;
  options.flags = 8;
  CHECK(code() == AOTPACK_INVALID_ARGUMENT);
  // What a caller of the first version passes: 16 bytes, the last four of which it never set.
  options.flags = AOTPACK_UPDATE_PARTIAL;
  options.struct_size = 16;
  options.reserved = -1;
  CHECK(code() == AOTPACK_INVALID_ARGUMENT);  // everything is missing
  CHECK(model.weight_generation() == 0);
}

TEST_CASE("threads call while others update one weight each: every call sees sums of whole updates") {
  const UpdatableWeights archived;
  const UpdatableWeights other = random_weights(1);
  const TempFile file(updatable_archive(archived));
  Model model = Model::load(file.path());
  std::vector<Result> results;
  for (int i = 0; i < 4; ++i) {
    UpdatableWeights weights = archived;
    if (i % 2 == 1) weights.gain = other.gain;
    if (i / 2 == 1) weights.bias = other.bias;
    results.push_back(expected(weights));
  }
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int self = 0; self < 2; ++self) {
    callers.emplace_back([&] {
      Context context(model, 1);
      do {
        if (std::find(results.begin(), results.end(), call(context)) == results.end()) ++wrong;
      } while (!done);
    });
  }
  std::vector<std::thread> updaters;
  for (const char* name : {"gain", "tied"}) {
    updaters.emplace_back([&, name] {
      Model mine = model;
      for (int i = 0; i < 50; ++i) mine.update_weights(only(i % 2 == 0 ? other : archived, name), partial());
    });
  }
  for (std::thread& thread : updaters) thread.join();
  done = true;
  for (std::thread& thread : callers) thread.join();
  CHECK(wrong == 0);
  CHECK(model.weight_generation() == 100);
  CHECK(result_of(model) == results[0]);
}
