// Histograms: of one dim with evenly spaced bins (histc), and of several with any edges.
#include "declare/histogram.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

std::string range_text(double low, double high) {
  return "[" + std::to_string(low) + ", " + std::to_string(high) + "]";
}

// The least and greatest of n elements that are `step` apart; NaN if one is, as torch's aminmax has it.
template <typename T>
void extent(const T* x, int64_t n, int64_t step, double* low, double* high) {
  Compute<T> least = x[0], most = x[0];
  for (int64_t i = 0; i < n; ++i) {
    const Compute<T> value = x[i * step];
    if (std::isnan(value)) {
      *low = *high = value;
      return;
    }
    if (value < least) least = value;
    if (value > most) most = value;
  }
  *low = static_cast<double>(least);
  *high = static_cast<double>(most);
}

template <typename F>
void dispatch_floating(int32_t dtype, const char* name, F f) {
  dispatch(dtype, name, [&]<typename T>(T) {
    if constexpr (is_floating<T>) {
      f(T{});
    } else {
      throw_invalid(std::string(name) + " of " + dtype_name(dtype) + " is not supported");
    }
  });
}

// Counts are gathered in double and rounded once.
Tensor* rounded(const double* counts, int32_t rank, const int64_t* sizes, int32_t dtype, const char* name) {
  Owned result(Call::current().empty_contiguous(rank, sizes, dtype));
  const int64_t n = result->numel();
  dispatch_floating(dtype, name, [&]<typename T>(T) {
    for (int64_t i = 0; i < n; ++i) result->as<T>()[i] = convert<T>(counts[i]);
  });
  return result.release();
}

}  // namespace

void aoti_torch_cpu_histc(AotpackTensor self, int64_t bins, double min, double max, AotpackTensor* ret0) {
  if (bins <= 0) throw_invalid("torch.histogram(): bins must be > 0, but got " + std::to_string(bins));
  Owned x(contiguous(self));
  const int64_t n = x->numel();
  Scratch scratch(bins * static_cast<int64_t>(sizeof(double)));
  double* counts = scratch.as<double>();
  std::fill_n(counts, bins, 0.0);
  dispatch_floating(self->dtype, "histc", [&]<typename T>(T) {
    using C = Compute<T>;
    double low = min, high = max;
    if (low == high && n > 0) extent(x->as<T>(), n, 1, &low, &high);
    if (low == high) {
      low -= 1;
      high += 1;
    }
    if (!std::isfinite(low) || !std::isfinite(high))
      throw_invalid("torch.histc: range of " + range_text(low, high) + " is not finite");
    if (!(low < high)) throw_invalid("torch.histc: max must be larger than min");
    // Arithmetic of T: halves are rounded after each step.
    const C left = static_cast<C>(convert<T>(low)), right = static_cast<C>(convert<T>(high));
    const C width = static_cast<C>(convert<T>(right - left)), count = static_cast<C>(convert<T>(bins));
    const T* values = x->as<T>();
    for (int64_t i = 0; i < n; ++i) {
      const C value = values[i];
      if (!(value >= left && value <= right)) continue;  // NaN, too
      const C scaled = static_cast<C>(convert<T>(static_cast<C>(convert<T>(value - left)) * count));
      const C place = static_cast<C>(convert<T>(scaled / width));
      if (!(place < static_cast<C>(bins))) {
        counts[bins - 1] += 1;  // the last bin has its right edge
      } else {
        counts[std::clamp<int64_t>(static_cast<int64_t>(place), 0, bins - 1)] += 1;
      }
    }
  });
  *ret0 = rounded(counts, 1, &bins, self->dtype, "histc");
}

void aoti_torch_cpu_histogram_edges(AotpackTensor x, const int64_t* bins, int64_t bins_len, const double* range,
                                    int64_t range_len, AotpackTensor* ret0) {
  Owned points(contiguous(x));
  const int64_t n = points->sizes[0], dims = points->sizes[1];
  if (bins_len != dims || (range_len != 0 && range_len != 2 * dims))
    throw_invalid("torch.histogramdd: expected " + std::to_string(dims) + " numbers of bins and twice as many bounds");
  int64_t total = 0;
  for (int64_t d = 0; d < dims; ++d) {
    if (bins[d] <= 0) {
      throw_invalid("torch.histogram(): bins must be > 0, but got " + std::to_string(bins[d]) + " for dimension " +
                    std::to_string(d));
    }
    total += bins[d] + 1;
  }
  Owned result(Call::current().empty_contiguous(1, &total, x->dtype));
  dispatch_floating(x->dtype, "histogram", [&]<typename T>(T) {
    using C = Compute<T>;
    T* to = result->as<T>();
    for (int64_t d = 0; d < dims; ++d) {
      double low = 0, high = 1;
      if (range_len != 0) {
        low = range[2 * d];
        high = range[2 * d + 1];
      } else if (n > 0) {
        extent(points->as<T>() + d, n, dims, &low, &high);
      }
      const std::string where = "torch.histogramdd: dimension " + std::to_string(d);
      if (!std::isfinite(low) || !std::isfinite(high))
        throw_invalid(where + "'s range " + range_text(low, high) + " is not finite");
      if (low > high) throw_invalid(where + ": min should not exceed max, but got the range " + range_text(low, high));
      if (low == high) {
        low -= 0.5;
        high += 0.5;
      }
      // From both ends, as torch.linspace does.
      const int64_t count = bins[d] + 1;
      const C first = static_cast<C>(low), last = static_cast<C>(high);
      const C step = (last - first) / static_cast<C>(bins[d]);
      for (int64_t i = 0; i < count; ++i) {
        const C edge = i < count / 2 ? first + step * static_cast<C>(i) : last - step * static_cast<C>(count - 1 - i);
        *to++ = convert<T>(edge);
      }
    }
  });
  *ret0 = result.release();
}

void aoti_torch_cpu_histogram_counts(AotpackTensor x, AotpackTensor edges, const int64_t* bins, int64_t bins_len,
                                     AotpackTensor* weight, AotpackTensor* ret0) {
  Owned points(contiguous(x)), bounds(contiguous(edges));
  Owned weights(weight == nullptr ? nullptr : contiguous(*weight));
  const int64_t n = points->sizes[0], dims = points->sizes[1];
  int64_t total = 1, numbers = 0;
  for (int64_t d = 0; d < bins_len; ++d) {
    if (bins[d] <= 0) throw_invalid("torch.histogram(): bins must be > 0, but got " + std::to_string(bins[d]));
    if (__builtin_mul_overflow(total, bins[d], &total)) throw_invalid("torch.histogramdd: too many bins");
    numbers += bins[d] + 1;
  }
  if (bins_len != dims || bins_len > AOTPACK_MAX_RANK || bounds->numel() != numbers || edges->dtype != x->dtype)
    throw_invalid("torch.histogramdd: edges do not fit the points");
  if (weights.get() != nullptr && (weights->numel() != n || weights->dtype != x->dtype))
    throw_invalid("torch.histogramdd: a weight for each point is expected, of the points' dtype");
  if (dims == 0) total = 0;
  Scratch scratch(std::max<int64_t>(total, 1) * static_cast<int64_t>(sizeof(double)));
  double* counts = scratch.as<double>();
  std::fill_n(counts, std::max<int64_t>(total, 1), 0.0);
  dispatch_floating(x->dtype, "histogram", [&]<typename T>(T) {
    using C = Compute<T>;
    for (int64_t i = 0; i < n && dims > 0; ++i) {
      const T* edge = bounds->as<T>();
      int64_t bin = 0;
      bool inside = true;
      for (int64_t d = 0; d < dims; ++d, edge += bins[d - 1] + 1) {
        const C value = points->as<T>()[i * dims + d];
        inside = value >= static_cast<C>(edge[0]) && value <= static_cast<C>(edge[bins[d]]);
        if (!inside) break;
        const T* above =
            std::upper_bound(edge, edge + bins[d] + 1, value, [](C a, T b) { return a < static_cast<C>(b); });
        // The last bin has its right edge; edges that fall may give a place before the first.
        bin = bin * bins[d] + std::clamp<int64_t>(above - edge - 1, 0, bins[d] - 1);
      }
      if (!inside) continue;
      if (weights.get() == nullptr) {
        counts[bin] += 1;
      } else {
        // Rounded as torch rounds it: where weights cancel out, that is most of a density.
        const C sum = static_cast<C>(counts[bin]) + static_cast<C>(weights->as<T>()[i]);
        counts[bin] = static_cast<double>(sum);
      }
    }
  });
  *ret0 = rounded(counts, static_cast<int32_t>(bins_len), bins, x->dtype, "histogram");
}
