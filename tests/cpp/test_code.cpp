// Codes: every operator, what is malformed, what is not defined.
#include <doctest/doctest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "shape/code.h"

using namespace aotpack::runtime;

namespace {

// A string is an operator, "$i" dim i.
using Item = std::variant<int64_t, double, bool, std::string>;
Item whole(int64_t value) { return value; }

// "" when the code is right.
std::string build(const std::vector<Item>& items, CodeType wanted, Code* out) {
  CodeBuilder builder;
  for (const Item& item : items) {
    const char* problem = nullptr;
    if (const auto* text = std::get_if<std::string>(&item)) {
      problem = text->front() == '$' ? builder.push_dim(static_cast<uint32_t>(std::stoul(text->substr(1))))
                                     : builder.apply(*text);
    } else {
      problem = std::holds_alternative<int64_t>(item)  ? builder.push(std::get<int64_t>(item))
                : std::holds_alternative<double>(item) ? builder.push(std::get<double>(item))
                                                       : builder.push(std::get<bool>(item));
    }
    if (problem != nullptr) return problem;
  }
  const char* problem = builder.finish(wanted, out);
  return problem != nullptr ? problem : "";
}

std::string problem_of(const std::vector<Item>& items, CodeType wanted = CodeType::kInt) {
  Code code;
  return build(items, wanted, &code);
}

std::optional<CodeValue> run(const std::vector<Item>& items, CodeType wanted, const std::vector<int64_t>& dims) {
  Code code;
  REQUIRE(build(items, wanted, &code) == "");
  REQUIRE(code.type() == wanted);
  CodeValue value;
  if (!code.evaluate(dims.data(), &value)) return std::nullopt;
  return value;
}

std::optional<int64_t> integer(const std::vector<Item>& items, const std::vector<int64_t>& dims = {}) {
  const auto value = run(items, CodeType::kInt, dims);
  return value ? std::optional(value->integer) : std::nullopt;
}

std::optional<bool> truth(const std::vector<Item>& items, const std::vector<int64_t>& dims = {}) {
  const auto value = run(items, CodeType::kBool, dims);
  return value ? std::optional(value->truth) : std::nullopt;
}

double number(std::vector<Item> items) {
  const auto value = run(items, CodeType::kFloat, {});
  REQUIRE(value);
  return value->number;
}

std::optional<int64_t> binary(int64_t a, int64_t b, const char* op) {
  // Both as constants and as dims.
  const auto by_dims = integer({"$1", "$0", op}, {b, a});
  CHECK(integer({whole(a), whole(b), op}) == by_dims);
  return by_dims;
}

constexpr int64_t kMax = INT64_MAX;
constexpr int64_t kMin = INT64_MIN;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

}  // namespace

TEST_CASE("codes: arithmetic of ints, as Python has it") {
  for (const int64_t a : {-7, -6, -1, 0, 1, 6, 7}) {
    for (const int64_t b : {-3, -2, -1, 1, 2, 3}) {
      CAPTURE(a);
      CAPTURE(b);
      const auto quotient = static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      CHECK(binary(a, b, "+") == a + b);
      CHECK(binary(a, b, "-") == a - b);
      CHECK(binary(a, b, "*") == a * b);
      CHECK(binary(a, b, "//") == quotient);
      CHECK(binary(a, b, "%") == a - quotient * b);
      CHECK(binary(a, b, "min") == (a < b ? a : b));
      CHECK(binary(a, b, "max") == (a < b ? b : a));
      CHECK(integer({whole(a), "neg"}) == -a);
      CHECK(integer({whole(a), "abs"}) == (a < 0 ? -a : a));
    }
  }
  CHECK(binary(-2, 5, "**") == -32);
  CHECK(binary(0, 0, "**") == 1);
  CHECK(binary(3, 39, "**") == 4052555153018976267);
  CHECK(binary(-2, 63, "**") == kMin);
  CHECK(binary(-1, kMax, "**") == -1);
  CHECK(binary(1, kMax, "**") == 1);
  CHECK(binary(0, kMax, "**") == 0);
}

TEST_CASE("codes: random arithmetic agrees with 128 bits") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    const auto draw = [&] { return static_cast<int64_t>(random()) >> random() % 64; };
    const int64_t a = draw();
    const int64_t b = draw();
    __extension__ using Wide = __int128;
    const auto expect = [&](const char* op, Wide exact) {
      const bool fits = exact >= kMin && exact <= kMax;
      const auto got = integer({"$0", "$1", op}, {a, b});
      REQUIRE(got.has_value() == fits);
      if (fits) REQUIRE(*got == static_cast<int64_t>(exact));
    };
    expect("+", Wide{a} + b);
    expect("-", Wide{a} - b);
    expect("*", Wide{a} * b);
    if (b == 0) continue;
    Wide quotient = Wide{a} / b;
    if (quotient * b != a && (a < 0) != (b < 0)) --quotient;
    expect("//", quotient);
    expect("%", Wide{a} - quotient * b);
  }
}

TEST_CASE("codes: what is not defined for ints") {
  const auto undefined = [](int64_t a, int64_t b, const char* op) { return !binary(a, b, op).has_value(); };
  CHECK(undefined(kMax, 1, "+"));
  CHECK(undefined(kMin, 1, "-"));
  CHECK(undefined(kMax, 2, "*"));
  CHECK(undefined(kMin, -1, "*"));
  CHECK(undefined(1, 0, "//"));
  CHECK(undefined(1, 0, "%"));
  CHECK(undefined(kMin, -1, "//"));
  CHECK(binary(kMin, -1, "%") == 0);
  CHECK(undefined(2, -1, "**"));
  CHECK(undefined(2, 63, "**"));
  CHECK(undefined(2, kMax, "**"));
  CHECK(undefined(kMin, 2, "**"));
  CHECK(binary(kMin, 1, "**") == kMin);
  CHECK(!integer({whole(kMin), "neg"}));
  CHECK(!integer({whole(kMin), "abs"}));
  // Anywhere in a code, also where the value is dropped.
  CHECK(!integer({true, whole(1), whole(1), whole(0), "//", "select"}));
}

TEST_CASE("codes: floats") {
  CHECK(number({1.5, 2.25, "+"}) == 3.75);
  CHECK(number({1.5, 2.25, "-"}) == -0.75);
  CHECK(number({1.5, 2.0, "*"}) == 3.0);
  CHECK(number({1.0, 3.0, "/"}) == 1.0 / 3.0);
  CHECK(number({-1.0, 0.0, "/"}) == -kInf);
  CHECK(std::isnan(number({0.0, 0.0, "/"})));
  CHECK(number({1.5, -2.0, "min"}) == -2.0);
  CHECK(number({1.5, -2.0, "max"}) == 1.5);
  CHECK(number({2.0, 0.5, "pow"}) == std::pow(2.0, 0.5));
  CHECK(number({1.5, "neg"}) == -1.5);
  CHECK(number({-1.5, "abs"}) == 1.5);
  CHECK(number({2.0, "sqrt"}) == std::sqrt(2.0));
  CHECK(number({2.0, "exp"}) == std::exp(2.0));
  CHECK(number({2.0, "log"}) == std::log(2.0));
  CHECK(number({10.0, "log2"}) == std::log2(10.0));
  CHECK(number({0.5, "sin"}) == std::sin(0.5));
  CHECK(number({0.5, "cos"}) == std::cos(0.5));
  CHECK(number({0.5, "tan"}) == std::tan(0.5));
  CHECK(number({0.5, "asin"}) == std::asin(0.5));
  CHECK(number({0.5, "acos"}) == std::acos(0.5));
  CHECK(number({0.5, "atan"}) == std::atan(0.5));
  CHECK(number({0.5, "sinh"}) == std::sinh(0.5));
  CHECK(number({0.5, "cosh"}) == std::cosh(0.5));
  CHECK(number({0.5, "tanh"}) == std::tanh(0.5));
  CHECK(number({whole(-3), "float"}) == -3.0);
  CHECK(number({false, 1.0, 2.0, "select"}) == 2.0);
}

TEST_CASE("codes: ints out of floats") {
  const auto rounded = [](double value, const char* op) { return integer({value, op}); };
  CHECK(rounded(-2.5, "trunc") == -2);
  CHECK(rounded(-2.5, "floor") == -3);
  CHECK(rounded(-2.5, "ceil") == -2);
  CHECK(rounded(2.9, "trunc") == 2);
  CHECK(rounded(2.1, "ceil") == 3);
  const double halves[][2] = {{0.5, 0}, {1.5, 2}, {2.5, 2}, {-0.5, 0}, {-1.5, -2}, {-2.5, -2}, {2.4, 2}, {2.6, 3}};
  for (const auto& [value, expected] : halves) CHECK(rounded(value, "round") == static_cast<int64_t>(expected));
  CHECK(rounded(0.49999999999999994, "round") == 0);
  CHECK(rounded(-0.49999999999999994, "round") == 0);
  CHECK(rounded(4503599627370497.5, "round") == 4503599627370498);
  CHECK(rounded(-0x1p63, "floor") == kMin);
  for (const char* op : {"trunc", "floor", "ceil", "round"}) {
    CHECK(!rounded(0x1p63, op));
    CHECK(!rounded(-0x1.0000000000001p63, op));
    CHECK(!rounded(kInf, op));
    CHECK(!rounded(-kInf, op));
    CHECK(!rounded(kNan, op));
  }
}

TEST_CASE("codes: conditions") {
  for (const int64_t a : {-1, 0, 1}) {
    for (const int64_t b : {-1, 0, 1}) {
      const auto x = static_cast<double>(a);
      const auto y = static_cast<double>(b);
      CHECK(truth({whole(a), whole(b), "=="}) == (a == b));
      CHECK(truth({whole(a), whole(b), "!="}) == (a != b));
      CHECK(truth({whole(a), whole(b), "<"}) == (a < b));
      CHECK(truth({whole(a), whole(b), "<="}) == (a <= b));
      CHECK(truth({x, y, "=="}) == (a == b));
      CHECK(truth({x, y, "!="}) == (a != b));
      CHECK(truth({x, y, "<"}) == (a < b));
      CHECK(truth({x, y, "<="}) == (a <= b));
    }
  }
  CHECK(truth({kNan, kNan, "=="}) == false);
  CHECK(truth({kNan, kNan, "!="}) == true);
  CHECK(truth({kNan, 1.0, "<="}) == false);
  for (const bool a : {false, true}) {
    CHECK(truth({a, "not"}) == !a);
    for (const bool b : {false, true}) {
      CHECK(truth({a, b, "and"}) == (a && b));
      CHECK(truth({a, b, "or"}) == (a || b));
      CHECK(truth({a, b, "=="}) == (a == b));
      CHECK(truth({a, b, "!="}) == (a != b));
    }
    CHECK(integer({a, whole(1), whole(2), "select"}) == (a ? 1 : 2));
    CHECK(truth({a, false, true, "select"}) == !a);
  }
}

TEST_CASE("codes: a longer one, and the dims that it reads") {
  // max(a // 2, 3) * (b - a) + 1
  Code code;
  REQUIRE(build({"$2", whole(2), "//", whole(3), "max", "$0", "$2", "-", "*", whole(1), "+"}, CodeType::kInt, &code) ==
          "");
  CHECK(code.dims() == std::vector<uint32_t>{2, 0});
  const int64_t dims[3] = {20, -1, 10};
  CodeValue value;
  REQUIRE(code.evaluate(dims, &value));
  CHECK(value.integer == 51);
}

TEST_CASE("codes: what is malformed") {
  CHECK(problem_of({}) == "does not leave exactly one value");
  CHECK(problem_of({whole(1), whole(2)}) == "does not leave exactly one value");
  CHECK(problem_of({true}) == "does not leave an int");
  CHECK(problem_of({whole(1)}, CodeType::kBool) == "does not leave a bool");
  CHECK(problem_of({whole(1), "nought"}) == "unknown operator");
  CHECK(problem_of({whole(1), "+"}) == "the stack holds too few values for this operator");
  CHECK(problem_of({"neg"}) == "the stack holds too few values for this operator");
  CHECK(problem_of({true, whole(1), "select"}) == "the stack holds too few values for this operator");
  const char* types = "the operands are not of the types that this operator takes";
  CHECK(problem_of({whole(1), 2.0, "+"}) == types);
  CHECK(problem_of({1.0, whole(2), "+"}) == types);
  CHECK(problem_of({1.0, 2.0, "//"}) == types);
  CHECK(problem_of({1.0, 2.0, "**"}) == types);
  CHECK(problem_of({whole(1), whole(2), "/"}) == types);
  CHECK(problem_of({whole(1), whole(2), "pow"}) == types);
  CHECK(problem_of({whole(1), "sqrt"}) == types);
  CHECK(problem_of({1.0, "float"}) == types);
  CHECK(problem_of({whole(1), "floor"}) == types);
  CHECK(problem_of({whole(1), whole(2), "and"}) == types);
  CHECK(problem_of({true, false, "<"}) == types);
  CHECK(problem_of({true, false, "+"}) == types);
  CHECK(problem_of({whole(1), true, "=="}) == types);
  CHECK(problem_of({whole(1), "not"}) == types);
  CHECK(problem_of({whole(1), whole(2), whole(3), "select"}) == types);
  CHECK(problem_of({true, whole(2), 3.0, "select"}) == types);
}

TEST_CASE("codes: limits") {
  std::vector<Item> deep(32, whole(1));
  for (int i = 0; i < 31; ++i) deep.emplace_back("+");
  CHECK(integer(deep) == 32);
  deep.insert(deep.begin(), whole(1));
  CHECK(problem_of(deep) == "more than 32 values on the stack");
  std::vector<Item> wide = {whole(0)};
  while (wide.size() < 255) {
    wide.push_back(whole(1));
    wide.emplace_back("+");
  }
  wide.emplace_back("neg");
  CHECK(integer(wide) == -127);
  wide.emplace_back("neg");
  CHECK(problem_of(wide) == "more than 256 items");
}

TEST_CASE("codes: random ones have a value or none, for any dims") {
  std::mt19937_64 random(9);
  const char* const words[] = {"$batch", "$length", "$count", "+",    "-",     "*",     "//",    "%",
                               "**",     "min",     "max",    "neg",  "abs",   "/",     "pow",   "float",
                               "sqrt",   "log",     "exp",    "==",   "!=",    "<",     "<=",    "and",
                               "or",     "not",     "floor",  "ceil", "round", "trunc", "select"};
  const int64_t extremes[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2, 3, 63, 64, INT64_MAX};
  int right = 0, undefined = 0;
  for (int round = 0; round < 3000; ++round) {
    // Grown item by item; what is refused is left out, so that long ones come about.
    CodeBuilder builder;
    builder.push_dim(0);
    for (int step = 0; step < 28; ++step) {
      const char* word = words[random() % std::size(words)];
      const uint64_t kind = random() % 8;
      if (kind == 0) {
        builder.push(extremes[random() % std::size(extremes)]);
      } else if (kind == 1) {
        builder.push(static_cast<double>(static_cast<int64_t>(random())) / 1024);
      } else if (word[0] == '$') {
        builder.push_dim(static_cast<uint32_t>(random() % 3));
      } else {
        builder.apply(word);
      }
    }
    Code code;
    // Down to one int.
    for (int left = 0; left < 40 && builder.finish(CodeType::kInt, &code) != nullptr; ++left) {
      if (builder.apply("not") == nullptr) {
        builder.push(int64_t{3});
        builder.push(int64_t{-5});
        builder.apply("select");
      }
      builder.apply("trunc");
      if (builder.apply(random() % 2 == 0 ? "+" : "max") == nullptr) continue;
      // Below the int is a bool, or a float.
      builder.push(int64_t{7});
      if (builder.apply("select") == nullptr) continue;
      builder.apply("+");
      builder.apply("float");
      builder.apply("*");
    }
    if (code.dims().empty()) continue;
    ++right;
    for (int call = 0; call < 10; ++call) {
      int64_t dims[3];
      for (int64_t& dim : dims) dim = extremes[random() % std::size(extremes)];
      CodeValue value;
      undefined += !code.evaluate(dims, &value);
    }
  }
  CHECK(right > 300);
  CHECK(undefined > 300);
}
