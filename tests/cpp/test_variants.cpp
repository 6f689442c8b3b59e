// Which variant of an entry a call takes, and what is said when none fits.
#include <doctest/doctest.h>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::TensorView;

namespace {

// The variants of affine_archive(): `plain` computes 2x + w, `other` 3x + w.
struct Modules {
  Json plain = module(1, {0}, {"alloc", "free"});
  Json other = module(3, {0}, {"alloc", "free"}, "x86-64-v2");
};

ArchiveWriter with_variants(std::vector<Json> variants) {
  ArchiveWriter writer = affine_archive();
  writer.files.push_back({"modules/x86-64-v2/one", read_bytes(MODULE_affine_v2)});
  writer.manifest["entries"][0]["variants"] = Json::array(std::move(variants));
  return writer;
}

// The first element of the result for x of ones: 3 by the plain module, 4 by the other.
float first(Context& context, int64_t batch) {
  static const std::vector<float> x(64 * 4, 1.0f);
  return context.run({TensorView(x.data(), {batch, 4})})[0].data<float>()[0];
}

std::string refused(Context& context, int64_t batch) {
  static const std::vector<float> x(64 * 4, 1.0f);
  return refusal(context, {TensorView(x.data(), {batch, 4})});
}

// batch % n == 0
Json divides(int64_t n) {
  return check("batch % " + std::to_string(n) + " == 0", Json::array({"$batch", n, "%", 0, "=="}));
}

}  // namespace

TEST_CASE("variants: the first whose guards hold; none names each one's guard") {
  ArchiveWriter writer = affine_archive();
  writer.files.push_back({"modules/x86-64-v2/one", read_bytes(MODULE_affine_v2)});
  Json& variants = writer.manifest["entries"][0]["variants"];
  variants = Json::array({variant("one", {guard("batch", 1, 1)}, {module(3, {0}, {"alloc", "free"}, "x86-64-v2")}),
                          variant("some", {guard("batch", 1, 8)}, {module(1, {0}, {"alloc", "free"})}),
                          variant("many", {guard("batch", 32, Json())}, {module(1, {0}, {"alloc", "free"})})});
  Context context = context_of(writer);
  CHECK(context.model().entry_target(0) == "x86-64-v2, x86-64");
  CHECK(context.model().variant_target(0) == "x86-64-v2");
  CHECK(context.model().variant_target(1) == "x86-64");
  CHECK(context.model().variant_target(2) == "x86-64");
  std::vector<float> x(64 * 4, 1.0f);
  const auto first = [&](int64_t batch) { return context.run({TensorView(x.data(), {batch, 4})})[0].data<float>()[0]; };
  CHECK(first(1) == 4);
  CHECK(first(2) == 3);
  CHECK(first(8) == 3);
  CHECK(first(64) == 3);
  CHECK(refusal(context, {TensorView(x.data(), {9, 4})}) ==
        "no variant of entry 'forward' matches: 'one' needs 'batch' = 1, got 'batch' = 9 by input 'x'; 'some' needs "
        "'batch' "
        "in [1, 8], got 'batch' = 9 by input 'x'; 'many' needs 'batch' >= 32, got 'batch' = 9 by input 'x'");
}

TEST_CASE("variants: the order decides where several fit, and the context tells which one it was") {
  const Modules modules;
  const Json one = variant("batch=1", {guard("batch", 1, 1)}, {modules.other});
  const Json eights = variant("batch%8", {guard("batch", 8, Json(), 8)}, {modules.other});
  const Json general = variant("general", {}, {modules.plain});
  Context context = context_of(with_variants({one, eights, general}));
  CHECK(context.model().variants() == std::vector<std::string_view>{"batch=1", "batch%8", "general"});
  CHECK(context.variant().empty());
  CHECK(context.variant("forward").empty());
  CHECK(first(context, 1) == 4);
  CHECK(context.variant() == "batch=1");
  CHECK(first(context, 4) == 3);
  CHECK(context.variant() == "general");
  CHECK(first(context, 16) == 4);
  CHECK(context.variant() == "batch%8");
  CHECK(first(context, 20) == 3);
  CHECK(context.variant("forward") == "general");
  // A call that is refused takes none.
  refused(context, 65);
  CHECK(context.variant() == "general");
  // Each context has its own.
  Context second(context.model());
  CHECK(second.variant().empty());

  Context reversed = context_of(with_variants({general, one, eights}));
  CHECK(first(reversed, 1) == 3);
  CHECK(reversed.variant() == "general");
}

TEST_CASE("variants: through the C interface") {
  Context context = context_of(with_variants({variant("general", {}, {Modules().plain})}));
  const aotpack_model* model = context.model().handle();
  CHECK(aotpack_model_variant_count(model, 0) == 1);
  CHECK(aotpack_model_variant_count(model, 1) == 0);
  CHECK(aotpack_model_variant_count(nullptr, 0) == 0);
  CHECK(std::string(aotpack_model_variant_name(model, 0, 0)) == "general");
  CHECK(aotpack_model_variant_name(model, 0, 1) == nullptr);
  CHECK(aotpack_model_variant_name(model, 1, 0) == nullptr);
  CHECK(aotpack_context_variant(nullptr, 0) == nullptr);
  CHECK(aotpack_context_variant(context.handle(), 0) == nullptr);
  CHECK(aotpack_context_variant(context.handle(), 1) == nullptr);
  first(context, 1);
  CHECK(std::string(aotpack_context_variant(context.handle(), 0)) == "general");
}

TEST_CASE("the only variant: its guards and checks are the call's") {
  const Modules modules;
  Context bounded = context_of(with_variants({variant("small", {guard("batch", 2, 8, 2)}, {modules.plain})}));
  CHECK(first(bounded, 8) == 3);
  CHECK(refused(bounded, 10) ==
        "the call must satisfy 'batch' a multiple of 2 in [2, 8], got 'batch' = 10 by input 'x'");
  CHECK(refused(bounded, 3) == "the call must satisfy 'batch' a multiple of 2 in [2, 8], got 'batch' = 3 by input 'x'");

  Context checked = context_of(with_variants({variant("default", {}, {modules.plain}, {divides(2), divides(3)})}));
  CHECK(first(checked, 12) == 3);
  CHECK(refused(checked, 9) == "the call must satisfy batch % 2 == 0, got 'batch' = 9 by input 'x'");
  CHECK(refused(checked, 4) == "the call must satisfy batch % 3 == 0, got 'batch' = 4 by input 'x'");
}

TEST_CASE("checks: of several variants, and where they cannot be evaluated") {
  const Modules modules;
  Context context = context_of(with_variants({
      variant("threes", {}, {modules.other}, {divides(3)}),
      variant("fives", {guard("batch", 10, Json())}, {modules.plain}, {divides(5)}),
  }));
  CHECK(first(context, 9) == 4);
  CHECK(first(context, 15) == 4);
  CHECK(first(context, 10) == 3);
  CHECK(refused(context, 5) ==
        "no variant of entry 'forward' matches: 'threes' needs batch % 3 == 0, got 'batch' = 5 by input 'x'; 'fives' "
        "needs "
        "'batch' >= 10, got 'batch' = 5 by input 'x'");
  CHECK(refused(context, 11) ==
        "no variant of entry 'forward' matches: 'threes' needs batch % 3 == 0, got 'batch' = 11 by input 'x'; 'fives' "
        "needs batch % 5 == 0, got 'batch' = 11 by input 'x'");

  // 60 // (batch - 4) > 1: not defined at 4.
  const Json quotient = check("60 // (batch - 4) > 1", Json::array({1, 60, "$batch", 4, "-", "//", "<"}));
  Context alone = context_of(with_variants({variant("default", {}, {modules.plain}, {quotient})}));
  CHECK(first(alone, 5) == 3);
  CHECK(refused(alone, 4) ==
        "the call must satisfy 60 // (batch - 4) > 1, which cannot be evaluated for 'batch' = 4 by input 'x'");
  // What cannot be evaluated does not hold: the next variant may.
  Context guarded = context_of(
      with_variants({variant("some", {}, {modules.other}, {quotient}), variant("general", {}, {modules.plain})}));
  CHECK(first(guarded, 5) == 4);
  CHECK(first(guarded, 4) == 3);

  Context never = context_of(
      with_variants({variant("default", {}, {modules.plain}, {check("1 == 2", Json::array({1, 2, "=="}))})}));
  CHECK(refused(never, 4) == "the call must satisfy 1 == 2, which is never true");
}

TEST_CASE("variants: inputs that are one tensor are in one place, also where they are copied") {
  for (const bool first_is_written : {true, false}) {
    CAPTURE(first_is_written);
    ArchiveWriter writer;
    writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_same)}};
    Json same = variant("x is y", {}, {module(0, {}, {"alloc"})});
    same["same"] = Json::array({Json::array({0, 1})});
    // The module writes to its first input and returns the second.
    writer.manifest = manifest(
        {},
        {entry("forward", {},
               {value("x", "float32", {4}, {}, first_is_written), value("y", "float32", {4}, {}, !first_is_written)},
               {value("output", "float32", {4})}, {variant("general", {}, {module(0, {}, {"alloc"})}), same})});
    Context context = context_of(writer);
    std::vector<float> data = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const auto run = [&](const TensorView& x, const TensorView& y) {
      const auto outputs = context.run({x, y});
      return std::vector<float>(outputs[0].data<float>(), outputs[0].data<float>() + 4);
    };
    const MutableTensorView dense(data.data(), {4});
    CHECK(run(dense, dense) == std::vector<float>{2, 3, 4, 5});
    CHECK(context.variant() == "x is y");
    CHECK(data == std::vector<float>{2, 3, 4, 5, 5, 6, 7, 8, 9});
    const MutableTensorView strided(data.data(), {4}, {2});
    CHECK(run(strided, strided) == std::vector<float>{3, 5, 6, 8});
    CHECK(data == std::vector<float>{3, 3, 5, 5, 6, 6, 8, 8, 9});
    // The general variant, before it in the order, is for other inputs alone.
    float other[4] = {10, 20, 30, 40};
    if (first_is_written) {
      CHECK(run(dense, MutableTensorView(other, {4})) == std::vector<float>{10, 20, 30, 40});
      CHECK(context.variant() == "general");
    }
    const std::string written = first_is_written ? "x" : "y";
    const std::string shared =
        "inputs 'x' and 'y' share memory, but the call writes to '" + written + "'; variant 'x is y' ";
    CHECK(refusal(context, {dense, strided}) == shared + "needs 'x' is 'y', got tensors with different strides");
    CHECK(refusal(context, {dense, MutableTensorView(data.data() + 1, {4})}) ==
          shared + "needs 'x' is 'y', got tensors with different addresses");
  }
  // The only variant: its condition is that of every call.
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_same)}};
  Json only = variant("x is y", {}, {module(0, {}, {"alloc"})});
  only["same"] = Json::array({Json::array({0, 1})});
  writer.manifest =
      manifest({}, {entry("forward", {}, {value("x", "float32", {4}, {}, true), value("y", "float32", {4})},
                          {value("output", "float32", {4})}, {only})});
  Context context = context_of(writer);
  float one[4] = {}, other[4] = {};
  CHECK(refusal(context, {MutableTensorView(one, {4}), TensorView(other, {4})}) ==
        "the call must satisfy 'x' is 'y', got tensors with different addresses");
}
