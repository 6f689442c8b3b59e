// Whole calls.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>

#include "call/context.h"
#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

template <typename T>
std::vector<T> values(const Tensor& tensor) {
  return std::vector<T>(tensor.data<T>(), tensor.data<T>() + tensor.numel());
}

aotpack::runtime::Allocator& pool_of(Context& context) {
  return *reinterpret_cast<aotpack::runtime::Context*>(context.handle())->workspace().allocator();
}

}  // namespace

TEST_CASE("y = 2x + w") {
  const Model model = load(affine_archive());
  CHECK(model.entry_count() == 1);
  CHECK(model.entry_name(0) == "forward");
  CHECK(model.entry_target(0) == "x86-64");
  CHECK(model.find_entry("forward") == 0);
  Context context(model);
  const float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<Tensor> outputs = context.run({TensorView(x, {2, 4})}, "forward");
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].shape() == aotpack::Shape{2, 4});
  CHECK(outputs[0].strides() == aotpack::Shape{4, 1});
  CHECK(values<float>(outputs[0]) == std::vector<float>{1, 4, 7, 10, 9, 12, 15, 18});
  CHECK(reinterpret_cast<uintptr_t>(outputs[0].raw_data()) % 64 == 0);
  CHECK_THROWS_AS(outputs[0].data<double>(), aotpack::Error);
}

TEST_CASE("what a model tells about itself") {
  const Model model = load(affine_archive());
  REQUIRE(model.input_count() == 1);
  const aotpack_value_info& x = model.input(0);
  CHECK(std::string(x.name) == "x");
  CHECK(aotpack::same_dtype(x.dtype, aotpack::dtype_of<float>()));
  REQUIRE(x.rank == 2);
  CHECK(std::string(x.dims[0]->name) == "batch");
  CHECK(x.dims[0]->multiplier == 1);
  CHECK(x.dims[0]->offset == 0);
  CHECK(x.dims[0]->min == 1);
  CHECK(x.dims[0]->max == 64);
  CHECK(x.dims[1]->name == nullptr);
  CHECK(x.dims[1]->size == 4);
  CHECK(model.manifest().substr(0, 14) == "{\"constants\":[");
  CHECK_THROWS_AS(model.input(1), aotpack::Error);
  CHECK_THROWS_AS(model.entry_name(1), aotpack::Error);
  const aotpack::Error error = error_of([&] { model.find_entry("backward"); });
  CHECK(error.code() == AOTPACK_NOT_FOUND);
  CHECK(message_of(error) == "no entry 'backward'; the archive has: forward");

  const Model computed = load(layout_archive(true));
  const aotpack_dim_info& size = *computed.output(0).dims[0];
  CHECK(std::string(size.name).empty());
  CHECK(size.size == -1);
  CHECK(computed.input(0).dims[0]->max == INT64_MAX);
}

TEST_CASE("outputs outlive context and model") {
  std::optional<Context> context(load(affine_archive()));
  const float x[4] = {1, 2, 3, 4};
  std::vector<Tensor> first = context->run({TensorView(x, {1, 4})});
  std::vector<Tensor> second = context->run({TensorView(x, {1, 4})});
  first.clear();
  context.reset();
  CHECK(values<float>(second[0]) == std::vector<float>{3, 6, 9, 12});
  second[0].data<float>()[0] = 1;
}

TEST_CASE("a steady state takes no memory from the system, and gives all of it back") {
  Context context(load(affine_archive()));
  std::vector<float> x(64 * 4);
  std::vector<float> y(64 * 4);
  const TensorView input(x.data(), {64, 4});
  const TensorView transposed(x.data(), {64, 4}, {1, 64});
  const MutableTensorView output(y.data(), {64, 4});
  const auto calls = [&] {
    context.run({input});
    context.run({transposed});
    context.run_into({transposed}, {output});
  };
  calls();
  const uint64_t before = pool_of(context).statistics().system_allocs;
  for (int i = 0; i < 1000; ++i) calls();
  CHECK(pool_of(context).statistics().system_allocs == before);
  CHECK(pool_of(context).statistics().live_bytes == 0);
}

TEST_CASE("aliases: constants and inputs are copied, shared blocks counted, views made dense") {
  Context context(load(alias_archive()));
  float x[4] = {1, 2, 3, 4};
  std::vector<Tensor> outputs = context.run({TensorView(x, {4})});
  CHECK(values<float>(outputs[0]) == std::vector<float>{10, 20, 30, 40});
  CHECK(values<float>(outputs[1]) == std::vector<float>{1, 2, 3, 4});
  CHECK(values<float>(outputs[2]) == std::vector<float>{0, 1, 2, 3});
  CHECK(values<float>(outputs[3]) == std::vector<float>{4, 5, 6, 7});
  CHECK(outputs[4].strides() == aotpack::Shape{2, 1});
  CHECK(values<float>(outputs[4]) == std::vector<float>{0, 3, 1, 4, 2, 5});
  // Writing into outputs changes neither the weights nor the caller's input.
  outputs[0].data<float>()[0] = -1;
  outputs[1].data<float>()[0] = -1;
  CHECK(x[0] == 1);
  CHECK(values<float>(context.run({TensorView(x, {4})})[0]) == std::vector<float>{10, 20, 30, 40});
  // The shared block lives as long as any of its two outputs.
  outputs[2] = Tensor();
  CHECK(values<float>(outputs[3]) == std::vector<float>{4, 5, 6, 7});
  outputs.clear();
  CHECK(pool_of(context).statistics().live_bytes == 0);
}

TEST_CASE("run_into writes through any strides, also over the input itself") {
  Context context(load(affine_archive()));
  const float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  float y[8] = {};
  context.run_into({TensorView(x, {2, 4})}, {MutableTensorView(y, {2, 4}, {1, 2})});
  CHECK(std::vector<float>(y, y + 8) == std::vector<float>{1, 9, 4, 12, 7, 15, 10, 18});
  float mirrored[8] = {};
  context.run_into({TensorView(x, {2, 4})}, {MutableTensorView(mirrored + 7, {2, 4}, {-4, -1})});
  CHECK(std::vector<float>(mirrored, mirrored + 8) == std::vector<float>{18, 15, 12, 9, 10, 7, 4, 1});
  float both[4] = {1, 1, 1, 1};
  context.run_into({TensorView(both, {1, 4})}, {MutableTensorView(both, {1, 4})});
  CHECK(std::vector<float>(both, both + 4) == std::vector<float>{3, 4, 5, 6});

  // Outputs that alias an input, while other outputs are written over that input.
  Context alias(load(alias_archive()));
  float a[4] = {1, 2, 3, 4};
  float b[4], d[4], e[6];
  alias.run_into({TensorView(a, {4})}, {MutableTensorView(a, {4}), MutableTensorView(b, {4}), MutableTensorView(d, {4}),
                                        MutableTensorView(d, {4}), MutableTensorView(e, {3, 2})});
  CHECK(std::vector<float>(a, a + 4) == std::vector<float>{10, 20, 30, 40});
  CHECK(std::vector<float>(b, b + 4) == std::vector<float>{1, 2, 3, 4});
  CHECK(pool_of(alias).statistics().live_bytes == 0);
}

TEST_CASE("run_into checks the buffers") {
  Context context(load(affine_archive()));
  const float x[8] = {};
  float y[16] = {};
  const auto refusal = [&](const std::vector<MutableTensorView>& outputs) {
    const aotpack::Error error = error_of([&] { context.run_into({TensorView(x, {2, 4})}, outputs); });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    return message_of(error);
  };
  CHECK(refusal({}) == "entry 'forward' has 1 outputs, room was given for 0");
  CHECK(refusal({MutableTensorView(y, {3, 4})}) ==
        "output 'output': dim 0 is batch = 2 in this call, the buffer has 3");
  CHECK(refusal({MutableTensorView(y, {2, 5})}) == "output 'output': dim 1 must be 4, got 5");
  CHECK(refusal({MutableTensorView(y, {8})}) == "output 'output': expected 2 dims [batch, 4], got 1");
  CHECK(refusal({MutableTensorView(y, aotpack::dtype_of<double>(), {2, 4})}) ==
        "output 'output': expected float32, got float64");
  CHECK(refusal({MutableTensorView(y, {2, 4}, {0, 1})}) == "output 'output': the strides of its buffer overlap");
  CHECK(refusal({MutableTensorView(y, {2, 4}, {2, 1})}) == "output 'output': the strides of its buffer overlap");
  CHECK(refusal({MutableTensorView(static_cast<float*>(nullptr), {2, 4})}) == "output 'output' has no data");
  CHECK(std::vector<float>(y, y + 16) == std::vector<float>(16, 0.0f));
  CHECK(pool_of(context).statistics().live_bytes == 0);
}

TEST_CASE("mutation: inputs reach the caller's buffer, constants stay within the context") {
  const Model model = load(mutate_archive());
  Context first(model, 3);
  Context second(model, 1);
  CHECK(model.input(0).mutated);
  float x[4] = {1, 2, 3, 4};
  CHECK(values<int64_t>(first.run({MutableTensorView(x, {4})})[0]) == std::vector<int64_t>{101, 3});
  CHECK(std::vector<float>(x, x + 4) == std::vector<float>{2, 3, 4, 5});
  CHECK(values<int64_t>(first.run({MutableTensorView(x, {4})})[0])[0] == 102);
  CHECK(values<int64_t>(second.run({MutableTensorView(x, {4})})[0]) == std::vector<int64_t>{101, 1});
  // Through a copy: strided, then misaligned.
  float spread[8] = {1, -1, 2, -1, 3, -1, 4, -1};
  first.run({MutableTensorView(spread, {4}, {2})});
  CHECK(std::vector<float>(spread, spread + 8) == std::vector<float>{2, -1, 3, -1, 4, -1, 5, -1});
  char bytes[17] = {};
  int64_t count = 0;
  first.run_into({MutableTensorView(bytes + 1, aotpack::dtype_of<float>(), {4})},
                 {MutableTensorView(std::vector<int64_t>(2).data(), {2})});
  (void)count;
  float read[4];
  std::memcpy(read, bytes + 1, 16);
  CHECK(std::vector<float>(read, read + 4) == std::vector<float>{1, 1, 1, 1});
  float one = 1;
  const aotpack::Error error = error_of([&] { first.run({MutableTensorView(&one, {4}, {0})}); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(message_of(error) == "input 'x' is written to, but its strides overlap");
}

TEST_CASE("views: memory that is only read is never written to") {
  static_assert(std::is_constructible_v<TensorView, const float*, aotpack::Shape>);
  static_assert(!std::is_constructible_v<MutableTensorView, const float*, aotpack::Shape>);
  static_assert(!std::is_constructible_v<MutableTensorView, const void*, DLDataType, aotpack::Shape>);
  static_assert(std::is_convertible_v<MutableTensorView, TensorView>);
  static_assert(!std::is_convertible_v<TensorView, MutableTensorView>);
  Context context(load(mutate_archive()));
  const float x[4] = {1, 2, 3, 4};
  int64_t result[2] = {};
  for (const bool into : {false, true}) {
    const aotpack::Error error = error_of([&] {
      if (into) {
        context.run_into({TensorView(x, {4})}, {MutableTensorView(result, {2})});
      } else {
        context.run({TensorView(x, {4})});
      }
    });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    CHECK(message_of(error) == "input 'x' is written to by the model: it must be a MutableTensorView");
  }
  CHECK(std::vector<float>(x, x + 4) == std::vector<float>{1, 2, 3, 4});
  // A copy of the base class still knows that its memory may be written to.
  float y[4] = {1, 2, 3, 4};
  const TensorView view = MutableTensorView(y, {4});
  context.run({view});
  CHECK(std::vector<float>(y, y + 4) == std::vector<float>{2, 3, 4, 5});
}

TEST_CASE("failures of a module come back as errors, and leave nothing behind") {
  Context context(load(failing_archive()));
  const auto failure = [&](int64_t mode) { return error_of([&] { context.run({TensorView(&mode, {})}); }); };
  CHECK(failure(0).code() == AOTPACK_EXECUTION_FAILED);
  CHECK(message_of(failure(0)) == "entry 'forward': index 50 is out of range [0, 10)");
  CHECK(failure(1).code() == AOTPACK_OUT_OF_MEMORY);
  CHECK(message_of(failure(1)) == "entry 'forward': out of memory");
  CHECK(failure(2).code() == AOTPACK_EXECUTION_FAILED);
  CHECK(message_of(failure(2)) == "entry 'forward': the module failed without giving a reason");
  CHECK(failure(3).code() == AOTPACK_INTERNAL);
  CHECK(failure(4).code() == AOTPACK_OUT_OF_MEMORY);
  CHECK(message_of(failure(5)) == "entry 'forward': first");
  CHECK(failure(6).code() == AOTPACK_INTERNAL);
  CHECK(message_of(failure(6)) ==
        "entry 'forward': the module returned an output 'output' that is not what the manifest says: float32 [2]");
  CHECK(pool_of(context).statistics().live_bytes == 0);
  const int64_t fine = 9;
  CHECK(values<float>(context.run({TensorView(&fine, {})})[0]) == std::vector<float>{1, 2});
}

TEST_CASE("seeds: calls differ, a seed makes them repeat") {
  const Model model = load(seed_archive());
  Context context(model);
  const auto draw = [&] { return values<int64_t>(context.run({})[0]); };
  const auto first = draw();
  CHECK(first[0] != first[1]);
  CHECK(draw() != first);
  context.set_seed(42);
  const auto a = draw();
  const auto b = draw();
  CHECK(a != b);
  context.set_seed(42);
  CHECK(draw() == a);
  CHECK(draw() == b);
  context.set_seed(43);
  CHECK(draw() != a);
  Context other(model);
  CHECK(values<int64_t>(other.run({})[0]) != first);
}

TEST_CASE("threads are a property of the context") {
  const Model model = load(affine_archive());
  Context context(model);
  CHECK(context.num_threads() >= 1);
  context.set_num_threads(5);
  CHECK(context.num_threads() == 5);
  context.set_num_threads(0);
  CHECK(context.num_threads() >= 1);
  CHECK(error_of([&] { context.set_num_threads(-1); }).code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(message_of(error_of([&] { Context(model, 5000); })) == "num_threads must be in [0, 4096], got 5000");
}

TEST_CASE("entries: several in one archive, with their own modules") {
  ArchiveWriter writer = affine_archive();
  writer.files.push_back({"modules/x86-64-v2/again", read_bytes(MODULE_affine_v2)});
  Json again = writer.manifest["entries"][0];
  again["name"] = "again";
  again["variants"][0]["targets"] = targets({module(3, {0}, {"alloc", "free"}, "x86-64-v2")});
  Json same = writer.manifest["entries"][0];
  same["name"] = "same";  // shares the module's file
  writer.manifest["entries"].push(again);
  writer.manifest["entries"].push(same);
  const Model model = load(writer);
  CHECK(model.entry_count() == 3);
  Context context(model);
  const float x[4] = {1, 1, 1, 1};
  CHECK(context.run({TensorView(x, {1, 4})}, "forward")[0].data<float>()[0] == 3);
  CHECK(context.run({TensorView(x, {1, 4})}, "again")[0].data<float>()[0] == 4);
  CHECK(context.run({TensorView(x, {1, 4})}, "same")[0].data<float>()[0] == 3);
  CHECK(model.entry_target(1) == "x86-64-v2");
}
