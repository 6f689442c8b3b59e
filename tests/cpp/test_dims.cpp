// The values of dims: multiples, computed sizes, numbers; and sizes of outputs that follow from them.
#include <doctest/doctest.h>

#include <cstring>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Shape;
using aotpack::TensorView;

namespace {

int64_t data[1 << 12];

TensorView tensor(Shape shape) { return TensorView(data, std::move(shape)); }

Json code(std::vector<Json> items) { return Json::array(std::move(items)); }

}  // namespace

TEST_CASE("multiples") {
  Context context = checker({dim("batch", 8, 64, 8)},
                            {value("x", "int64", {size("batch")}), value("y", "int64", {size("batch", 1, 1)})});
  CHECK(context.run({tensor({16}), tensor({17})}).size() == 1);
  CHECK(refusal(context, {tensor({12}), tensor({13})}) == "input 'x': dim 0 ('batch') must be a multiple of 8, got 12");
  CHECK(refusal(context, {tensor({72}), tensor({73})}) == "input 'x': dim 0 ('batch') must be in [8, 64], got 72");
  CHECK(refusal(context, {tensor({0}), tensor({1})}) == "input 'x': dim 0 ('batch') must be in [8, 64], got 0");
  Context solved = checker({dim("n", 0, Json(), 4)}, {value("x", "int64", {size("n", 2, 1)}), value("y", "int64", {})});
  CHECK(solved.run({tensor({17}), tensor({})}).size() == 1);
  CHECK(solved.run({tensor({1}), tensor({})}).size() == 1);
  CHECK(refusal(solved, {tensor({13}), tensor({})}) ==
        "input 'x': dim 0 is 2*n + 1 = 13, so 'n' is 6, but it must be a multiple of 4");

  const aotpack_dim_info& info = *context.model().input(0).dims[0];
  CHECK(info.multiple_of == 8);
  CHECK(info.expression == nullptr);
  CHECK(context.model().input(1).dims[0]->multiple_of == 8);
}

TEST_CASE("sizes by code") {
  const Json product = expression("batch*length", code({"$batch", "$length", "*"}));
  Context context =
      trio({dim("batch", 1, 64), dim("length", 0, 64)},
           {value("x", "int64", {size("batch"), size("length")}), value("z", "int64", {product}), number("n", "int")},
           expression("u0", Json()));
  const int64_t n = 1;
  const auto inputs = [&](int64_t batch, int64_t length, int64_t z) {
    return std::vector<TensorView>{tensor({batch, length}), tensor({z}), TensorView(&n, {})};
  };
  CHECK(context.run(inputs(3, 4, 12)).size() == 1);
  CHECK(context.run(inputs(3, 0, 0)).size() == 1);
  CHECK(refusal(context, inputs(3, 4, 13)) ==
        "input 'z': dim 0 must be batch*length = 12, got 13 ('batch' = 3 by input 'x', 'length' = 4 by input 'x')");
  const aotpack_dim_info& info = *context.model().input(1).dims[0];
  CHECK(std::string(info.name).empty());
  CHECK(info.size == -1);
  CHECK(std::string(info.expression) == "batch*length");
  CHECK(info.multiple_of == 1);
  CHECK(context.model().input(0).dims[0]->expression == nullptr);
  CHECK(std::string(context.model().output(0).dims[0]->expression) == "u0");
}

TEST_CASE("sizes by code that are none") {
  const auto with = [](Json size) {
    return checker({dim("n", 0, Json())},
                   {value("x", "int64", {::aotpack::tests::size("n")}), value("y", "int64", {size})});
  };
  Context quotient = with(expression("12//n", code({12, "$n", "//"})));
  CHECK(quotient.run({tensor({4}), tensor({3})}).size() == 1);
  CHECK(refusal(quotient, {tensor({0}), tensor({3})}) ==
        "input 'y': dim 0 is 12//n, which cannot be evaluated for 'n' = 0 by input 'x'");
  Context difference = with(expression("n - 5", code({"$n", 5, "-"})));
  CHECK(difference.run({tensor({5}), tensor({0})}).size() == 1);
  CHECK(refusal(difference, {tensor({4}), tensor({-1})}) ==
        "input 'y': dim 0 is n - 5 = -1, which is not a valid size ('n' = 4 by input 'x')");
  Context affine = with(size("n", 2, -5));
  CHECK(affine.run({tensor({4}), tensor({3})}).size() == 1);
  CHECK(refusal(affine, {tensor({2}), tensor({-1})}) ==
        "input 'y': dim 0 is 2*n - 5 = -1, which is not a valid size ('n' = 2 by input 'x')");
  // Negative sizes do not pass as what they are said to be.
  CHECK(refusal(affine, {tensor({-2}), tensor({-9})}) == "input 'x': dim 0 ('n') must be at least 0, got -2");
  Context constant = with(expression("2**3", code({2, 3, "**"})));
  CHECK(constant.run({tensor({4}), tensor({8})}).size() == 1);
  CHECK(refusal(constant, {tensor({4}), tensor({7})}) == "input 'y': dim 0 must be 2**3 = 8, got 7");
}

TEST_CASE("an int gives a dim") {
  Context context =
      trio({dim("count", -2, 10)}, {value("x", "int64", {2}), value("y", "int64", {2}), number("n", "int", "count")},
           expression("max(count, 0)", code({"$count", 0, "max"})));
  const auto inputs = [&](const int64_t& n) {
    return std::vector<TensorView>{tensor({2}), tensor({2}), TensorView(&n, {})};
  };
  const auto run = [&](int64_t n) { return context.run(inputs(n))[0].numel(); };
  CHECK(run(10) == 10);
  CHECK(run(0) == 0);
  const auto refused = [&](int64_t n) { return refusal(context, inputs(n)); };
  CHECK(refused(11) == "input 'n' ('count') must be in [-2, 10], got 11");
  CHECK(refused(-3) == "input 'n' ('count') must be in [-2, 10], got -3");
  CHECK(refused(INT64_MIN) == "input 'n' ('count') must be in [-2, 10], got -9223372036854775808");
  CHECK(refusal(context, {tensor({2}), tensor({2}), TensorView(static_cast<int64_t*>(nullptr), {})}) ==
        "input 'n' has no data");
  CHECK(refusal(context, {tensor({2}), tensor({2}), tensor({1})}) == "input 'n': expected 0 dims [], got 1");
  // Misaligned.
  char bytes[12] = {};
  const int64_t five = 5;
  std::memcpy(bytes + 3, &five, sizeof five);
  const TensorView crooked(bytes + 3, aotpack::dtype_of<int64_t>(), {});
  CHECK(context.run({tensor({2}), tensor({2}), crooked})[0].numel() == 5);

  const aotpack_value_info& info = context.model().input(2);
  CHECK(info.number == AOTPACK_NUMBER_INT);
  CHECK(info.rank == 0);
  CHECK(context.model().input(0).number == AOTPACK_NUMBER_NONE);
}

TEST_CASE("an int named like its dim, by multiples; sizes that depend on it") {
  Context context = trio({dim("n", 4, 100, 4)},
                         {value("x", "int64", {expression("n//2", code({"$n", 2, "//"}))}), value("y", "int64", {}),
                          number("n", "int", "n")},
                         expression("n + 0", code({"$n"})));
  const auto inputs = [&](int64_t size, const int64_t& n) {
    return std::vector<TensorView>{tensor({size}), tensor({}), TensorView(&n, {})};
  };
  CHECK(context.run(inputs(4, 8))[0].numel() == 8);
  CHECK(refusal(context, inputs(4, 6)) == "input 'n' must be a multiple of 4, got 6");
  CHECK(refusal(context, inputs(4, 200)) == "input 'n' must be in [4, 100], got 200");
  CHECK(refusal(context, inputs(3, 8)) == "input 'x': dim 0 must be n//2 = 4, got 3 ('n' = 8 by input 'n')");
}

TEST_CASE("an int that gives a dim which a size has given must agree") {
  for (const bool plain : {true, false}) {
    CAPTURE(plain);
    Context context = trio(
        {dim("k", -3, 9)},
        {value("x", "int64", {plain ? size("k") : size("k", 2)}), value("y", "int64", {}), number("n", "int", "k")},
        size("k"));
    const int64_t length = plain ? 4 : 8;
    const int64_t four = 4, five = 5;
    CHECK(context.run({tensor({length}), tensor({}), TensorView(&four, {})})[0].numel() == 4);
    CHECK(refusal(context, {tensor({length}), tensor({}), TensorView(&five, {})}) ==
          "input 'n' is 'k' = 4 by input 'x', got 5");
    // Sizes are not negative, whatever the range of the dim is.
    CHECK(refusal(context, {tensor({-2}), tensor({}), TensorView(&five, {})}) ==
          (plain ? "input 'x': dim 0 ('k') must be in [0, 9], got -2"
                 : "input 'x': dim 0 must be 2*k with a whole 'k', got -2"));
  }
}

TEST_CASE("two ints of one dim must agree") {
  Context context = checker({dim("k", 0, 9)}, {number("a", "int", "k"), number("b", "int", "k")});
  const int64_t four = 4, five = 5;
  CHECK(context.run({TensorView(&four, {}), TensorView(&four, {})}).size() == 1);
  CHECK(refusal(context, {TensorView(&four, {}), TensorView(&five, {})}) == "input 'b' is 'k' = 4 by input 'a', got 5");
}

TEST_CASE("floats and bools are tensors of rank 0; a result of one element is a number, too") {
  Context context = checker({}, {number("scale", "float"), number("flag", "bool")});
  const double scale = 0.5;
  const bool flag = true;
  CHECK(context.run({TensorView(&scale, {}), TensorView(&flag, {})}).size() == 1);
  CHECK(context.model().input(0).number == AOTPACK_NUMBER_FLOAT);
  CHECK(context.model().input(1).number == AOTPACK_NUMBER_BOOL);
  CHECK(refusal(context, {TensorView(&flag, {}), TensorView(&flag, {})}) ==
        "input 'scale': expected float64, got bool");

  Context one =
      trio({}, {value("x", "int64", {3}), value("y", "int64", {}), number("n", "int")}, expression("u0", Json()));
  const int64_t n = 1;
  const auto outputs = one.run({tensor({3}), tensor({}), TensorView(&n, {})});
  CHECK(outputs[0].item<int64_t>() == 3);
  CHECK_THROWS_AS(outputs[0].item<float>(), aotpack::Error);
  const int64_t two = 2;
  CHECK_THROWS_AS(one.run({tensor({3}), tensor({}), TensorView(&two, {})})[0].item<int64_t>(), aotpack::Error);
}

TEST_CASE("outputs have the sizes that their codes say, or the call fails") {
  Context context = trio({dim("a", 0, Json()), dim("b", 0, Json())},
                         {value("x", "int64", {size("a")}), value("y", "int64", {size("b")}), number("n", "int")},
                         expression("a//b", code({"$a", "$b", "//"})));
  const auto inputs = [&](int64_t a, int64_t b, const int64_t& n) {
    return std::vector<TensorView>{tensor({a}), tensor({b}), TensorView(&n, {})};
  };
  CHECK(context.run(inputs(7, 2, 3))[0].numel() == 3);
  const aotpack::Error error = error_of([&] { context.run(inputs(7, 2, 4)); });
  CHECK(error.code() == AOTPACK_INTERNAL);
  CHECK(message_of(error) ==
        "entry 'forward': the module returned an output 'output' that is not what the manifest says: int64 [a//b]");
  CHECK(refusal(context, inputs(7, 0, 3)) ==
        "output 'output': dim 0 is a//b, which cannot be evaluated for 'a' = 7 by input 'x', 'b' = 0 by input 'y'");
  int64_t out[3];
  context.run_into(inputs(7, 2, 3), {aotpack::MutableTensorView(out, {3})});
  CHECK(out[2] == 7);
  const aotpack::Error into =
      error_of([&] { context.run_into(inputs(7, 3, 2), {aotpack::MutableTensorView(out, {3})}); });
  CHECK(message_of(into) == "output 'output': dim 0 is a//b = 2 in this call, the buffer has 3");
}

TEST_CASE("an int that must be what dims give") {
  const std::pair<Json, std::string> formulas[] = {
      {Json::object({{"dim", "k"}, {"mul", 2}, {"add", -5}}), "2*k - 5"},
      {expression("k + k - 5", code({"$k", "$k", "+", 5, "-"})), "k + k - 5"}};
  for (const auto& [formula, text] : formulas) {
    Context context =
        trio({dim("k", 0, 9)}, {value("x", "int64", {size("k")}), value("y", "int64", {}), number("n", "int", formula)},
             expression("n", Json()));
    const auto inputs = [&](int64_t length, const int64_t& n) {
      return std::vector<TensorView>{tensor({length}), tensor({}), TensorView(&n, {})};
    };
    // The module's output has n elements, so n is not negative here.
    for (int64_t k = 3; k <= 9; ++k) CHECK(context.run(inputs(k, 2 * k - 5))[0].numel() == 2 * k - 5);
    for (const int64_t wrong : {int64_t{2}, int64_t{4}, INT64_MIN, INT64_MAX}) {
      CHECK(refusal(context, inputs(4, wrong)) ==
            "input 'n' must be " + text + " = 3 ('k' = 4 by input 'x'), got " + std::to_string(wrong));
    }
    CHECK(refusal(context, inputs(10, 15)) == "input 'x': dim 0 ('k') must be in [0, 9], got 10");
  }
  Context undefined = trio({dim("k", 0, 9)},
                           {value("x", "int64", {size("k")}), value("y", "int64", {}),
                            number("n", "int", expression("12//k", code({12, "$k", "//"})))},
                           expression("n", Json()));
  const int64_t n = 4;
  CHECK(undefined.run({tensor({3}), tensor({}), TensorView(&n, {})}).size() == 1);
  CHECK(refusal(undefined, {tensor({0}), tensor({}), TensorView(&n, {})}) ==
        "input 'n' must be 12//k, which cannot be evaluated for 'k' = 0 by input 'x'");
}
