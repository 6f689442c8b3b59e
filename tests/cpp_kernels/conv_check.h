// Convolutions against their definition, in double.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "conv.h"
#include "exact.h"
#include "util.h"

namespace aotpack::kernels::test {

struct ConvShape {
  int64_t n, c, oc, groups;
  std::array<int64_t, 3> in, kernel, stride, padding, dilation, output_padding;
  bool transposed;
  Winograd winograd = Winograd::none;
};

inline std::array<int64_t, 3> output_of(const ConvShape& s) {
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
inline int64_t weight_at(const ConvShape& s, int64_t group, int64_t in, int64_t out, int64_t tap) {
  const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], cg = s.c / s.groups, og = s.oc / s.groups;
  if (s.transposed) return ((group * cg + in) * og + out) * taps + tap;
  return ((group * og + out) * cg + in) * taps + tap;
}

// G w G^T as conv.h has it, from double.
inline Buffer pack_winograd(const ConvShape& s, const Buffer& w) {
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

inline Buffer pack(const ConvShape& s, const Buffer& w) {
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

inline std::vector<double> reference(const ConvShape& s, const Buffer& x, const Buffer& w) {
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

inline ConvArgs arguments(const ConvShape& s, DType dtype) {
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

inline void check(const ConvShape& s, DType dtype, Act act = Act::none, bool bias = true, bool residual = false,
                  int threads = 2, int64_t offset = 0, Knobs knobs = {}) {
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
  if (residual) {  // which may lie where the result will
    Buffer both = r;
    ConvArgs over = a;
    over.residual = over.y = both.data();
    std::vector<unsigned char> more(conv_scratch_bytes(over), 0xff);
    over.scratch = more.data();
    conv(over);
    int64_t unequal = 0;
    for (int64_t i = 0; i < outputs; ++i) unequal += both.get(i) != y.get(i);
    CAPTURE(takes_strided(a));
    CHECK(unequal == 0);
  }
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

inline ConvShape conv2d(int64_t c, int64_t oc, int64_t groups, int64_t h, int64_t w, int64_t k, int64_t s, int64_t p,
                        int64_t dil = 1, bool transposed = false, int64_t output_padding = 0) {
  return {2,         c,         oc,        groups,        {1, h, w},
          {1, k, k}, {1, s, s}, {0, p, p}, {1, dil, dil}, {0, output_padding, output_padding},
          transposed};
}

inline ConvShape winograd(Winograd tiles, int64_t n, int64_t c, int64_t oc, int64_t h, int64_t w, int64_t padding_h,
                          int64_t padding_w) {
  ConvShape s = {n, c, oc, 1, {1, h, w}, {1, 3, 3}, {1, 1, 1}, {0, padding_h, padding_w}, {1, 1, 1}, {0, 0, 0}, false};
  s.winograd = tiles;
  return s;
}

}  // namespace aotpack::kernels::test
