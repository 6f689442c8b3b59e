#include <array>
#include <limits>

#include "conv_int8.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Shape {
  int64_t n, c, oc, groups;
  std::array<int64_t, 3> in, kernel, stride, padding, dilation;
  std::array<int64_t, 3> more{};  // padding behind, beyond that before
};

enum class Values { random, extreme };

// Scales that are powers of two make every step exact, and many sums ties.
struct Case {
  Shape shape;
  bool x_signed = false, weight_zeros = false, residual = false, round_first = false, residual_signed = false;
  Int8Result result = Int8Result::u8;
  Values values = Values::random;
  bool exact = true;
  int threads = 1;
  bool plain = false;
};

std::array<int64_t, 3> output_of(const Shape& s) {
  std::array<int64_t, 3> out;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t room = s.in[d] + 2 * s.padding[d] + s.more[d] - s.dilation[d] * (s.kernel[d] - 1) - 1;
    out[d] = room < 0 ? 0 : room / s.stride[d] + 1;
  }
  return out;
}

int byte_of(Values values, int low, int high) {
  if (values == Values::extreme) return coin() ? low : high;
  return static_cast<int>(pick_in(low, high));
}

struct Weights {
  std::vector<int> dense;      // [oc][cg][taps]
  std::vector<int8_t> packed;  // conv_int8.h
};

Weights make_weights(const Case& test) {
  const Shape& s = test.shape;
  const int64_t cg = s.c / s.groups, og = s.oc / s.groups, taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
  Weights w;
  for (int64_t i = 0; i < s.oc * cg * taps; ++i) w.dense.push_back(byte_of(test.values, -128, 127));
  const bool depthwise = int8_depthwise(s.c, s.oc, s.groups);
  const Int8Runs runs = int8_runs(cg, s.groups, s.kernel.data(), s.dilation.data());
  const int64_t columns = int8_columns(s.c, s.oc, s.groups), steps = runs.outer * runs.steps();
  const Int8DepthwiseFours fours = int8_depthwise_fours(s.kernel.data());
  const int64_t copies = s.kernel[2] == 3 ? 2 : 1;
  w.packed.assign(static_cast<size_t>(depthwise ? copies * fours.count * columns * 4 : columns * steps * 4), 0);
  for (int64_t o = 0; o < s.oc; ++o) {
    for (int64_t i = 0; i < cg; ++i) {
      for (int64_t t = 0; t < taps; ++t) {
        const int value = w.dense[static_cast<size_t>((o * cg + i) * taps + t)];
        int64_t at;
        if (depthwise) {
          at = (t / fours.taps * columns + int8_depthwise_column(o)) * 4 + t % fours.taps;
          if (copies == 2)
            w.packed[static_cast<size_t>(at + fours.count * columns * 4 + 1)] = static_cast<int8_t>(value);
        } else {
          const int64_t merged = taps / runs.outer;  // taps of a run
          const int64_t outer = t / merged, inside = t % merged * cg + i, panels = ceil_div(og, kPanel);
          const int64_t panel = o / og * panels + o % og / kPanel, step = outer * runs.steps() + inside / 4;
          at = ((panel * steps + step) * kPanel + o % og % kPanel) * 4 + inside % 4;
        }
        w.packed[static_cast<size_t>(at)] = static_cast<int8_t>(value);
      }
    }
  }
  return w;
}

int64_t column_of(const Shape& s, int64_t o) {
  if (int8_depthwise(s.c, s.oc, s.groups)) return int8_depthwise_column(o);
  const int64_t og = s.oc / s.groups;
  return o / og * round_up(og, kPanel) + o % og;
}

void check(const Case& test) {
  const Shape& s = test.shape;
  std::string name = "n, c, oc, groups; in, kernel, stride, padding, dilation:";
  for (const int64_t value : {s.n, s.c, s.oc, s.groups}) name += " " + std::to_string(value);
  for (const auto* dims : {&s.in, &s.kernel, &s.stride, &s.padding, &s.dilation}) {
    for (const int64_t value : *dims) name += " " + std::to_string(value);
  }
  CAPTURE(name);
  CAPTURE(test.x_signed);
  CAPTURE(static_cast<int>(test.result));
  CAPTURE(test.plain);
  const auto out = output_of(s);
  const int64_t cg = s.c / s.groups, og = s.oc / s.groups, taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
  const Weights w = make_weights(test);
  std::vector<uint8_t> x(static_cast<size_t>(s.n * s.in[0] * s.in[1] * s.in[2] * s.c));
  for (uint8_t& value : x) value = static_cast<uint8_t>(byte_of(test.values, 0, 255));
  const int x_zero = static_cast<int>(pick({0, 1, 117, 128, 255}));
  const int64_t pixels = s.n * out[0] * out[1] * out[2], columns = int8_columns(s.c, s.oc, s.groups);
  std::vector<int32_t> init(static_cast<size_t>(columns), 0), zeros(static_cast<size_t>(columns), 0);
  std::vector<float> factor(static_cast<size_t>(columns), 0), offset(static_cast<size_t>(columns), 0);
  std::vector<int32_t> bias(static_cast<size_t>(s.oc));
  const float scale = 1.0f / static_cast<float>(1 << pick_in(4, 9));
  for (int64_t o = 0; o < s.oc; ++o) {
    const size_t at = static_cast<size_t>(column_of(s, o));
    bias[static_cast<size_t>(o)] = static_cast<int32_t>(pick_in(-3000, 3000));
    zeros[at] = test.weight_zeros ? static_cast<int32_t>(pick_in(-128, 127)) : 0;
    int32_t sum = 0;
    for (int64_t i = 0; i < cg * taps; ++i) sum += w.dense[static_cast<size_t>(o * cg * taps + i)] - zeros[at];
    init[at] = bias[static_cast<size_t>(o)] - x_zero * sum;
    factor[at] = test.exact ? scale : scale * uniform(0.5f, 2.0f);
    offset[at] = test.exact ? static_cast<float>(pick_in(-8, 8)) * 0.5f : uniform(-4, 4);
  }
  std::vector<uint8_t> residual(test.residual ? static_cast<size_t>(pixels * s.oc) : 0);
  for (uint8_t& value : residual) value = static_cast<uint8_t>(pick_in(0, 255));

  Int8ConvArgs a{};
  a.n = s.n, a.c = s.c, a.oc = s.oc, a.groups = s.groups;
  for (size_t d = 0; d < 3; ++d) {
    a.in[d] = s.in[d], a.out[d] = out[d], a.kernel[d] = s.kernel[d], a.stride[d] = s.stride[d];
    a.before[d] = s.padding[d], a.after[d] = s.padding[d] + s.more[d], a.dilation[d] = s.dilation[d];
  }
  const bool floats = test.result == Int8Result::f32;
  const int low = test.result == Int8Result::s8 ? -128 : 0, y_zero = static_cast<int>(pick_in(low, low + 255));
  const float infinity = std::numeric_limits<float>::infinity();
  a.x_signed = test.x_signed, a.result = test.result;
  a.w_packed = w.packed.data(), a.init = init.data(), a.factor = factor.data(), a.offset = offset.data();
  a.weight_zero = test.weight_zeros ? zeros.data() : nullptr;
  a.x_zero = x_zero;
  a.y_zero = y_zero;
  a.low = a.low_after = floats ? (coin() ? 0.0f : -infinity) : static_cast<float>(low - y_zero);
  a.high = a.high_after = floats ? infinity : static_cast<float>(low + 255 - y_zero);
  a.round_first = test.round_first;
  if (test.round_first) {  // what comes between is a byte with a zero point of its own
    const int middle = static_cast<int>(pick_in(0, 255));
    a.low = static_cast<float>(-middle), a.high = static_cast<float>(255 - middle);
  }
  a.keep = 0.5f, a.gain = 0.75f, a.residual_zero = static_cast<float>(pick_in(0, 100));
  a.residual_signed = test.residual_signed;
  std::vector<uint8_t> stored = x;
  if (test.x_signed) {
    for (uint8_t& value : stored) value ^= 0x80u;
  }
  a.x = stored.data();
  a.residual = test.residual ? residual.data() : nullptr;
  std::vector<uint8_t> y(static_cast<size_t>(pixels * s.oc) * (floats ? 4 : 1), 0xcd);
  a.y = y.data();
  a.num_threads = test.threads;
  a.plain = test.plain;
  std::vector<char> scratch(conv_int8_scratch_bytes(a));
  a.scratch = scratch.data();
  conv_int8(a);
  if (test.residual && !floats) {  // which may lie where the result will
    std::vector<uint8_t> both = residual;
    Int8ConvArgs over = a;
    over.residual = over.y = both.data();
    conv_int8(over);
    CHECK(both == y);
  }

  int64_t wrong = 0;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    const int64_t position[3] = {pixel / out[2] / out[1] % out[0], pixel / out[2] % out[1], pixel % out[2]};
    const int64_t n = pixel / out[2] / out[1] / out[0];
    for (int64_t o = 0; o < s.oc; ++o) {
      int64_t sum = bias[static_cast<size_t>(o)];
      const size_t at = static_cast<size_t>(column_of(s, o));
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t tap[3] = {t / s.kernel[2] / s.kernel[1], t / s.kernel[2] % s.kernel[1], t % s.kernel[2]};
        int64_t from = n;
        bool inside = true;
        for (size_t d = 0; d < 3; ++d) {
          const int64_t i = position[d] * s.stride[d] - s.padding[d] + tap[d] * s.dilation[d];
          inside &= i >= 0 && i < s.in[d];
          from = from * s.in[d] + i;
        }
        for (int64_t i = 0; i < cg && inside; ++i) {
          sum += (x[static_cast<size_t>(from * s.c + o / og * cg + i)] - x_zero) *
                 (w.dense[static_cast<size_t>((o * cg + i) * taps + t)] - zeros[at]);
        }
      }
      const double product = static_cast<double>(static_cast<float>(sum)) * factor[at];
      double v = product + offset[at];
      v = std::min(std::max(v, static_cast<double>(a.low)), static_cast<double>(a.high));
      double edge = v;  // what is rounded
      const size_t flat = static_cast<size_t>(pixel * s.oc + o);
      if (test.residual) {
        if (test.round_first) v = std::nearbyint(v);
        const int other = test.residual_signed ? static_cast<int8_t>(residual[flat]) : residual[flat];
        v = v * a.keep + (other - static_cast<double>(a.residual_zero)) * a.gain;
        v = std::min(std::max(v, static_cast<double>(a.low_after)), static_cast<double>(a.high_after));
        if (!test.round_first) edge = v;
      }
      if (floats) {
        float value;
        std::memcpy(&value, y.data() + flat * 4, 4);
        const double rounding = 3e-7 * std::abs(product);  // of what a residual may cancel
        wrong += std::abs(value - v) > (test.exact ? 0.0 : 1e-5 * (1 + std::abs(v)) + rounding);
        continue;
      }
      const int expected = static_cast<int>(std::nearbyint(v)) + y_zero;
      const int actual = test.result == Int8Result::s8 ? static_cast<int8_t>(y[flat]) : y[flat];
      // Where scales are not exact, a sum next to a tie may be rounded to the other side.
      const bool close = !test.exact && std::abs(edge - std::floor(edge) - 0.5) < 1e-3;
      wrong += std::abs(actual - expected) > (close ? 1 : 0);
    }
  }
  CHECK(wrong == 0);
}

// With and without the instructions that the target at large does not have.
void check_both(Case test) {
  for (const bool plain : {false, true}) {
    test.plain = plain;
    check(test);
  }
}

Shape linear(int64_t rows, int64_t in, int64_t out) {
  return {1, in, out, 1, {1, 1, rows}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
}

const Shape kShapes[] = {
    linear(1, 64, 64),
    linear(7, 5, 3),
    linear(1, 1, 1),
    linear(50, 257, 97),
    linear(39, 128, 97),
    {2, 192, 132, 3, {2, 5, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    linear(0, 16, 8),
    {1, 3, 64, 1, {1, 23, 21}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}},
    {2, 16, 40, 1, {1, 9, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 6, 33, 1, {1, 11, 10}, {1, 3, 2}, {1, 2, 1}, {0, 2, 0}, {1, 2, 3}},
    {1, 12, 70, 2, {1, 6, 5}, {1, 3, 3}, {1, 1, 2}, {0, 1, 1}, {1, 1, 1}},
    {1, 64, 64, 16, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 19, 19, 19, {1, 8, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 64, 64, 64, {1, 9, 9}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}, {1, 1, 1}},
    {1, 32, 32, 32, {1, 7, 7}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 2, 2}},
    {1, 300, 300, 300, {1, 4, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 112, 112, 112, {1, 6, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 96, 96, 96, {1, 9, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 0}, {1, 1, 1}, {0, 0, 1}},
    {3, 5, 5, 5, {1, 7, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 47, 47, 47, {1, 6, 13}, {1, 5, 3}, {1, 1, 1}, {0, 4, 2}, {1, 2, 1}, {0, 1, 3}},
    {1, 40, 40, 40, {1, 11, 6}, {1, 3, 5}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}},
    {1, 80, 80, 80, {1, 13, 2}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 2, 2}},
    {1, 31, 31, 31, {4, 5, 6}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {2, 1, 1}},
    {1, 64, 64, 64, {1, 5, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {1, 33, 33, 33, {1, 1, 40}, {1, 1, 7}, {1, 1, 3}, {0, 0, 9}, {1, 1, 1}},
    {1, 4, 8, 1, {3, 4, 5}, {2, 3, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {3, 8, 12, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 8, 12, 1, {1, 2, 2}, {1, 1, 1}, {1, 3, 3}, {0, 2, 2}, {1, 1, 1}},
    {1, 5, 9, 1, {1, 6, 7}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, {0, 1, 2}},
    {0, 8, 12, 1, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 4, 6, 2, {1, 0, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
};

}  // namespace

TEST_CASE("int8 convolution: shapes, by each kind of result") {
  for (const Shape& shape : kShapes) {
    for (const Int8Result result : {Int8Result::u8, Int8Result::s8, Int8Result::f32}) {
      Case test{shape};
      test.result = result;
      test.threads = static_cast<int>(pick_in(1, 4));
      check_both(test);
      test.x_signed = true;
      check_both(test);
      test.exact = false;
      check_both(test);
    }
  }
}

TEST_CASE("int8 convolution: zero points of weights") {
  for (const Shape& shape : kShapes) {
    Case test{shape};
    test.weight_zeros = true;
    test.x_signed = coin();
    test.threads = static_cast<int>(pick_in(1, 3));
    check_both(test);
  }
}

TEST_CASE("int8 convolution: residuals") {
  for (const Shape& shape : kShapes) {
    for (const bool round_first : {false, true}) {
      for (const Int8Result result : {Int8Result::u8, Int8Result::s8, Int8Result::f32}) {
        Case test{shape};
        test.residual = true;
        test.round_first = round_first;
        test.residual_signed = coin();
        test.result = result;
        check_both(test);
      }
    }
  }
}

TEST_CASE("int8 convolution: sums of extremes do not saturate") {
  for (const Shape& shape : kShapes) {
    Case test{shape};
    test.values = Values::extreme;
    test.result = Int8Result::f32;
    check_both(test);
    test.x_signed = test.weight_zeros = true;
    check_both(test);
  }
}

// Tiles read windows that lie a pixel apart in place, or copies of them: of whole steps of 64 bytes, or not.
const Shape kTiled[] = {
    {1, 64, 64, 1, {1, 13, 11}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {3, 64, 40, 1, {1, 9, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 128, 97, 1, {1, 7, 12}, {1, 3, 3}, {1, 1, 1}, {0, 2, 2}, {1, 2, 2}},
    {1, 16, 33, 1, {1, 12, 21}, {1, 1, 4}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 128, 70, 2, {1, 9, 10}, {1, 3, 2}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {1, 64, 32, 1, {1, 4, 5}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {1, 64, 64, 1, {1, 70, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 64, 66, 1, {1, 13, 15}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {1, 64, 32, 1, {3, 6, 5}, {2, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 128, 64, 1, {1, 12, 14}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
    {1, 20, 40, 1, {1, 9, 17}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}},
    {1, 3, 64, 1, {1, 40, 38}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}},
    {1, 512, 330, 1, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 512, 300, 1, {1, 14, 15}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {1, 128, 130, 1, {1, 28, 28}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    // In place, by lines: one half of a tile each, several, that overlap; an odd number of halves.
    {1, 64, 130, 1, {1, 28, 28}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {2, 64, 72, 1, {1, 10, 34}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {1, 64, 32, 1, {1, 7, 80}, {1, 1, 1}, {1, 3, 2}, {0, 0, 0}, {1, 1, 1}},
    {3, 128, 100, 2, {1, 9, 41}, {1, 3, 2}, {1, 1, 3}, {0, 2, 1}, {1, 1, 1}},
    {1, 128, 40, 2, {1, 21, 30}, {1, 3, 1}, {1, 4, 1}, {0, 2, 0}, {1, 2, 1}},
    // Windows that are no whole steps: with padding they are read with what follows.
    {3, 3, 40, 1, {1, 19, 33}, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}, {1, 1, 1}},
    {2, 3, 32, 1, {1, 32, 34}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {1, 40, 64, 2, {1, 9, 30}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 2}},
    {1, 70, 300, 1, {1, 6, 30}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 64, 40, 1, {1, 9, 32}, {1, 1, 3}, {1, 2, 2}, {0, 0, 2}, {1, 1, 2}},
    linear(70, 2048, 640),
    linear(40, 64, 130),
    linear(17, 128, 32),
    linear(9, 192, 40),
    linear(9, 100, 40),
    linear(600, 96, 64),
};

TEST_CASE("int8 convolution: tiles") {
  for (const Shape& shape : kTiled) {
    Case test{shape};
    test.result = coin() ? Int8Result::u8 : Int8Result::s8;
    check(test);
    test.residual = true;
    test.result = static_cast<Int8Result>(pick_in(0, 2));
    test.exact = test.result != Int8Result::f32;  // sums of so many products need not be floats
    test.threads = static_cast<int>(pick_in(2, 5));
    check(test);
    test.weight_zeros = test.x_signed = true;
    test.threads = static_cast<int>(pick_in(1, 3));
    check(test);
  }
}

TEST_CASE("int8 convolution: several threads") {
  for (const Shape& shape :
       {linear(513, 96, 200), Shape{2, 40, 96, 1, {1, 30, 31}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
        Shape{2, 48, 48, 48, {1, 60, 61}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}}}) {
    for (const int threads : {2, 3, 7}) {
      Case test{shape};
      test.threads = threads;
      check_both(test);
    }
  }
}

}  // namespace aotpack::kernels::test
