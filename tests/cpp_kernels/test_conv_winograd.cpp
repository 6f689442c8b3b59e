#include "conv_check.h"

namespace aotpack::kernels::test {
namespace {

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
      const ConvShape s = winograd(tiles, 1, c, 34, 14, 14, 1, 1);
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

TEST_CASE("conv: what Winograd can be asked for") {
  const ConvShape good = winograd(Winograd::four, 1, 8, 8, 5, 5, 1, 1);
  CHECK(takes_winograd(arguments(good, DType::f32)));
  CHECK(!takes_winograd(arguments(good, DType::bf16)));
  for (int i = 0; i < 6; ++i) {
    ConvShape s = good;
    if (i == 0) s.kernel[1] = 2;
    if (i == 1) s.stride[2] = 2;
    if (i == 2) s.dilation[1] = 2;
    if (i == 3) s.groups = 2;
    if (i == 4) s.transposed = true;
    if (i == 5) s.kernel[0] = s.in[0] = 3;
    CHECK(!takes_winograd(arguments(s, DType::f32)));
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
