// Forwards that keep tensors for their backwards.
#include <doctest/doctest.h>

#include <memory>
#include <optional>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::NamedTensors;
using aotpack::NamedViews;
using aotpack::Saved;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

Json tensor(int64_t index) { return Json::object({{"kind", "tensor"}, {"index", index}}); }

Json dict(std::vector<Json> keys, std::vector<Json> items) {
  return Json::object(
      {{"kind", "dict"}, {"keys", Json::array(std::move(keys))}, {"items", Json::array(std::move(items))}});
}

// forward(x): y = x * w with the state w = {1, 2, 3, 4}; keeps y, x * x and x. backward: their sum, 10 times the
// gradient and 100 * w.
ArchiveWriter archive() {
  const auto rows = [](const char* name) { return value(name, "float32", {size("batch"), 4}); };
  const std::vector<Json> dims = {dim("batch", 1, 64)};
  Json forward = entry("forward", dims, {rows("x")}, {rows("output"), rows("saved.0")},
                       {variant("default", {}, {module(1, {0}, {"alloc"})})});
  forward["out_spec"] = tensor(0);
  Json backward =
      entry("backward", dims,
            {rows("saved.outputs.0"), rows("saved.outputs.1"), rows("saved.inputs.0"), rows("output_gradients")},
            {rows("sum")}, {variant("default", {}, {module(2, {0}, {"alloc"})})});
  Json saved = dict({"outputs", "inputs"}, {dict({0, 1}, {tensor(0), tensor(1)}), dict({0}, {tensor(2)})});
  backward["in_spec"]["args"] = Json::array({saved, tensor(3)});
  backward["in_spec"]["names"] = Json::array({"saved", "output_gradients"});
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4});
  writer.files = {{"weights/0", weights},
                  {"modules/x86-64/forward", read_bytes(MODULE_halves)},
                  {"modules/x86-64/backward", read_bytes(MODULE_halves_backward)}};
  writer.manifest = manifest({constant("w", "float32", {4}, {1}, 0, 0, weights, true)}, {forward, backward});
  return writer;
}

// Of all elements of x and of the gradient.
float expected(float x, float gradient, float w) { return x * w + x * x + x + 10 * gradient + 100 * w; }

NamedViews views_of(const NamedTensors& state) {
  NamedViews views;
  for (const auto& [name, tensor] : state) views.emplace_back(name, tensor.view());
  return views;
}

}  // namespace

TEST_CASE("what a model tells of a backward") {
  const Model model = load(archive());
  const aotpack_backward_info* info = aotpack_model_backward(model.handle(), 0);
  REQUIRE(info != nullptr);
  CHECK(info->entry == 1);
  CHECK(info->result_count == 1);
  REQUIRE(info->gradient_count == 1);
  CHECK(info->gradients[0] == 0);
  CHECK(aotpack_model_backward(model.handle(), 1) == nullptr);
  CHECK(aotpack_model_backward(model.handle(), 2) == nullptr);
  CHECK(aotpack_model_backward(load(affine_archive()).handle(), 0) == nullptr);
}

TEST_CASE("entries that only look like a backward are none") {
  const auto found = [](const ArchiveWriter& writer) {
    return aotpack_model_backward(load(writer).handle(), 0) != nullptr;
  };
  CHECK(found(archive()));
  ArchiveWriter named = archive();
  named.manifest["entries"][1]["in_spec"]["names"] = Json::array({"kept", "output_gradients"});
  CHECK(!found(named));
  ArchiveWriter plain = archive();
  plain.manifest["entries"][1]["in_spec"]["args"] =
      Json::array({dict({"outputs", "inputs", "more"}, {tensor(0), tensor(1), tensor(2)}), tensor(3)});
  CHECK(!found(plain));
  plain.manifest["entries"][1]["in_spec"]["args"] =
      Json::array({dict({"outputs", "inputs"}, {tensor(0), dict({0, "b"}, {tensor(1), tensor(2)})}), tensor(3)});
  CHECK(!found(plain));
  plain.manifest["entries"][1]["in_spec"]["args"] = Json::array({
      tensor(0),
      dict({"a", "b", "c"}, {tensor(1), tensor(2), tensor(3)}),
  });
  CHECK(!found(plain));
  ArchiveWriter range = archive();
  range.manifest["entries"][1]["in_spec"]["args"][0]["items"][1]["keys"] = Json::array({1});
  CHECK(!found(range));
  ArchiveWriter order = archive();
  order.manifest["entries"][1]["in_spec"]["args"][0]["items"][0]["items"] = Json::array({tensor(1), tensor(0)});
  CHECK(!found(order));
  ArchiveWriter shape = archive();
  shape.manifest["entries"][0]["out_spec"] = Json::object({{"kind", "tuple"}, {"items", Json::array({})}});
  CHECK(!found(shape));
  ArchiveWriter other = archive();
  other.manifest["entries"][1]["name"] = "backwards";
  CHECK(!found(other));
}

TEST_CASE("a backward reads what its forward has kept, without copies, any number of times") {
  Context context(load(archive()), 1);
  std::vector<float> x(8, 3.0f);
  const float gradient[8] = {1, 1, 1, 1, 2, 2, 2, 2};
  auto [outputs, saved] = context.forward({TensorView(x.data(), {2, 4})});
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].data<float>()[1] == 6);
  CHECK(saved.nbytes() == 3 * 8 * sizeof(float));
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> sums = context.backward(saved, {TensorView(gradient, {2, 4})});
    REQUIRE(sums.size() == 1);
    CHECK(sums[0].data<float>()[1] == expected(3, 1, 2));
    CHECK(sums[0].data<float>()[7] == expected(3, 2, 4));
  }
  const std::vector<Tensor> zeros = context.backward(saved, {std::nullopt});
  CHECK(zeros[0].data<float>()[0] == expected(3, 0, 1));
  // The input is the caller's own, and so is the output.
  x[0] = 5;
  CHECK(context.backward(saved, {std::nullopt})[0].data<float>()[0] == expected(3, 0, 1) + 2);
  outputs.clear();
  CHECK(context.backward(saved, {std::nullopt})[0].data<float>()[4] == expected(3, 0, 1));
}

TEST_CASE("several forwards are open at once, and an output outlives its handle") {
  Context context(load(archive()), 1);
  const float x[12] = {1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2};
  std::vector<Tensor> kept;
  {
    auto [first, one] = context.forward({TensorView(x, {1, 4})});
    auto [second, two] = context.forward({TensorView(x + 4, {2, 4})}, "forward");
    CHECK(context.backward(two, {std::nullopt}, "forward")[0].shape()[0] == 2);
    CHECK(context.backward(one, {std::nullopt})[0].data<float>()[3] == expected(1, 0, 4));
    kept = std::move(second);
  }
  CHECK(kept[0].data<float>()[7] == 8);
}

TEST_CASE("a handle is good for its own context, and until the parameters change") {
  const Model model = load(archive());
  Context context(model, 1);
  Context other(model, 1);
  const float x[4] = {1, 1, 1, 1};
  auto forward = [&] { return context.forward({TensorView(x, {1, 4})}).second; };
  const Saved saved = forward();
  const auto message = [](Context& given, const Saved& handle, size_t count = 1) {
    const std::vector<std::optional<TensorView>> gradients(count);
    return message_of(error_of([&] { given.backward(handle, gradients); }));
  };
  CHECK(message(other, saved) == "the saved tensors belong to another context");
  CHECK(message(context, saved, 2) == "entry 'forward' has 1 outputs with gradients, got 2 gradients");
  const NamedTensors state = context.state();
  context.load_state(views_of(state));
  CHECK(message(context, saved).find("the state of the context was loaded or reset between the forward") == 0);
  const Saved again = forward();
  context.reset();
  CHECK(message(context, again).find("the state of the context was loaded or reset") == 0);
  CHECK(message_of(error_of([&] { context.forward({TensorView(x, {1, 4})}, 1); })) ==
        "the entry 'backward' has no backward");
  // One that outlives its context is released as well.
  auto owner = std::make_unique<Context>(model, 1);
  const Saved late = owner->forward({TensorView(x, {1, 4})}).second;
  owner.reset();
  CHECK(message(context, late) == "the saved tensors belong to another context");
  aotpack_saved_release(nullptr);
  CHECK(aotpack_saved_nbytes(nullptr) == 0);
}

TEST_CASE("a failed forward leaves nothing behind") {
  Context context(load(archive()), 1);
  const float x[5] = {};
  CHECK(message_of(error_of([&] { context.forward({TensorView(x, {1, 5})}); })).find("'x'") != std::string::npos);
  CHECK(message_of(error_of([&] { context.forward({}); })) != "");
}

TEST_CASE("tensors that share the memory of the state") {
  const Model model = load(archive());
  auto context = std::make_unique<Context>(model, 1);
  const float x[4] = {1, 1, 1, 1};
  const auto first = [&] { return context->run({TensorView(x, {1, 4})})[0].data<float>()[0]; };
  const NamedTensors before = context->state();
  NamedTensors shared = context->share_state();
  REQUIRE(shared.size() == 1);
  CHECK(shared[0].first == "w");
  float* w = const_cast<float*>(shared[0].second.data<float>());
  w[0] = 7;
  CHECK(first() == 7);
  CHECK(context->state()[0].second.data<float>()[0] == 7);
  CHECK(aotpack_context_state_generation(nullptr) == 0);
  context->reset();
  CHECK(w[0] == 1);
  CHECK(first() == 1);
  w[0] = 9;
  context->load_state(views_of(before));
  CHECK(w[0] == 1);
  const TempFile file;
  w[1] = 5;
  context->save_state_file(file.path());
  w[1] = 6;
  context->load_state_file(file.path());
  CHECK(w[1] == 5);
  CHECK(context->share_state()[0].second.data<float>() == w);
  context.reset();
  CHECK(w[1] == 5);
}
