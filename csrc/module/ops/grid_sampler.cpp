// Sampling at the places of a grid (Jaderberg et al. 2015, "Spatial transformer networks"), and its backward. Places,
// padding and rounding are those of ATen's GridSampler.h.
#include "declare/grid_sampler.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

enum class Interpolation { linear, nearest, cubic };
enum class Padding { zeros, border, reflection };

struct Options {
  Interpolation interpolation;
  Padding padding;
  bool align_corners;
};

constexpr int kMostTaps = 4;

// What one coordinate reads along one dim: places, -1 outside, with their weights and derivatives by the coordinate.
template <typename C>
struct Taps {
  int count;
  int64_t places[kMostTaps];
  C weights[kMostTaps], slopes[kMostTaps];
};

template <typename C>
struct Sloped {
  C value, slope;
};

template <typename C>
Sloped<C> clip(Sloped<C> at, int64_t size) {
  const C last = static_cast<C>(size - 1);
  if (at.value <= C(0)) return {C(0), C(0)};
  if (at.value >= last) return {last, C(0)};
  return at;
}

template <typename C>
Sloped<C> reflect(Sloped<C> at, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return {C(0), C(0)};
  const C low = static_cast<C>(twice_low) / 2, span = static_cast<C>(twice_high - twice_low) / 2;
  C from = at.value - low;
  C slope = at.slope;
  if (from < C(0)) from = -from, slope = -slope;
  const C extra = std::fmod(from, span);
  const bool even = std::fmod(std::floor(from / span), C(2)) == C(0);
  return even ? Sloped<C>{extra + low, slope} : Sloped<C>{span - extra + low, -slope};
}

// Where no integer can follow.
template <typename C>
C in_range(C x) {
  return x >= C(-2147483648.0) && x <= C(2147483646.0) ? x : C(-100);
}

template <typename C>
Sloped<C> padded(Sloped<C> at, int64_t size, const Options& options) {
  if (options.padding == Padding::border) at = clip(at, size);
  if (options.padding == Padding::reflection) {
    at = options.align_corners ? reflect(at, 0, 2 * (size - 1)) : reflect(at, -1, 2 * size - 1);
    at = clip(at, size);
  }
  at.value = in_range(at.value);
  return at;
}

int64_t inside(int64_t place, int64_t size) { return place >= 0 && place < size ? place : -1; }

// Keys' cubic convolution with a = -3/4, as resampling has it, and its derivative by t. In double: terms cancel.
template <typename C>
void cubic(double t, C* weights, C* slopes) {
  const double a = -0.75;
  const auto near = [&](double x) { return static_cast<C>(((a + 2) * x - (a + 3)) * x * x + 1); };
  const auto far = [&](double x) { return static_cast<C>(((a * x - 5 * a) * x + 8 * a) * x - 4 * a); };
  const auto near_slope = [&](double x) { return static_cast<C>((3 * (a + 2) * x - 2 * (a + 3)) * x); };
  const auto far_slope = [&](double x) { return static_cast<C>((3 * a * x - 10 * a) * x + 8 * a); };
  weights[0] = far(t + 1), weights[1] = near(t), weights[2] = near(1 - t), weights[3] = far(2 - t);
  slopes[0] = far_slope(t + 1), slopes[1] = near_slope(t);
  slopes[2] = -near_slope(1 - t), slopes[3] = -far_slope(2 - t);
}

template <typename C>
Taps<C> taps_of(C coordinate, int64_t size, const Options& options) {
  const C extent = static_cast<C>(size);
  const Sloped<C> at = options.align_corners ? Sloped<C>{(coordinate + 1) / 2 * (extent - 1), (extent - 1) / 2}
                                             : Sloped<C>{((coordinate + 1) * extent - 1) / 2, extent / 2};
  Taps<C> taps{};
  if (options.interpolation == Interpolation::cubic) {
    taps.count = 4;
    // Places are padded one by one.
    const C from = std::floor(at.value);
    cubic(at.value - from, taps.weights, taps.slopes);
    for (int j = 0; j < 4; ++j) {
      const C place = padded(Sloped<C>{from - 1 + static_cast<C>(j), C(1)}, size, options).value;
      taps.places[j] = inside(static_cast<int64_t>(place), size);
      taps.slopes[j] *= at.slope;
    }
    return taps;
  }
  const Sloped<C> place = padded(at, size, options);
  if (options.interpolation == Interpolation::nearest) {
    taps.count = 1;
    taps.places[0] = inside(static_cast<int64_t>(std::nearbyint(place.value)), size);
    taps.weights[0] = C(1);
    return taps;
  }
  const C floor = std::floor(place.value);
  const auto first = static_cast<int64_t>(floor);
  taps.count = 2;
  taps.places[0] = inside(first, size), taps.places[1] = inside(first + 1, size);
  taps.weights[0] = floor + 1 - place.value, taps.weights[1] = place.value - floor;
  taps.slopes[0] = -place.slope, taps.slopes[1] = place.slope;
  return taps;
}

// Calls f(offset, taps' numbers) for each product of taps that is inside; `offset` into the dense spatial dims.
template <int N, typename C, typename F>
void each_tap(const Taps<C>* taps, const int64_t* sizes, F f) {
  int j[3] = {};
  for (;;) {
    int64_t offset = 0;
    bool fine = true;
    for (int d = 0; d < N; ++d) {
      const int64_t place = taps[d].places[j[d]];
      fine = fine && place >= 0;
      offset = offset * sizes[d] + place;
    }
    if (fine) f(offset, j);
    int d = N - 1;
    for (; d >= 0; --d) {
      if (++j[d] < taps[d].count) break;
      j[d] = 0;
    }
    if (d < 0) return;
  }
}

// All tensors dense; sizes of the spatial dims of input and grid.
template <typename C>
struct Sampling {
  Options options;
  int64_t batch, channels, volume, points;
  const int64_t* sizes;
  const C* input;
  const C* grid;  // the last spatial dim's coordinate comes first

  template <int N>
  void taps(int64_t item, int64_t point, Taps<C>* result) const {
    const C* at = grid + (item * points + point) * N;
    for (int d = 0; d < N; ++d) result[d] = taps_of(at[N - 1 - d], sizes[d], options);
  }
};

template <int N, typename C>
C weight_of(const Taps<C>* taps, const int* j, int sloped = -1) {
  C weight = 1;
  for (int d = 0; d < N; ++d) weight *= (d == sloped ? taps[d].slopes : taps[d].weights)[j[d]];
  return weight;
}

template <int N, typename C>
void forward(const Sampling<C>& s, C* y) {
  const int64_t all = s.batch * s.points;
  for_parts(parts_for(all, static_cast<double>(s.channels) * 10.0), all, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t item = at / s.points, point = at % s.points;
      Taps<C> taps[N];
      s.template taps<N>(item, point, taps);
      C* to = y + item * s.channels * s.points + point;
      for (int64_t c = 0; c < s.channels; ++c) to[c * s.points] = C(0);
      each_tap<N>(taps, s.sizes, [&](int64_t offset, const int* j) {
        const C weight = weight_of<N>(taps, j);
        const C* from = s.input + item * s.channels * s.volume + offset;
        for (int64_t c = 0; c < s.channels; ++c) to[c * s.points] += weight * from[c * s.volume];
      });
    }
  });
}

// input_gradient may be null.
template <int N, typename C>
void backward(const Sampling<C>& s, const C* gradient, C* input_gradient, C* grid_gradient) {
  if (input_gradient != nullptr) std::fill_n(input_gradient, s.batch * s.channels * s.volume, C(0));
  const double cost = static_cast<double>(s.points) * static_cast<double>(s.channels) * 20.0;
  for_parts(parts_for(s.batch, cost), s.batch, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t at = begin * s.points; at < end * s.points; ++at) {
      const int64_t item = at / s.points, point = at % s.points;
      Taps<C> taps[N];
      s.template taps<N>(item, point, taps);
      const C* outer = gradient + item * s.channels * s.points + point;
      double slopes[N] = {};  // of both signs, and often nearly cancelling
      each_tap<N>(taps, s.sizes, [&](int64_t offset, const int* j) {
        const int64_t first = item * s.channels * s.volume + offset;
        const C weight = weight_of<N>(taps, j);
        C product = 0;
        for (int64_t c = 0; c < s.channels; ++c) {
          const C g = outer[c * s.points];
          product += g * s.input[first + c * s.volume];
          if (input_gradient != nullptr) input_gradient[first + c * s.volume] += g * weight;
        }
        for (int d = 0; d < N; ++d) slopes[d] += static_cast<double>(product) * weight_of<N>(taps, j, d);
      });
      for (int d = 0; d < N; ++d) grid_gradient[at * N + N - 1 - d] = static_cast<C>(slopes[d]);
    }
  });
}

// The operands dense in what is computed in.
struct Operands {
  int32_t wide;
  Owned input, grid;

  Operands(Tensor* x, Tensor* g)
      : wide(x->dtype == AOTPACK_DTYPE_FLOAT64 ? AOTPACK_DTYPE_FLOAT64 : AOTPACK_DTYPE_FLOAT32),
        input(dense(x)),
        grid(dense(g)) {
    if (!is_floating_dtype(x->dtype)) throw_invalid(std::string("grid_sampler of ") + dtype_name(x->dtype));
  }
  Tensor* dense(Tensor* t) const { return t->dtype == wide ? contiguous(t) : convert_contiguous(t, wide); }

  template <typename C>
  Sampling<C> sampling(const Options& options) const {
    const int32_t spatial = input->rank - 2;
    Sampling<C> s{options, input->sizes[0], input->sizes[1], 1, 1, input->sizes + 2, input->as<C>(), grid->as<C>()};
    for (int32_t d = 0; d < spatial; ++d) s.volume *= input->sizes[2 + d], s.points *= grid->sizes[1 + d];
    return s;
  }
};

Options options_of(int64_t interpolation, int64_t padding, int32_t align_corners) {
  return {static_cast<Interpolation>(interpolation), static_cast<Padding>(padding), align_corners != 0};
}

Tensor* narrowed(Owned* result, int32_t dtype) {
  return (*result)->dtype == dtype ? result->release() : convert_contiguous(result->get(), dtype);
}

template <int N>
void sample_backward(Tensor* grad_output, Tensor* input, Tensor* grid, const Options& options, bool of_input,
                     AotpackTensor* ret0, AotpackTensor* ret1) {
  const Operands operands(input, grid);
  Owned gradient(operands.dense(grad_output));
  Call& call = Call::current();
  Owned by_input(of_input ? call.empty_contiguous(input->rank, input->sizes, operands.wide) : nullptr);
  Owned by_grid(call.empty_contiguous(grid->rank, grid->sizes, operands.wide));
  const auto run = [&]<typename C>(C) {
    backward<N, C>(operands.sampling<C>(options), gradient->as<C>(), of_input ? by_input->as<C>() : nullptr,
                   by_grid->as<C>());
  };
  operands.wide == AOTPACK_DTYPE_FLOAT64 ? run(double{}) : run(float{});
  Owned first(of_input ? narrowed(&by_input, input->dtype) : nullptr);
  Owned second(narrowed(&by_grid, grid->dtype));
  if (ret0 != nullptr) *ret0 = first.release();
  if (ret1 != nullptr) *ret1 = second.release();
}

}  // namespace

void aoti_torch_cpu_grid_sampler_3d(AotpackTensor input, AotpackTensor grid, int64_t interpolation_mode,
                                    int64_t padding_mode, int32_t align_corners, AotpackTensor* ret0) {
  const Operands operands(input, grid);
  const Options options = options_of(interpolation_mode, padding_mode, align_corners);
  const int64_t sizes[5] = {input->sizes[0], input->sizes[1], grid->sizes[1], grid->sizes[2], grid->sizes[3]};
  Owned y(Call::current().empty_contiguous(5, sizes, operands.wide));
  const auto run = [&]<typename C>(C) { forward<3, C>(operands.sampling<C>(options), y->as<C>()); };
  operands.wide == AOTPACK_DTYPE_FLOAT64 ? run(double{}) : run(float{});
  *ret0 = narrowed(&y, input->dtype);
}

void aoti_torch_cpu_grid_sampler_2d_backward(AotpackTensor grad_output, AotpackTensor input, AotpackTensor grid,
                                             int64_t interpolation_mode, int64_t padding_mode, int32_t align_corners,
                                             const int32_t* output_mask, int64_t, AotpackTensor* ret0,
                                             AotpackTensor* ret1) {
  sample_backward<2>(grad_output, input, grid, options_of(interpolation_mode, padding_mode, align_corners),
                     output_mask[0] != 0, ret0, ret1);
}

void aoti_torch_cpu_grid_sampler_3d_backward(AotpackTensor grad_output, AotpackTensor input, AotpackTensor grid,
                                             int64_t interpolation_mode, int64_t padding_mode, int32_t align_corners,
                                             const int32_t* output_mask, int64_t, AotpackTensor* ret0,
                                             AotpackTensor* ret1) {
  sample_backward<3>(grad_output, input, grid, options_of(interpolation_mode, padding_mode, align_corners),
                     output_mask[0] != 0, ret0, ret1);
}
