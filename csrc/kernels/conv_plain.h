// Convolution of doubles and integers: right, with a dense innermost loop, not tuned.
#pragma once

#include <type_traits>

#include "parallel.h"

namespace aotpack::kernels {

// Everything dense: x [n, c, *in], w [oc, c / groups, *kernel] or, transposed, [c, oc / groups, *kernel], y
// [n, oc, *out]. Dims as in ConvArgs (conv.h): depth, height, width. Integers wrap around.
template <class T>
struct PlainConvArgs {
  int64_t n, c, oc, groups;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  bool transposed;
  const T* x;
  const T* w;
  const T* bias;  // [oc] or null
  T* y;
  int num_threads;
};

namespace detail {
// A tap at distance `at` relates element i of one side to i * stride + at of the other: those i, of `count`, for which
// the latter is within [0, size).
inline Range related(int64_t at, int64_t stride, int64_t count, int64_t size) {
  const int64_t begin = at >= 0 ? 0 : ceil_div(-at, stride);
  const int64_t end = at >= size ? 0 : min64(count, (size - 1 - at) / stride + 1);
  return {begin, max64(begin, end)};
}
}  // namespace detail

template <class T>
void conv_plain(const PlainConvArgs<T>& g) {
  // What integers wrap around in: no promotion to a signed type may overflow.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  const int64_t in = g.in[0] * g.in[1] * g.in[2], out = g.out[0] * g.out[1] * g.out[2];
  const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  const int64_t c_each = g.c / g.groups, oc_each = g.oc / g.groups;
  // Per dim the elements that are stepped through one by one, and those that the stride jumps over.
  const int64_t* counted = g.transposed ? g.in : g.out;
  const int64_t* jumped = g.transposed ? g.out : g.in;
  const double work = static_cast<double>(g.n * g.oc) * static_cast<double>(c_each * taps) *
                      static_cast<double>(g.transposed ? in : out);
  parallel(worth_threads(work / 1e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.n * g.oc, thread, threads);
    for (int64_t at = mine.begin; at < mine.end; ++at) {
      const int64_t item = at / g.oc, o = at % g.oc, group = o / oc_each;
      T* y = g.y + at * out;
      for (int64_t i = 0; i < out; ++i) y[i] = g.bias != nullptr ? g.bias[o] : T(0);
      for (int64_t j = 0; j < c_each; ++j) {
        const int64_t c = group * c_each + j;
        const T* x = g.x + (item * g.c + c) * in;
        const T* w = g.w + (g.transposed ? c * oc_each + o % oc_each : o * c_each + j) * taps;
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t k[3] = {tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]};
          Range range[3];
          int64_t shift[3];
          for (int d = 0; d < 3; ++d) {
            shift[d] = k[d] * g.dilation[d] - g.padding[d];
            range[d] = detail::related(shift[d], g.stride[d], counted[d], jumped[d]);
          }
          const Sum weight = static_cast<Sum>(w[tap]);
          for (int64_t a = range[0].begin; a < range[0].end; ++a) {
            for (int64_t b = range[1].begin; b < range[1].end; ++b) {
              const int64_t near = (a * counted[1] + b) * counted[2];
              const int64_t far =
                  ((a * g.stride[0] + shift[0]) * jumped[1] + b * g.stride[1] + shift[1]) * jumped[2] + shift[2];
              T* to = y + (g.transposed ? far : near);
              const T* from = x + (g.transposed ? near : far);
              const int64_t to_step = g.transposed ? g.stride[2] : 1, from_step = g.transposed ? 1 : g.stride[2];
              for (int64_t e = range[2].begin; e < range[2].end; ++e) {
                T& sum = to[e * to_step];
                sum = static_cast<T>(static_cast<Sum>(sum) + weight * static_cast<Sum>(from[e * from_step]));
              }
            }
          }
        }
      }
    }
  });
}

}  // namespace aotpack::kernels
