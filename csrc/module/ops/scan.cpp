// Running sums, products, maxima and their kin along one dim. Results are contiguous.
#include "declare/scan.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// Columns that advance together when the scanned dim is not the innermost: their accumulators stay in L1.
constexpr int64_t kColumns = 64;

// Runs `scan` on a [outer, size, inner] tensor, in strips of up to kColumns neighbouring columns. `scan(base, columns)`
// handles the strip that begins at element `base`; its rows are `inner` elements apart.
template <typename Scan>
void for_strips(const Around& shape, double nanoseconds, Scan scan) {
  const int64_t strips = (shape.inner + kColumns - 1) / kColumns, items = shape.outer * strips;
  if (shape.size == 0 || items == 0) return;
  const int64_t parts =
      parts_for(items, nanoseconds * static_cast<double>(shape.size * std::min(shape.inner, kColumns)));
  for_parts(parts, items, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t column = item % strips * kColumns;
      const int64_t base = item / strips * shape.size * shape.inner + column;
      if (shape.inner == 1) {
        scan(base, std::integral_constant<int64_t, 1>{});  // the loop over columns goes away
      } else {
        scan(base, std::min(kColumns, shape.inner - column));
      }
    }
  });
}

// torch accumulates float in double and halves in float.
template <typename T>
using Wide = std::conditional_t<is_half<T>, float, std::conditional_t<is_floating<T>, double, T>>;

// y = op over x, both contiguous with the shape of `shape`.
template <typename T, typename Op>
void scan_sums(const T* x, T* y, const Around& shape, Wide<T> first, double nanoseconds, Op op) {
  for_strips(shape, nanoseconds, [&](int64_t base, auto columns) {
    Wide<T> sums[kColumns];
    for (int64_t j = 0; j < columns; ++j) sums[j] = first;
    for (int64_t i = 0; i < shape.size; ++i) {
      const T* from = x + base + i * shape.inner;
      T* to = y + base + i * shape.inner;
      for (int64_t j = 0; j < columns; ++j) {
        sums[j] = op(sums[j], static_cast<Wide<T>>(from[j]));
        to[j] = convert<T>(sums[j]);
      }
    }
  });
}

// `source` with the dtype that the scan works in, contiguous.
Tensor* prepare(const Tensor* source, int32_t dtype) {
  return source->dtype == dtype ? contiguous(source) : convert_contiguous(source, dtype);
}

template <typename Op>
Tensor* cumulate(const Tensor* self, int64_t dim, const int32_t* dtype, const char* name, int first, Op op) {
  const int32_t axis = wrap_dim(dim, self->rank);
  const int32_t result = dtype != nullptr                                                  ? *dtype
                         : is_floating_dtype(self->dtype) || is_complex_dtype(self->dtype) ? self->dtype
                                                                                           : AOTPACK_DTYPE_INT64;
  Owned x(prepare(self, result));
  Owned y(Call::current().empty_contiguous(x->rank, x->sizes, result));
  const Around shape(x.get(), axis);
  dispatch(result, name, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw_invalid(std::string(name) + " of bool is not supported");
    } else {
      scan_sums<T>(x->as<T>(), y->as<T>(), shape, convert<Wide<T>>(first), 1.0, op);
    }
  });
  return y.release();
}

// Signed overflow wraps, as it does in torch.
template <typename T, typename F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    // Through unsigned of at least int's width, which integer promotion leaves alone.
    using Word = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, Unsigned>;
    return static_cast<T>(f(static_cast<Word>(a), static_cast<Word>(b)));
  } else {
    return f(a, b);
  }
}

// values[i] is the greatest (least) of x[0..i] and indices[i] the last place that holds it; NaN beats all.
template <typename T, typename Better>
void scan_extremes(const T* x, T* values, int64_t* indices, const Around& shape, Better better) {
  for_strips(shape, 2.0, [&](int64_t base, auto columns) {
    T best[kColumns];
    int64_t place[kColumns];
    for (int64_t j = 0; j < columns; ++j) {
      best[j] = x[base + j];
      place[j] = 0;
    }
    for (int64_t i = 0; i < shape.size; ++i) {
      const int64_t row = base + i * shape.inner;
      for (int64_t j = 0; j < columns; ++j) {
        const T value = x[row + j];
        if (is_nan(value) || (!is_nan(best[j]) && better(value, best[j]))) {
          best[j] = value;
          place[j] = i;
        }
        values[row + j] = best[j];
        indices[row + j] = place[j];
      }
    }
  });
}

template <typename Better>
void extremes(const Tensor* self, int64_t dim, const char* name, Better better, Tensor** values, Tensor** indices) {
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned x(contiguous(self));
  Owned best(Call::current().empty_contiguous(x->rank, x->sizes, x->dtype));
  Owned places(Call::current().empty_contiguous(x->rank, x->sizes, AOTPACK_DTYPE_INT64));
  const Around shape(x.get(), axis);
  dispatch(x->dtype, name,
           [&]<typename T>(T) { scan_extremes(x->as<T>(), best->as<T>(), places->as<int64_t>(), shape, better); });
  *values = best.release();
  *indices = places.release();
}

}  // namespace

void aoti_torch_cpu_cumsum(AotpackTensor self, int64_t dim, int32_t* dtype, AotpackTensor* ret0) {
  *ret0 = cumulate(self, dim, dtype, "cumsum", 0,
                   [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
}

void aoti_torch_cpu_cumprod(AotpackTensor self, int64_t dim, int32_t* dtype, AotpackTensor* ret0) {
  *ret0 = cumulate(self, dim, dtype, "cumprod", 1,
                   [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
}

void aoti_torch_cpu_logcumsumexp(AotpackTensor self, int64_t dim, AotpackTensor* ret0) {
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned x(contiguous(self));
  Owned y(Call::current().empty_contiguous(x->rank, x->sizes, x->dtype));
  const Around shape(x.get(), axis);
  dispatch(x->dtype, "logcumsumexp", [&]<typename T>(T) {
    if constexpr (!is_floating<T>) {
      throw_invalid(std::string("logcumsumexp of ") + dtype_name(x->dtype) + " is not supported");
    } else {
      using W = Wide<T>;
      scan_sums<T>(x->as<T>(), y->as<T>(), shape, -std::numeric_limits<W>::infinity(), 20.0, [](W a, W b) -> W {
        const W low = std::isnan(b) || b < a ? b : a, high = std::isnan(b) || b > a ? b : a;
        // Equal infinities would give NaN.
        return low != high || std::isfinite(low) ? std::log1p(std::exp(low - high)) + high : high;
      });
    }
  });
  *ret0 = y.release();
}

void aoti_torch_cpu_cummax(AotpackTensor self, int64_t dim, AotpackTensor* ret0, AotpackTensor* ret1) {
  extremes(self, dim, "cummax", [](auto a, auto b) { return a >= b; }, ret0, ret1);
}

void aoti_torch_cpu_cummin(AotpackTensor self, int64_t dim, AotpackTensor* ret0, AotpackTensor* ret1) {
  extremes(self, dim, "cummin", [](auto a, auto b) { return a <= b; }, ret0, ret1);
}
