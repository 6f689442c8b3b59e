#include <array>

#include "conv.h"
#include "exact.h"
#include "turns.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Shape {
  int64_t n, c, oc, groups;
  std::array<int64_t, 3> in, kernel, stride, padding, dilation, output_padding;
  bool transposed;
  Winograd winograd = Winograd::none;
};

std::array<int64_t, 3> output_of(const Shape& s) {
  std::array<int64_t, 3> out;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t reach = s.dilation[d] * (s.kernel[d] - 1) + 1;
    if (s.transposed) {
      out[d] = (s.in[d] - 1) * s.stride[d] - 2 * s.padding[d] + reach + s.output_padding[d];
    } else {
      const int64_t room = s.in[d] + 2 * s.padding[d] + s.output_padding[d] - reach;
      out[d] = room < 0 ? 0 : room / s.stride[d] + 1;
    }
  }
  return out;
}

// Torch's weight: [oc, c / groups, k..], or [c, oc / groups, k..] when transposed; `at` is its flat index.
int64_t weight_at(const Shape& s, int64_t group, int64_t in, int64_t out, int64_t tap) {
  const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], cg = s.c / s.groups, og = s.oc / s.groups;
  if (s.transposed) return ((group * cg + in) * og + out) * taps + tap;
  return ((group * og + out) * cg + in) * taps + tap;
}

// G w G^T as conv.h has it, from double.
Buffer pack_winograd(const Shape& s, const Buffer& w) {
  constexpr double a = 11.0 / 16, b = 1.5, d = a * a - b * b, p = 1 / (2 * a * a * d), q = -1 / (2 * b * b * d);
  const std::vector<std::array<double, 3>> two = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  const std::vector<std::array<double, 3>> four = {{1 / (a * a * b * b), 0, 0}, {p, p * a, p * a * a},
                                                   {p, -p * a, p * a * a},      {q, q * b, q * b * b},
                                                   {q, -q * b, q * b * b},      {0, 0, 1}};
  const auto& g = s.winograd == Winograd::two ? two : four;
  const size_t side = g.size();
  const int64_t elements = winograd_elements(s.winograd);
  Buffer packed = Buffer::filled(DType::f32, round_up(s.oc, kPanel) * elements * s.c, 0.0f);
  for (int64_t o = 0; o < s.oc; ++o) {
    for (int64_t i = 0; i < s.c; ++i) {
      for (size_t row = 0; row < side; ++row) {
        for (size_t column = 0; column < side; ++column) {
          double sum = 0;
          for (size_t y = 0; y < 3; ++y) {
            for (size_t x = 0; x < 3; ++x) {
              sum += g[row][y] * g[column][x] * w.get(weight_at(s, 0, i, o, static_cast<int64_t>(3 * y + x)));
            }
          }
          const int64_t element = static_cast<int64_t>(side * row + column);
          packed.set(((o / kPanel * elements + element) * s.c + i) * kPanel + o % kPanel, static_cast<float>(sum));
        }
      }
    }
  }
  return packed;
}

Buffer pack(const Shape& s, const Buffer& w) {
  if (s.winograd != Winograd::none) return pack_winograd(s, w);
  const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], cg = s.c / s.groups, og = s.oc / s.groups;
  const ConvLayout layout = conv_layout(s.groups, cg, og, s.transposed);
  if (layout == ConvLayout::grouped) {
    Buffer packed = Buffer::filled(w.dtype(), round_up(s.oc, kPanel) * taps * cg, 0.0f);
    for (int64_t o = 0; o < s.oc; ++o) {
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t i = 0; i < cg; ++i) {
          packed.set(((o / kPanel * taps + t) * cg + i) * kPanel + o % kPanel,
                     w.get(weight_at(s, o / og, i, o % og, t)));
        }
      }
    }
    return packed;
  }
  if (layout == ConvLayout::depthwise) {
    Buffer packed(w.dtype(), taps * s.c);
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t i = 0; i < s.c; ++i) packed.set(t * s.c + i, w.get(weight_at(s, i, 0, 0, t)));
    }
    return packed;
  }
  const int64_t panels = ceil_div(og, kPanel);
  Buffer packed = Buffer::filled(w.dtype(), s.groups * panels * taps * cg * kPanel, 0.0f);
  for (int64_t g = 0; g < s.groups; ++g) {
    for (int64_t o = 0; o < og; ++o) {
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t i = 0; i < cg; ++i) {
          packed.set((((g * panels + o / kPanel) * taps + t) * cg + i) * kPanel + o % kPanel,
                     w.get(weight_at(s, g, i, o, t)));
        }
      }
    }
  }
  return packed;
}

std::vector<double> reference(const Shape& s, const Buffer& x, const Buffer& w) {
  const auto out = output_of(s);
  const int64_t cg = s.c / s.groups, og = s.oc / s.groups;
  std::vector<double> y(static_cast<size_t>(s.n * out[0] * out[1] * out[2] * s.oc), 0.0);
  const std::vector<double> numbers = x.numbers();
  // The weight as [tap][group][in][out].
  const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
  std::vector<double> weight;
  weight.reserve(static_cast<size_t>(w.size()));
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t i = 0; i < cg; ++i)
        for (int64_t o = 0; o < og; ++o) weight.push_back(w.get(weight_at(s, g, i, o, tap)));
  // Every pair of output position and tap, per dim; input -1 where there is none.
  const auto input = [&](size_t d, int64_t o, int64_t k) -> int64_t {
    int64_t i;
    if (s.transposed) {
      const int64_t scaled = o + s.padding[d] - k * s.dilation[d];
      if (scaled < 0 || scaled % s.stride[d] != 0) return -1;
      i = scaled / s.stride[d];
    } else {
      i = o * s.stride[d] - s.padding[d] + k * s.dilation[d];
    }
    return i >= 0 && i < s.in[d] ? i : -1;
  };
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t od = 0; od < out[0]; ++od)
      for (int64_t oh = 0; oh < out[1]; ++oh)
        for (int64_t ow = 0; ow < out[2]; ++ow)
          for (int64_t kd = 0; kd < s.kernel[0]; ++kd)
            for (int64_t kh = 0; kh < s.kernel[1]; ++kh)
              for (int64_t kw = 0; kw < s.kernel[2]; ++kw) {
                const int64_t id = input(0, od, kd), ih = input(1, oh, kh), iw = input(2, ow, kw);
                if (id < 0 || ih < 0 || iw < 0) continue;
                const int64_t pixel = ((n * s.in[0] + id) * s.in[1] + ih) * s.in[2] + iw;
                const int64_t to = ((n * out[0] + od) * out[1] + oh) * out[2] + ow;
                const int64_t tap = (kd * s.kernel[1] + kh) * s.kernel[2] + kw;
                for (int64_t g = 0; g < s.groups; ++g)
                  add_product(y.data() + to * s.oc + g * og, numbers.data() + pixel * s.c + g * cg,
                              weight.data() + (tap * s.groups + g) * cg * og, 1, og, cg);
              }
  return y;
}

ConvArgs arguments(const Shape& s, DType dtype) {
  const auto out = output_of(s);
  ConvArgs a = {};
  a.dtype = dtype;
  a.n = s.n;
  a.c = s.c;
  a.oc = s.oc;
  a.groups = s.groups;
  for (size_t d = 0; d < 3; ++d) {
    a.in[d] = s.in[d];
    a.out[d] = out[d];
    a.kernel[d] = s.kernel[d];
    a.stride[d] = s.stride[d];
    a.padding[d] = s.padding[d];
    a.dilation[d] = s.dilation[d];
  }
  a.transposed = s.transposed;
  a.winograd = s.winograd;
  return a;
}

void check(const Shape& s, DType dtype, Act act = Act::none, bool bias = true, bool residual = false, int threads = 2,
           int64_t offset = 0, Knobs knobs = {}) {
  const auto out = output_of(s);
  if (out[0] < 0 || out[1] < 0 || out[2] < 0) return;
  const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], outputs = s.n * out[0] * out[1] * out[2] * s.oc;
  const std::string what =
      "n " + std::to_string(s.n) + " c " + std::to_string(s.c) + " oc " + std::to_string(s.oc) + " groups " +
      std::to_string(s.groups) + " in " + std::to_string(s.in[0]) + "," + std::to_string(s.in[1]) + "," +
      std::to_string(s.in[2]) + " kernel " + std::to_string(s.kernel[0]) + "," + std::to_string(s.kernel[1]) + "," +
      std::to_string(s.kernel[2]) + " stride " + std::to_string(s.stride[2]) + " padding " +
      std::to_string(s.padding[2]) + " dilation " + std::to_string(s.dilation[2]) +
      (s.transposed ? " transposed" : "") +
      (s.winograd == Winograd::none ? "" : " winograd" + std::to_string(winograd_elements(s.winograd))) +
      dtype_name(dtype);
  CAPTURE(what);
  CAPTURE(knobs.bits);
  const Buffer x = Buffer::random(dtype, s.n * s.in[0] * s.in[1] * s.in[2] * s.c, offset);
  const Buffer w = Buffer::random(dtype, s.oc * (s.c / s.groups) * taps);
  const Buffer packed = pack(s, w);
  const Buffer b = Buffer::random(dtype, s.oc, offset), r = Buffer::random(dtype, outputs, offset);
  Buffer y = Buffer::filled(dtype, outputs, -77.0f, offset);
  ConvArgs a = arguments(s, dtype);
  a.x = x.data();
  a.w_packed = packed.data();
  a.bias = bias ? b.data() : nullptr;
  a.residual = residual ? r.data() : nullptr;
  a.act = act;
  a.y = y.data();
  a.num_threads = threads;
  a.knobs = knobs;
  // Whatever was in the scratch must not matter.
  std::vector<unsigned char> scratch(conv_scratch_bytes(a), 0xff);
  a.scratch = scratch.data();
  conv(a);
  const std::vector<double> expected = reference(s, x, w);
  const auto count_wrong = [&](const Buffer& result) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < outputs; ++i) {
      double value = expected[static_cast<size_t>(i)] + (bias ? b.get(i % s.oc) : 0.0) + (residual ? r.get(i) : 0.0);
      value = reference_act(act, value);
      wrong += !close(result.get(i), value, tolerance(dtype, value, static_cast<double>(taps * (s.c / s.groups))));
    }
    return wrong;
  };
  CHECK(count_wrong(y) == 0);
  if (takes_strided(a)) {
    ConvArgs strided = a;
    strided.x_pixel = s.c + pick({1, 3, 16});
    const Buffer some = spread_rows(x, s.c, strided.x_pixel, offset);
    Buffer again = Buffer::filled(dtype, outputs, -77.0f, offset);
    strided.x = some.data();
    strided.y = again.data();
    std::vector<unsigned char> more(conv_scratch_bytes(strided), 0xff);
    strided.scratch = more.data();
    conv(strided);
    CHECK(count_wrong(again) == 0);
  }
  if (takes_planar(a)) {
    Buffer planes = Buffer::filled(dtype, s.n * s.in[0] * s.in[1] * s.in[2] * s.c, 0.0f, offset);
    const int64_t pixels = s.in[0] * s.in[1] * s.in[2];
    for (int64_t i = 0; i < s.n * pixels * s.c; ++i) {
      planes.set((i / s.c / pixels * s.c + i % s.c) * pixels + i / s.c % pixels, x.get(i));
    }
    Buffer again = Buffer::filled(dtype, outputs, -77.0f, offset);
    a.planar = true;
    a.x = planes.data();
    a.y = again.data();
    std::vector<unsigned char> more(conv_scratch_bytes(a), 0xff);
    a.scratch = more.data();
    conv(a);
    int64_t unequal = 0;
    for (int64_t i = 0; i < outputs; ++i) unequal += again.get(i) != y.get(i);
    CHECK(unequal == 0);
  }
}

Shape conv2d(int64_t c, int64_t oc, int64_t groups, int64_t h, int64_t w, int64_t k, int64_t s, int64_t p,
             int64_t dil = 1, bool transposed = false, int64_t output_padding = 0) {
  return {2,         c,         oc,        groups,        {1, h, w},
          {1, k, k}, {1, s, s}, {0, p, p}, {1, dil, dil}, {0, output_padding, output_padding},
          transposed};
}

TEST_CASE("conv: the layers that networks are made of") {
  for (const DType dtype : kDTypes) {
    check(conv2d(3, 64, 1, 23, 19, 7, 2, 3), dtype, Act::relu);  // first layer, padded copy
    check(conv2d(3, 96, 1, 16, 20, 4, 4, 0), dtype);             // patches
    check(conv2d(3, 40, 1, 33, 32, 16, 16, 0), dtype);           // larger patches, some input unused
    check(conv2d(32, 64, 1, 14, 15, 3, 1, 1), dtype, Act::relu, true, true);
    check(conv2d(64, 33, 1, 9, 9, 3, 2, 1), dtype, Act::silu);
    check(conv2d(48, 70, 1, 9, 9, 1, 1, 0), dtype, Act::none, false, true);
    check(conv2d(48, 70, 1, 9, 9, 1, 2, 0), dtype, Act::hardswish);
    check(conv2d(512, 70, 1, 9, 8, 1, 2, 0), dtype, Act::relu, true, true);  // pixels a page apart
    check(conv2d(32, 48, 1, 8, 6, 2, 2, 0), dtype);                          // merged without a copy
    check(conv2d(20, 24, 1, 12, 12, 3, 1, 2, 2), dtype, Act::gelu);          // dilated
    check(conv2d(24, 64, 4, 10, 10, 3, 1, 1), dtype, Act::relu6);            // grouped
    check(conv2d(24, 8, 8, 7, 7, 3, 1, 1), dtype);
    check(conv2d(6, 12, 6, 7, 7, 3, 1, 1), dtype);  // groups of one channel, two outputs
  }
}

TEST_CASE("conv: planes of few channels, and more padding after than before") {
  for (const DType dtype : kDTypes) {
    for (const int64_t c : {1, 2, 3, 4, 16}) {
      for (const int64_t width : {1, 63, 64, 65, 200}) {
        check(conv2d(c, 33, 1, 5, width, 3, 2, 1), dtype, Act::relu);
        check(conv2d(c, 8, 1, 5, width, 3, 2, 0, 1, false, 1), dtype, Act::none, true, true, 3);
        check(conv2d(c, 8, 1, 7, width + 6, 7, 1, 0), dtype);
      }
      check({2, c, 9, 1, {4, 5, 6}, {2, 3, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, {0, 0, 2}, false}, dtype);
    }
    check(conv2d(32, 40, 1, 12, 11, 3, 2, 0, 1, false, 1), dtype, Act::relu6);
    check(conv2d(32, 32, 32, 12, 11, 3, 2, 0, 1, false, 1), dtype, Act::relu6);
    check(conv2d(32, 32, 32, 12, 11, 5, 2, 1, 1, false, 1), dtype, Act::relu6, true, true);
    check(conv2d(24, 12, 4, 12, 11, 3, 2, 0, 1, false, 1), dtype, Act::relu6);
    check(conv2d(24, 12, 1, 6, 5, 1, 1, 0, 1, false, 2), dtype);
  }
}

TEST_CASE("conv: windows that are read in place") {
  for (const DType dtype : kDTypes) {
    // Every width: one tile for two rows, one for each, and several.
    for (int64_t w = 1; w <= 33; ++w) {
      const Act act = w % 3 == 0 ? Act::relu : w % 3 == 1 ? Act::relu6 : Act::none;
      check(conv2d(16, w % 2 == 0 ? 64 : 40, 1, 1 + w % 4, w, 3, 1, 1), dtype, act, w % 4 != 0, w % 2 == 0, 1 + w % 3);
    }
    for (const int64_t stride : {1, 2, 3}) {
      for (const int64_t dilation : {1, 2}) {
        check(conv2d(34, 33, 1, 9, 17, 3, stride, 2, dilation), dtype, Act::silu, true, true, 3);
        check(conv2d(64, 96, 2, 8, 13, 3, stride, 1, dilation), dtype, Act::relu, true, true);
        check(conv2d(96, 64, 1, 7, 12, 2, stride, 0, dilation), dtype, Act::none, false, false);
      }
    }
    // More channels than a window's lines have room near; panels in several groups, of several images and threads.
    check(conv2d(256, 136, 1, 14, 15, 3, 1, 1), dtype, Act::relu, true, true, 2);
    check(conv2d(256, 40, 1, 5, 7, 3, 1, 1), dtype, Act::silu, true, true, 3);
    check(conv2d(512, 96, 1, 4, 7, 3, 1, 1), dtype, Act::relu, true, true);
    check(conv2d(160, 96, 1, 40, 10, 2, 1, 1, 3), dtype, Act::none, false, true, 2);
    check(conv2d(32, 130, 1, 6, 40, 5, 1, 2), dtype, Act::relu, true, false, 4);
    check(conv2d(64, 32, 1, 40, 40, 3, 1, 0), dtype, Act::relu, true, true);  // without a copy
    // Windows that are no whole steps of an instruction, or lie further apart than a pixel.
    check(conv2d(3, 64, 1, 31, 30, 7, 2, 3), dtype, Act::relu, true, false, 3);
    check(conv2d(20, 33, 1, 17, 19, 5, 1, 2), dtype, Act::relu, true, true, 2);
    check(conv2d(9, 40, 1, 26, 20, 7, 3, 2), dtype, Act::none, false, true);
    check(conv2d(64, 64, 1, 21, 14, 3, 2, 1), dtype, Act::relu, true, true, 2);
    check(conv2d(11, 40, 1, 26, 9, 6, 2, 5), dtype, Act::silu, true, true);
    check(conv2d(33, 32, 1, 6, 8, 3, 1, 1), dtype, Act::relu);                // an odd number of elements
    check(conv2d(48, 64, 1, 9, 14, 3, 2, 0, 1, false, 1), dtype, Act::relu);  // padding at one end alone
    check(conv2d(512, 40, 1, 5, 14, 3, 2, 1), dtype, Act::relu, true, true);  // pixels a page apart
    check(conv2d(1024, 33, 1, 2, 7, 2, 1, 1), dtype);                         // the same, deeper
    check({2, 32, 36, 1, {1, 1, 50}, {1, 1, 5}, {1, 1, 2}, {0, 0, 3}, {1, 1, 2}, {0, 0, 0}, false}, dtype, Act::relu);
    check({2, 32, 64, 1, {5, 6, 9}, {3, 2, 3}, {2, 1, 1}, {1, 1, 1}, {1, 2, 1}, {0, 0, 0}, false}, dtype, Act::relu);
    check({1, 64, 64, 2, {6, 7, 8}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {2, 1, 1}, {0, 0, 0}, false}, dtype, Act::none);
    check({2, 32, 32, 1, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, {0, 5, 4}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 32, 8, 1, {1, 0, 3}, {1, 2, 2}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
  }
}

TEST_CASE("conv: depthwise") {
  for (const DType dtype : kDTypes) {
    for (const int64_t c : {1, 3, 16, 24, 70, 96}) {
      check(conv2d(c, c, c, 14, 14, 3, 1, 1), dtype, Act::relu6);
      check(conv2d(c, c, c, 15, 9, 3, 2, 1), dtype, Act::hardswish, true, true);
      check(conv2d(c, c, c, 7, 7, 7, 1, 3), dtype, Act::none, true, true);
      check(conv2d(c, c, c, 20, 21, 5, 1, 2), dtype, Act::relu, false);
      check(conv2d(c, c, c, 11, 12, 5, 2, 2), dtype, Act::gelu);
      check(conv2d(c, c, c, 13, 13, 3, 1, 2, 2), dtype, Act::silu);
      check(conv2d(c, c, c, 5, 5, 2, 3, 0), dtype);
    }
    for (int64_t w = 1; w <= 26; ++w) check(conv2d(32, 32, 32, 3, w, 3, 1, 1), dtype, Act::relu);
    check({1, 20, 20, 20, {5, 6, 7}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::tanh);
    check({1, 20, 20, 20, {5, 6, 7}, {1, 3, 3}, {2, 1, 1}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::tanh);
    check({1, 20, 20, 20, {5, 6, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
  }
  Shape tall = conv2d(160, 160, 160, 90, 30, 3, 1, 1);  // several bands, several chunks of channels
  tall.n = 1;
  check(tall, DType::f32, Act::relu, true, false, 3);
  // Threads share rows, channels, or both; the last panel is not whole, and there are more threads than rows.
  for (const DType dtype : kDTypes) {
    for (const int threads : {2, 3, 4, 6, 8}) {
      check(conv2d(1000, 1000, 1000, 7, 7, 5, 1, 2), dtype, Act::relu6, true, false, threads);
      check(conv2d(300, 300, 300, 14, 15, 5, 2, 2), dtype, Act::gelu, true, true, threads);
      check(conv2d(2056, 2056, 2056, 4, 5, 3, 1, 1), dtype, Act::relu, false, false, threads);
      check(conv2d(40, 40, 40, 40, 40, 3, 1, 1), dtype, Act::none, true, true, threads);
    }
  }
}

TEST_CASE("conv: few channels per group") {
  for (const DType dtype : kDTypes) {
    // Inputs and outputs per group, groups: lanes of one group, permuted, brought together; whole and partial panels.
    for (const auto& [cg, og, groups] : std::vector<std::array<int64_t, 3>>{
             {4, 4, 32},  {4, 4, 12},  {8, 8, 8},  {8, 8, 3},   {16, 16, 4}, {16, 16, 3}, {2, 2, 16}, {2, 2, 5},
             {1, 2, 3},   {1, 2, 40},  {1, 4, 20}, {1, 16, 5},  {3, 4, 9},   {3, 8, 5},   {7, 8, 2},  {5, 16, 2},
             {2, 1, 40},  {9, 1, 7},   {8, 4, 10}, {24, 24, 3}, {24, 8, 2},  {20, 16, 2}, {3, 3, 11}, {12, 12, 4},
             {31, 31, 2}, {17, 3, 19}, {8, 5, 8},  {6, 10, 7},  {1, 31, 2},  {40, 2, 2},  {1, 3, 33}}) {
      const int64_t c = cg * groups, oc = og * groups;
      check(conv2d(c, oc, groups, 6, 14, 3, 1, 1), dtype, Act::relu, true, true);
      check(conv2d(c, oc, groups, 7, 9, 3, 2, 1), dtype, Act::gelu, false);
      check(conv2d(c, oc, groups, 5, 6, 1, 1, 0), dtype, Act::none, true, true, 3);
      check(conv2d(c, oc, groups, 8, 7, 3, 1, 2, 2), dtype, Act::relu6, true, false, 1, 1);
      check(conv2d(c, oc, groups, 5, 5, 2, 3, 0), dtype, Act::silu);
    }
    for (int64_t w = 1; w <= 31; ++w) {
      check(conv2d(64, 64, 16, 3, w, 3, 1, 1), dtype, Act::relu);
      check(conv2d(48, 48, 3, 3, w, 3, 2, 1), dtype);
      check({1, 10, 20, 5, {1, 1, w}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    }
    check({2, 8, 8, 2, {1, 1, 333}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::none,
          true, true, 4);
    check({1, 20, 20, 5, {5, 6, 7}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::tanh);
    check({2, 32, 32, 4, {5, 6, 7}, {1, 3, 3}, {2, 1, 1}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 32, 16, 4, {5, 3, 4}, {2, 1, 1}, {1, 1, 1}, {1, 0, 0}, {2, 1, 1}, {0, 0, 0}, false}, dtype);
    check({0, 8, 8, 2, {1, 5, 6}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 0, 8, 2, {1, 5, 6}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::sigmoid);
    check({2, 8, 8, 2, {1, 1, 2}, {1, 2, 3}, {1, 2, 1}, {0, 6, 7}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::sigmoid);
  }
  Shape tall = conv2d(256, 256, 16, 70, 30, 3, 1, 1);  // several bands, several panels at once, several threads
  tall.n = 1;
  check(tall, DType::f32, Act::relu, true, true, 3);
}

TEST_CASE("conv: transposed") {
  for (const DType dtype : kDTypes) {
    check(conv2d(16, 40, 1, 5, 6, 2, 2, 0, 1, true), dtype, Act::relu);
    check(conv2d(16, 40, 1, 5, 6, 4, 2, 1, 1, true), dtype, Act::none, true, true);
    check(conv2d(8, 33, 1, 5, 6, 3, 2, 1, 1, true, 1), dtype, Act::gelu);
    check(conv2d(12, 18, 3, 4, 5, 3, 3, 1, 2, true, 2), dtype, Act::silu);
    check(conv2d(12, 12, 12, 4, 5, 3, 2, 1, 1, true, 1), dtype);
    check(conv2d(8, 8, 1, 4, 5, 1, 3, 0, 1, true), dtype);  // outputs that no input reaches
    check(conv2d(8, 8, 1, 4, 5, 3, 1, 1, 1, true), dtype);
    check(conv2d(8, 40, 1, 4, 5, 1, 1, 0, 1, true), dtype);
    check({1, 4, 6, 2, {3, 4, 5}, {3, 2, 3}, {2, 3, 1}, {1, 0, 2}, {1, 2, 1}, {1, 0, 0}, true}, dtype);
  }
}

TEST_CASE("conv: one and three dimensions, nothing, less than the padding") {
  for (const DType dtype : kDTypes) {
    check({2, 10, 36, 1, {1, 1, 50}, {1, 1, 5}, {1, 1, 2}, {0, 0, 3}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::relu);
    check({2, 80, 36, 1, {1, 1, 50}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::gelu);
    check({2, 6, 36, 2, {6, 7, 8}, {3, 2, 3}, {2, 1, 1}, {1, 0, 1}, {1, 2, 1}, {0, 0, 0}, false}, dtype);
    check({1, 20, 36, 1, {6, 7, 8}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {2, 1, 1}, {0, 0, 0}, false}, dtype);
    check({0, 6, 8, 1, {1, 7, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 6, 8, 1, {1, 2, 2}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 6, 8, 1, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, {0, 5, 4}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 40, 8, 1, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, {0, 5, 4}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
    check({2, 8, 8, 8, {1, 1, 2}, {1, 2, 3}, {1, 2, 1}, {0, 6, 7}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::sigmoid);
    check({1, 6, 8, 1, {1, 0, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}, {0, 0, 0}, false}, dtype);
  }
}

Shape winograd(Winograd tiles, int64_t n, int64_t c, int64_t oc, int64_t h, int64_t w, int64_t padding_h,
               int64_t padding_w) {
  Shape s = {n, c, oc, 1, {1, h, w}, {1, 3, 3}, {1, 1, 1}, {0, padding_h, padding_w}, {1, 1, 1}, {0, 0, 0}, false};
  s.winograd = tiles;
  return s;
}

TEST_CASE("conv: Winograd, all small sizes and paddings") {
  for (int64_t h = 1; h <= 9; ++h) {
    for (int64_t w = 1; w <= 9; ++w) {
      for (int64_t p = 0; p <= 2; ++p) {
        for (const Winograd tiles : {Winograd::two, Winograd::four}) {
          check(winograd(tiles, 2, 5, 7, h, w, p, (p + w) % 3), DType::f32);
        }
      }
    }
  }
}

TEST_CASE("conv: Winograd, tails of channels, epilogues, blocks and threads") {
  for (const Winograd tiles : {Winograd::two, Winograd::four}) {
    for (const int64_t c : {1, 3, 4, 7, 8, 15, 16, 17, 31, 40, 64, 100}) {
      for (const int64_t oc : {1, 4, 15, 16, 17, 32, 33, 50, 64}) {
        check(winograd(tiles, 1, c, oc, 7, 6, 1, 1), DType::f32, random_act(), coin(), coin(), 2, pick({0, 1, 3}));
      }
    }
    for (int act = 0; act <= 9; ++act) {
      for (const bool residual : {false, true}) {
        check(winograd(tiles, 2, 20, 37, 5, 8, 1, 1), DType::f32, static_cast<Act>(act), true, residual);
      }
    }
    check(winograd(tiles, 1, 64, 40, 61, 47, 1, 1), DType::f32, Act::relu, true, true, 1);    // several blocks
    check(winograd(tiles, 3, 200, 70, 15, 13, 0, 2), DType::f32, Act::gelu, true, true, 3);   // of few tiles each
    check(winograd(tiles, 1, 96, 130, 6, 6, 1, 1), DType::f32, Act::none, true, false, 4);    // threads share panels
    check(winograd(tiles, 1, 3000, 33, 4, 5, 1, 1), DType::f32, Act::none, false, false, 2);  // a tile is a block
    check(winograd(tiles, 0, 8, 8, 4, 5, 1, 1), DType::f32);
    check(winograd(tiles, 2, 0, 8, 4, 5, 1, 1), DType::f32, Act::sigmoid);
    check(winograd(tiles, 2, 8, 8, 2, 5, 0, 0), DType::f32);  // no output
    for (int i = 0; i < 60; ++i) {
      check(winograd(tiles, pick_in(1, 3), pick_in(1, 70), pick_in(1, 70), pick_in(1, 20), pick_in(1, 20),
                     pick_in(0, 3), pick_in(0, 3)),
            DType::f32, random_act(), coin(), coin(), static_cast<int>(pick_in(1, 4)), pick({0, 1, 3}));
    }
  }
}

// Differences to the exact result, relative to the greatest output.
TEST_CASE("conv: Winograd keeps the digits, and gives the same ones with any number of threads") {
  for (const Winograd tiles : {Winograd::two, Winograd::four}) {
    for (const int64_t c : {16, 64, 256, 512}) {
      const Shape s = winograd(tiles, 1, c, 34, 14, 14, 1, 1);
      const Buffer x = Buffer::random(DType::f32, 14 * 14 * c), w = Buffer::random(DType::f32, 34 * c * 9);
      const Buffer packed = pack(s, w);
      ConvArgs a = arguments(s, DType::f32);
      a.x = x.data();
      a.w_packed = packed.data();
      std::vector<float> results[3];
      for (const int threads : {1, 2, 3}) {
        std::vector<float>& y = results[threads - 1];
        y.resize(14 * 14 * 34);
        a.num_threads = threads;
        std::vector<unsigned char> scratch(conv_scratch_bytes(a), 0xff);
        a.scratch = scratch.data();
        a.y = y.data();
        conv(a);
      }
      const std::vector<double> expected = reference(s, x, w);
      double greatest = 0, error = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        greatest = std::max(greatest, std::abs(expected[i]));
        error = std::max(error, std::abs(results[0][i] - expected[i]));
      }
      CHECK(error <= (tiles == Winograd::two ? 2e-6 : 5e-6) * greatest);
      CHECK(results[0] == results[1]);
      CHECK(results[0] == results[2]);
    }
  }
}

TEST_CASE("conv: every position of every knob") {
  const Shape shapes[] = {conv2d(40, 170, 1, 9, 11, 3, 1, 1),
                          conv2d(3, 70, 1, 13, 19, 7, 2, 3),
                          conv2d(300, 70, 1, 5, 7, 1, 1, 0),
                          conv2d(24, 80, 2, 9, 7, 3, 2, 1),
                          conv2d(16, 40, 1, 5, 7, 4, 2, 1, 1, true),
                          winograd(Winograd::two, 2, 40, 70, 19, 15, 1, 1),
                          winograd(Winograd::four, 2, 40, 70, 19, 15, 1, 1)};
  for (const Shape& s : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (s.winograd != Winograd::none && dtype != DType::f32) continue;
      ConvArgs a = arguments(s, dtype);
      a.num_threads = dtype == DType::f32 ? 4 : 3;
      for (const Knobs knobs : turns_of(conv_knobs(a))) {
        check(s, dtype, Act::relu, true, true, a.num_threads, 1, knobs);
      }
    }
  }
}

TEST_CASE("conv: what Winograd can be asked for") {
  const Shape good = winograd(Winograd::four, 1, 8, 8, 5, 5, 1, 1);
  CHECK(takes_winograd(arguments(good, DType::f32)));
  CHECK(!takes_winograd(arguments(good, DType::bf16)));
  for (int i = 0; i < 6; ++i) {
    Shape s = good;
    if (i == 0) s.kernel[1] = 2;
    if (i == 1) s.stride[2] = 2;
    if (i == 2) s.dilation[1] = 2;
    if (i == 3) s.groups = 2;
    if (i == 4) s.transposed = true;
    if (i == 5) s.kernel[0] = s.in[0] = 3;
    CHECK(!takes_winograd(arguments(s, DType::f32)));
  }
}

TEST_CASE("conv: random shapes") {
  for (int i = 0; i < 350; ++i) {
    Shape s = {};
    s.groups = pick({1, 1, 1, 2, 3, 8, 20});
    const bool depthwise = s.groups == 8 && coin();
    s.n = pick_in(1, 2);
    s.c = s.groups * (depthwise ? 1 : pick({1, 2, 4, 5, 16, 20}));
    s.oc = s.groups * (depthwise ? 1 : pick({1, 3, 4, 8, 16, 31, 33, 64}));
    s.transposed = pick_in(0, 3) == 0;
    for (size_t d = 0; d < 3; ++d) {
      const bool used = d == 2 || pick_in(0, d == 1 ? 4 : 0) > 0 || (d == 0 && pick_in(0, 5) == 0);
      s.in[d] = used ? pick_in(1, 9) : 1;
      s.kernel[d] = used ? pick_in(1, 4) : 1;
      s.stride[d] = used ? pick_in(1, 3) : 1;
      s.padding[d] = used ? pick_in(0, 3) : 0;
      s.dilation[d] = used ? pick_in(1, 2) : 1;
      s.output_padding[d] = used && s.transposed ? pick_in(0, s.stride[d] - 1) : 0;
    }
    check(s, random_dtype(), random_act(), coin(), coin(), static_cast<int>(pick_in(1, 4)), pick({0, 1, 3}));
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
