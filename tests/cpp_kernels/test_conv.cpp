#include <cmath>
#include <limits>

#include "conv_check.h"
#include "turns.h"

namespace aotpack::kernels::test {
namespace {

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

// Infinities and NaNs reach the outputs whose windows have them, and no others.
void check_odd_values(const ConvShape& s, DType dtype, int threads) {
  Buffer x = Buffer::random(dtype, s.n * s.in[0] * s.in[1] * s.in[2] * s.c);
  const Buffer w = Buffer::random(dtype, s.oc * s.c * s.kernel[1] * s.kernel[2]), packed = pack(s, w);
  x.set(x.size() / 3, std::numeric_limits<float>::infinity());
  x.set(x.size() / 3 * 2, std::numeric_limits<float>::quiet_NaN());
  const std::vector<double> expected = reference(s, x, w);
  Buffer y = Buffer::filled(dtype, static_cast<int64_t>(expected.size()), -77.0f);
  ConvArgs a = arguments(s, dtype);
  a.x = x.data();
  a.w_packed = packed.data();
  a.y = y.data();
  a.num_threads = threads;
  std::vector<unsigned char> scratch(conv_scratch_bytes(a), 0xff);
  a.scratch = scratch.data();
  conv(a);
  int64_t wrong = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const double value = expected[static_cast<size_t>(i)];
    const double products = static_cast<double>(s.c * s.kernel[1] * s.kernel[2]);
    wrong +=
        std::isfinite(value) ? !close(y.get(i), value, tolerance(dtype, value, products)) : std::isfinite(y.get(i));
  }
  CHECK(wrong == 0);
}

TEST_CASE("conv: values that are not finite") {
  for (const DType dtype : kDTypes) {
    for (const int threads : {1, 3}) {
      check_odd_values(conv2d(3, 64, 1, 31, 30, 7, 2, 3), dtype, threads);
      check_odd_values(conv2d(20, 40, 1, 12, 19, 5, 1, 2), dtype, threads);
      check_odd_values(conv2d(64, 40, 1, 12, 28, 3, 2, 1), dtype, threads);
    }
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
    // Lines that are one half of a tile each, or several, that overlap; an odd number of them; pointwise.
    check(conv2d(64, 40, 1, 28, 28, 3, 2, 1), dtype, Act::relu, true, true, 2);
    check({2, 32, 72, 1, {1, 10, 34}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::silu,
          true, true);
    check({3, 64, 136, 1, {1, 9, 29}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, false}, dtype, Act::none,
          true, true, 3);
    check(conv2d(32, 40, 1, 6, 80, 1, 2, 0), dtype, Act::relu, false, true);
    check({2, 32, 36, 1, {1, 21, 30}, {1, 3, 1}, {1, 4, 1}, {0, 2, 0}, {1, 2, 1}, {0, 0, 0}, false}, dtype, Act::relu,
          true, true);
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
  ConvShape tall = conv2d(160, 160, 160, 90, 30, 3, 1, 1);  // several bands, several chunks of channels
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
  ConvShape tall = conv2d(256, 256, 16, 70, 30, 3, 1, 1);  // several bands, several panels at once, several threads
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

TEST_CASE("conv: every position of every knob") {
  const ConvShape shapes[] = {conv2d(40, 170, 1, 9, 11, 3, 1, 1),
                              conv2d(3, 70, 1, 13, 19, 7, 2, 3),
                              conv2d(300, 70, 1, 5, 7, 1, 1, 0),
                              conv2d(24, 80, 2, 9, 7, 3, 2, 1),
                              conv2d(16, 40, 1, 5, 7, 4, 2, 1, 1, true),
                              winograd(Winograd::two, 2, 40, 70, 19, 15, 1, 1),
                              winograd(Winograd::four, 2, 40, 70, 19, 15, 1, 1)};
  for (const ConvShape& s : shapes) {
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

TEST_CASE("conv: random shapes") {
  for (int i = 0; i < 350; ++i) {
    ConvShape s = {};
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
