// A depthwise convolution with pointwise ones around it, against the three one after the other.
#include "conv.h"
#include "depthwise_block.h"
#include "linear.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

constexpr int64_t kManyPixels = 32;  // all tiles of so many rows are as large as those of any more

struct Shape {
  int64_t n, c, channels, oc;
  int64_t in[2], kernel[2], stride[2], padding[2], dilation[2];
  bool expand, project;
};

// A pointwise weight [c, oc] as it is packed: zero beyond oc.
Buffer panels(DType dtype, int64_t c, int64_t oc) {
  Buffer packed = Buffer::random(dtype, round_up(oc, kPanel) * c);
  for (int64_t column = oc; column < round_up(oc, kPanel); ++column) {
    for (int64_t i = 0; i < c; ++i) packed.set((column / kPanel * c + i) * kPanel + column % kPanel, 0.0f);
  }
  return packed;
}

void check(const Shape& s, DType dtype, Act first, Act second, Act third, bool bias, bool residual, int threads,
           int64_t offset = 0) {
  DepthwiseBlockArgs g = {};
  g.dtype = dtype;
  g.n = s.n;
  g.channels = s.channels;
  g.c = s.expand ? s.c : s.channels;
  g.oc = s.project ? s.oc : s.channels;
  for (int d = 0; d < 2; ++d) {
    g.in[d] = s.in[d];
    g.kernel[d] = s.kernel[d];
    g.stride[d] = s.stride[d];
    g.padding[d] = s.padding[d];
    g.dilation[d] = s.dilation[d];
    const int64_t room = s.in[d] + 2 * s.padding[d] - s.dilation[d] * (s.kernel[d] - 1) - 1;
    g.out[d] = room < 0 ? 0 : room / s.stride[d] + 1;
  }
  CAPTURE(dtype_name(dtype));
  CAPTURE(g.n);
  CAPTURE(g.c);
  CAPTURE(g.channels);
  CAPTURE(g.oc);
  CAPTURE(g.in[0]);
  CAPTURE(g.in[1]);
  CAPTURE(threads);
  const int64_t pixels_in = g.n * g.in[0] * g.in[1], pixels_out = g.n * g.out[0] * g.out[1];
  const int64_t taps = g.kernel[0] * g.kernel[1];
  const Buffer x = Buffer::random(dtype, pixels_in * g.c, offset), added = Buffer::random(dtype, pixels_out * g.oc);
  const Buffer expand = panels(dtype, g.c, g.channels), project = panels(dtype, g.channels, g.oc);
  const Buffer w = Buffer::random(dtype, taps * g.channels);
  const Buffer bias1 = Buffer::random(dtype, g.channels), bias2 = Buffer::random(dtype, g.channels);
  const Buffer bias3 = Buffer::random(dtype, g.oc);
  g.x = x.data();
  g.x_pixel = g.c;
  if (s.expand) g.expand = {expand.data(), bias ? bias1.data() : nullptr, first};
  g.depthwise = {w.data(), bias ? bias2.data() : nullptr, second};
  if (s.project) g.project = {project.data(), bias ? bias3.data() : nullptr, third};
  g.residual = residual ? added.data() : nullptr;
  g.num_threads = threads;
  Buffer y = Buffer::filled(dtype, pixels_out * g.oc, -77.0f, offset);
  g.y = y.data();
  std::vector<unsigned char> scratch(depthwise_block_scratch_bytes(g), 0xff);
  g.scratch = scratch.data();
  depthwise_block(g);

  g.x_pixel = g.c + pick({1, 3, 16});
  const Buffer some = spread_rows(x, g.c, g.x_pixel, offset);
  Buffer strided = Buffer::filled(dtype, pixels_out * g.oc, -77.0f, offset);
  g.x = some.data();
  g.y = strided.data();
  depthwise_block(g);
  int64_t otherwise = 0;
  for (int64_t i = 0; i < y.size(); ++i) otherwise += !(strided.get(i) == y.get(i));
  CHECK(otherwise == 0);

  Buffer between(dtype, pixels_in * g.channels), reduced(dtype, pixels_out * g.channels);
  Buffer expected = Buffer::filled(dtype, pixels_out * g.oc, -77.0f);
  if (s.expand) {
    linear({dtype, pixels_in, g.channels, g.c, x.data(), g.c, expand.data(), g.expand.bias, nullptr, 0, first,
            between.data(), g.channels, 1});
  }
  ConvArgs d = {};
  d.dtype = dtype;
  d.n = g.n;
  d.c = d.oc = d.groups = g.channels;
  for (int i = 0; i < 3; ++i) {
    d.in[i] = i == 0 ? 1 : g.in[i - 1];
    d.out[i] = i == 0 ? 1 : g.out[i - 1];
    d.kernel[i] = i == 0 ? 1 : g.kernel[i - 1];
    d.stride[i] = i == 0 ? 1 : g.stride[i - 1];
    d.padding[i] = i == 0 ? 0 : g.padding[i - 1];
    d.dilation[i] = i == 0 ? 1 : g.dilation[i - 1];
  }
  d.x = s.expand ? between.data() : x.data();
  d.w_packed = w.data();
  d.bias = g.depthwise.bias;
  d.act = second;
  d.residual = s.project ? nullptr : g.residual;
  d.y = s.project ? reduced.data() : expected.data();
  d.num_threads = 1;
  std::vector<unsigned char> more(conv_scratch_bytes(d), 0xff);
  d.scratch = more.data();
  conv(d);
  if (s.project) {
    linear({dtype, pixels_out, g.oc, g.channels, reduced.data(), g.channels, project.data(), g.project.bias, g.residual,
            g.oc, third, expected.data(), g.oc, 1});
  }
  // A few pixels alone, as in a last band or at the end of a thread's share, are multiplied by a kernel that adds in
  // another order. What is between two convolutions may then be rounded to the next number of its dtype: a few numbers
  // under an output. In float all of this is within the rounding of the sums.
  const double terms = static_cast<double>((s.expand ? g.c : 1) + taps + (s.project ? g.channels : 1));
  double greatest = 0.0;
  for (int64_t i = 0; s.expand && i < between.size(); ++i)
    greatest = std::max(greatest, std::abs(double{between.get(i)}));
  for (int64_t i = 0; s.project && i < reduced.size(); ++i)
    greatest = std::max(greatest, std::abs(double{reduced.get(i)}));
  const double rounded = dtype == DType::f32 ? 0.0 : 4 * tolerance(dtype, greatest, terms);
  int64_t wrong = 0, unequal = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    unequal += !(y.get(i) == expected.get(i));
    wrong += !close(y.get(i), expected.get(i), tolerance(dtype, expected.get(i), terms) + rounded);
  }
  CHECK(wrong == 0);
  // The smallest number of pixels that a thread can have in a band: a row.
  if (g.out[1] >= kManyPixels && g.in[1] >= kManyPixels) CHECK(unequal == 0);
}

Shape square(int64_t c, int64_t channels, int64_t oc, int64_t size, int64_t kernel, int64_t stride) {
  return {1,      c,    channels, oc, {size, size}, {kernel, kernel}, {stride, stride}, {kernel / 2, kernel / 2},
          {1, 1}, true, true};
}

TEST_CASE("depthwise block: the layers of MobileNets") {
  for (const DType dtype : kDTypes) {
    for (const int threads : {1, 2, 3, 16}) {
      check(square(16, 96, 24, 56, 3, 2), dtype, Act::relu6, Act::relu6, Act::none, true, false, threads);
      check(square(24, 144, 24, 40, 3, 1), dtype, Act::relu6, Act::relu6, Act::none, true, true, threads);
      check(square(40, 120, 40, 28, 5, 1), dtype, Act::hardswish, Act::hardswish, Act::none, true, true, threads);
      check(square(64, 384, 64, 14, 3, 1), dtype, Act::relu6, Act::relu6, Act::none, true, true, threads);
      Shape first = square(32, 32, 16, 64, 3, 1);
      first.expand = false;
      check(first, dtype, Act::none, Act::relu6, Act::none, true, false, threads);
      Shape squeezed = square(24, 72, 72, 48, 5, 2);
      squeezed.project = false;
      check(squeezed, dtype, Act::silu, Act::silu, Act::none, true, false, threads);
    }
  }
}

TEST_CASE("depthwise block: random shapes") {
  for (int i = 0; i < 150; ++i) {
    Shape s = {};
    s.n = pick({0, 1, 1, 2, 3});
    s.c = pick_in(1, 40);
    s.channels = pick({1, 3, 8, 15, 16, 17, 32, 33, 96, 130, 200});
    s.oc = pick_in(1, 70);
    for (int d = 0; d < 2; ++d) {
      s.in[d] = pick({1, 2, 5, 7, 12, 17, 30, 45});
      s.kernel[d] = pick({1, 2, 3, 3, 4, 5, 7});
      s.stride[d] = pick({1, 1, 2, 3});
      s.padding[d] = pick_in(0, s.kernel[d]);
      s.dilation[d] = pick({1, 1, 1, 2, 3});
    }
    s.expand = pick_in(0, 3) != 0;
    s.project = pick_in(0, 3) != 0;
    check(s, random_dtype(), random_act(), random_act(), random_act(), coin(), coin(),
          static_cast<int>(pick({1, 1, 2, 3, 5})), pick_in(0, 3));
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
