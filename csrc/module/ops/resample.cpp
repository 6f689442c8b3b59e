// Resampling: one dim after the other, each by a table of the places and weights that make an element of the result.
// The backward goes through the same tables in the other direction.
#include "declare/resample.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

enum class Mode { nearest, nearest_exact, linear, cubic, linear_aa, cubic_aa, lanczos_aa };

// Element i of the long side of the table is made of `count(i)` elements of the other. C: what torch computes in.
template <typename C>
struct Table {
  int64_t inputs, outputs, most;  // `most`: taps of one output
  int64_t* places;                // [outputs, most]
  C* weights;                     // [outputs, most]
  int64_t* counts;                // [outputs]
};

// UpSample.h of ATen, area_pixel_compute_scale.
template <typename C>
C scale_of(int64_t inputs, int64_t outputs, bool align_corners, double given) {
  if (align_corners) return outputs > 1 ? static_cast<C>(inputs - 1) / static_cast<C>(outputs - 1) : C(0);
  return given > 0 ? static_cast<C>(1.0 / given) : static_cast<C>(inputs) / static_cast<C>(outputs);
}

// Keys 1981, "Cubic convolution interpolation for digital image processing".
template <typename C>
C cubic_near(C x, C a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <typename C>
C cubic_far(C x, C a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

template <typename C>
C filter(Mode mode, C x) {
  x = std::abs(x);
  const auto sinc = [](C v) { return v == C(0) ? C(1) : std::sin(v * C(M_PI)) / (v * C(M_PI)); };
  if (mode == Mode::linear_aa) return x < C(1) ? C(1) - x : C(0);
  if (mode == Mode::cubic_aa) return x < C(1) ? cubic_near(x, C(-0.5)) : x < C(2) ? cubic_far(x, C(-0.5)) : C(0);
  return x < C(3) ? sinc(x) * sinc(x / C(3)) : C(0);
}

template <typename C>
C support_of(Mode mode, C scale) {
  const C reach = mode == Mode::linear_aa ? C(1) : mode == Mode::cubic_aa ? C(2) : C(3);
  return scale >= C(1) ? reach * scale : reach;
}

template <typename C>
int64_t taps_of(Mode mode, C scale) {
  if (mode == Mode::nearest || mode == Mode::nearest_exact) return 1;
  if (mode == Mode::linear) return 2;
  if (mode == Mode::cubic) return 4;
  return static_cast<int64_t>(std::ceil(support_of(mode, scale))) * 2 + 1;
}

int64_t nearest_place(Mode mode, int64_t i, int64_t inputs, int64_t outputs, double given) {
  if (mode == Mode::nearest) {
    if (outputs == inputs) return i;
    if (outputs == 2 * inputs) return i >> 1;
  }
  const float scale = scale_of<float>(inputs, outputs, false, given);  // float for all dtypes
  const float at = mode == Mode::nearest ? static_cast<float>(i) * scale
                                         : static_cast<float>((static_cast<double>(i) + 0.5) * scale);
  return std::min(static_cast<int64_t>(std::floor(at)), inputs - 1);
}

// The taps of output i.
template <typename C>
void fill(Table<C>* table, Mode mode, bool align_corners, double given, C scale, int64_t i) {
  int64_t* places = table->places + i * table->most;
  C* weights = table->weights + i * table->most;
  int64_t& count = table->counts[i];
  const int64_t inputs = table->inputs, outputs = table->outputs;
  if (mode == Mode::nearest || mode == Mode::nearest_exact || (mode == Mode::linear && inputs == outputs)) {
    count = 1;
    places[0] = mode == Mode::linear ? i : nearest_place(mode, i, inputs, outputs, given);
    weights[0] = C(1);
    return;
  }
  if (mode == Mode::linear || mode == Mode::cubic) {
    C at = align_corners ? scale * static_cast<C>(i) : scale * (static_cast<C>(i) + C(0.5)) - C(0.5);
    if (mode == Mode::linear && at < C(0)) at = C(0);
    const int64_t first = std::min(static_cast<int64_t>(std::floor(at)), inputs - 1);
    const C t = std::min(std::max(at - static_cast<C>(first), C(0)), C(1));
    if (mode == Mode::linear) {
      count = 2;
      places[0] = first, places[1] = std::min(first + 1, inputs - 1);
      weights[0] = C(1) - t, weights[1] = t;
      return;
    }
    count = 4;
    const C a = C(-0.75);
    const C values[4] = {cubic_far(t + 1, a), cubic_near(t, a), cubic_near(1 - t, a), cubic_far(2 - t, a)};
    for (int64_t j = 0; j < 4; ++j) {
      places[j] = std::min(std::max(first - 1 + j, int64_t{0}), inputs - 1);
      weights[j] = values[j];
    }
    return;
  }
  const C support = support_of(mode, scale), center = scale * (static_cast<C>(i) + C(0.5));
  const C inverse = scale >= C(1) ? C(1) / scale : C(1);
  const int64_t first = std::max(static_cast<int64_t>(center - support + C(0.5)), int64_t{0});
  count = std::min(static_cast<int64_t>(center + support + C(0.5)), inputs) - first;
  count = std::min(std::max(count, int64_t{0}), table->most);
  C total = 0;
  for (int64_t j = 0; j < count; ++j) {
    places[j] = first + j;
    weights[j] = filter(mode, (static_cast<C>(first + j) - center + C(0.5)) * inverse);
    total += weights[j];
  }
  for (int64_t j = 0; j < count && total != C(0); ++j) weights[j] /= total;
}

// [outer, inputs, inner] → [outer, outputs, inner].
template <typename C>
void forward_pass(const Table<C>& table, int64_t outer, int64_t inner, const C* x, C* y) {
  const int64_t rows = outer * table.outputs;
  const int64_t parts = parts_for(rows, static_cast<double>(inner * table.most) * 0.5);
  for_parts(parts, rows, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = row % table.outputs;
      const C* from = x + row / table.outputs * table.inputs * inner;
      C* to = y + row * inner;
      const int64_t* places = table.places + i * table.most;
      const C* weights = table.weights + i * table.most;
      if (inner == 1) {
        C sum = 0;
        for (int64_t j = 0; j < table.counts[i]; ++j) sum += weights[j] * from[places[j]];
        *to = sum;
        continue;
      }
      if (table.counts[i] == 0) std::fill(to, to + inner, C(0));
      for (int64_t j = 0; j < table.counts[i]; ++j) {
        const C weight = weights[j];
        const C* source = from + places[j] * inner;
        if (j == 0) {
          for (int64_t k = 0; k < inner; ++k) to[k] = weight * source[k];
        } else {
          for (int64_t k = 0; k < inner; ++k) to[k] += weight * source[k];
        }
      }
    }
  });
}

// [outer, outputs, inner] → [outer, inputs, inner].
template <typename C>
void backward_pass(const Table<C>& table, int64_t outer, int64_t inner, const C* gradient, C* result) {
  const int64_t parts = parts_for(outer, static_cast<double>(inner * table.most * table.outputs) * 0.5);
  for_parts(parts, outer, [&](int64_t, int64_t begin, int64_t end) {
    std::fill(result + begin * table.inputs * inner, result + end * table.inputs * inner, C(0));
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < table.outputs; ++i) {
        const C* from = gradient + (row * table.outputs + i) * inner;
        for (int64_t j = 0; j < table.counts[i]; ++j) {
          const C weight = table.weights[i * table.most + j];
          C* to = result + (row * table.inputs + table.places[i * table.most + j]) * inner;
          for (int64_t k = 0; k < inner; ++k) to[k] += weight * from[k];
        }
      }
    }
  });
}

template <typename C>
void along(int32_t dim, bool backward, Mode mode, bool align_corners, double given, const Tensor* x, Tensor* y) {
  Table<C> table{};
  table.inputs = (backward ? y : x)->sizes[dim];
  table.outputs = (backward ? x : y)->sizes[dim];
  const C scale = scale_of<C>(table.inputs, table.outputs, align_corners, given);
  table.most = taps_of(mode, scale);
  Scratch places(table.outputs * table.most * 8), weights(table.outputs * table.most * static_cast<int64_t>(sizeof(C)));
  Scratch counts(table.outputs * 8);
  table.places = places.as<int64_t>(), table.weights = weights.as<C>(), table.counts = counts.as<int64_t>();
  for (int64_t i = 0; i < table.outputs; ++i) fill(&table, mode, align_corners, given, scale, i);
  const Around shape(x, dim);
  (backward ? backward_pass<C> : forward_pass<C>)(table, shape.outer, shape.inner, x->as<C>(), y->as<C>());
}

// Of bytes, with antialiasing: weights are rounded to int16, sums are whole numbers and each dim's result is rounded to
// bytes, as in Pillow and, bit for bit, in torch (UpSampleKernel.cpp, "Weights computation for uint8_t").
void along_bytes(int32_t dim, Mode mode, bool align_corners, double given, const Tensor* x, Tensor* y) {
  Table<double> table{};
  table.inputs = x->sizes[dim], table.outputs = y->sizes[dim];
  const double scale = scale_of<double>(table.inputs, table.outputs, align_corners, given);
  table.most = taps_of(mode, scale);
  const int64_t taps = table.outputs * table.most;
  Scratch places(taps * 8), weights(taps * 8), counts(table.outputs * 8), rounded(taps * 4);
  table.places = places.as<int64_t>(), table.weights = weights.as<double>(), table.counts = counts.as<int64_t>();
  double most = 0;
  for (int64_t i = 0; i < table.outputs; ++i) {
    fill(&table, mode, align_corners, given, scale, i);
    for (int64_t j = 0; j < table.counts[i]; ++j) most = std::max(most, table.weights[i * table.most + j]);
  }
  // As many binary digits as the greatest weight leaves of 15.
  int precision = 0;
  while (precision < 22 && static_cast<int>(0.5 + most * (1 << (precision + 1))) < (1 << 15)) ++precision;
  int32_t* whole = rounded.as<int32_t>();
  for (int64_t i = 0; i < table.outputs; ++i) {
    for (int64_t j = i * table.most; j < i * table.most + table.counts[i]; ++j) {
      const double weight = table.weights[j] * (1 << precision);
      whole[j] = static_cast<int16_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
  }
  const Around shape(x, dim);
  const int64_t rows = shape.outer * table.outputs, inner = shape.inner;
  const uint8_t* from = x->as<uint8_t>();
  uint8_t* to = y->as<uint8_t>();
  const int64_t parts = parts_for(rows, static_cast<double>(inner * table.most) * 0.5);
  for_parts(parts, rows, [&](int64_t, int64_t begin, int64_t end) {
    constexpr int64_t kStrip = 256;
    int32_t sums[kStrip];
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = row % table.outputs;
      const uint8_t* source = from + row / table.outputs * table.inputs * inner;
      for (int64_t start = 0; start < inner; start += kStrip) {
        const int64_t width = std::min(kStrip, inner - start);
        std::fill(sums, sums + width, 1 << (precision - 1));
        for (int64_t j = 0; j < table.counts[i]; ++j) {
          const int32_t weight = whole[i * table.most + j];
          const uint8_t* line = source + table.places[i * table.most + j] * inner + start;
          for (int64_t k = 0; k < width; ++k) sums[k] += weight * line[k];
        }
        for (int64_t k = 0; k < width; ++k) {
          to[row * inner + start + k] = static_cast<uint8_t>(std::clamp(sums[k] >> precision, 0, 255));
        }
      }
    }
  });
}

Tensor* resample(Tensor* x, const int64_t* size, int64_t spatial, int64_t mode_number, bool align_corners,
                 const double* scales, bool backward) {
  const auto mode = static_cast<Mode>(mode_number);
  const bool bytes = x->dtype == AOTPACK_DTYPE_UINT8 && mode >= Mode::linear_aa && !backward;
  if (!is_floating_dtype(x->dtype) && !bytes) throw_invalid(std::string("resampling of ") + dtype_name(x->dtype));
  const int32_t first = x->rank - static_cast<int32_t>(spatial);
  const int32_t wide = bytes || x->dtype == AOTPACK_DTYPE_FLOAT64 ? x->dtype : AOTPACK_DTYPE_FLOAT32;
  Tensor* dense = wide == x->dtype ? contiguous(x) : convert_contiguous(x, wide);
  bool same = true;
  for (int64_t d = 0; d < spatial; ++d) {
    same = same && size[d] == x->sizes[first + d];
    if (size[d] <= 0 || x->sizes[first + d] <= 0) {
      Call::current().drop(dense);
      throw_invalid("Input and output sizes should be greater than 0");
    }
  }
  // Torch copies then, whatever the scales are.
  const bool copied = same && backward && mode == Mode::cubic;
  for (int32_t d = x->rank - 1; d >= first && !copied; --d) {
    // As torch has it, whatever the scale is.
    if (!backward && mode >= Mode::linear_aa && size[d - first] == x->sizes[d]) continue;
    Owned source(dense);
    dense = nullptr;
    int64_t sizes[AOTPACK_MAX_RANK];
    std::copy(source->sizes, source->sizes + x->rank, sizes);
    sizes[d] = size[d - first];
    Owned target(Call::current().empty_contiguous(x->rank, sizes, wide));
    const double given = scales[d - first];
    if (bytes) {
      along_bytes(d, mode, align_corners, given, source.get(), target.get());
    } else if (wide == AOTPACK_DTYPE_FLOAT64) {
      along<double>(d, backward, mode, align_corners, given, source.get(), target.get());
    } else {
      along<float>(d, backward, mode, align_corners, given, source.get(), target.get());
    }
    dense = target.release();
  }
  Owned result(dense);
  if (wide != x->dtype) return convert_contiguous(result.get(), x->dtype);
  // A result has memory of its own.
  return result->storage == x->storage ? convert_contiguous(result.get(), wide) : result.release();
}

}  // namespace

void aoti_torch_cpu_resample(AotpackTensor x, const int64_t* size, int64_t size_len, int64_t mode,
                             int32_t align_corners, const double* scales, int64_t, AotpackTensor* ret0) {
  *ret0 = resample(x, size, size_len, mode, align_corners != 0, scales, false);
}

void aoti_torch_cpu_resample_backward(AotpackTensor gradient, const int64_t* size, int64_t size_len, int64_t mode,
                                      int32_t align_corners, const double* scales, int64_t, AotpackTensor* ret0) {
  *ret0 = resample(gradient, size, size_len, mode, align_corners != 0, scales, true);
}
