// Scatter along one dim: out[..., index[i], ...] takes or gathers up src[..., i, ...].
//
// All indices are checked before anything is written. Slices that differ in another dim than the scattered one never
// meet, so they are spread over threads; within a slice sources go in order, so the last of equal indices wins and sums
// do not depend on the number of threads.
#include "declare/scatter.h"

#include "ops/slices.h"
#include "shim.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

constexpr int kMaxRank = AOTPACK_MAX_RANK;

// index and src as [outer dims..., size, inner]: `size` is the scattered dim, `inner` the dim along which memory of
// `out` runs best (or nothing).
struct Layout {
  int32_t rank = 0;  // of the outer dims
  int64_t sizes[kMaxRank];
  int64_t out[kMaxRank], index[kMaxRank], src[kMaxRank];
  int64_t size = 1, out_step = 1, index_step = 1, src_step = 1;
  int64_t inner = 1, out_inner = 0, index_inner = 0, src_inner = 0;
  int64_t outer = 1;
};

// `src` may be null. A tensor of rank 0 counts as one of a single element.
Layout lay_out(const Tensor* out, int32_t dim, const Tensor* index, const Tensor* src) {
  Layout layout;
  if (index->rank == 0) return layout;
  auto stride = [](const Tensor* t, int32_t d) { return t == nullptr || t->rank == 0 ? int64_t{0} : t->strides[d]; };
  int32_t best = -1;
  for (int32_t d = 0; d < index->rank; ++d) {
    if (d != dim && index->sizes[d] > 1 && (best < 0 || stride(out, d) <= stride(out, best))) best = d;
  }
  // A scattered dim that is dense itself goes innermost alone.
  if (best >= 0 && stride(out, dim) < stride(out, best)) best = -1;
  for (int32_t d = 0; d < index->rank; ++d) {
    if (d == dim) {
      layout.size = index->sizes[d];
      layout.out_step = stride(out, d), layout.index_step = stride(index, d), layout.src_step = stride(src, d);
    } else if (d == best) {
      layout.inner = index->sizes[d];
      layout.out_inner = stride(out, d), layout.index_inner = stride(index, d), layout.src_inner = stride(src, d);
    } else {
      layout.sizes[layout.rank] = index->sizes[d];
      layout.out[layout.rank] = stride(out, d), layout.index[layout.rank] = stride(index, d);
      layout.src[layout.rank++] = stride(src, d);
      layout.outer *= index->sizes[d];
    }
  }
  return layout;
}

// op(to, place in src) for every element of index, which is int64 (as_places).
template <typename T, typename Op>
void for_each(const Layout& layout, T* out, const Tensor* indices, Op op) {
  const int64_t* index = indices->as<int64_t>();
  if (layout.size == 0 || layout.outer == 0 || layout.inner == 0) return;
  constexpr int64_t kStrip = 64;
  const int64_t strips = (layout.inner + kStrip - 1) / kStrip, items = layout.outer * strips;
  const int64_t parts = parts_for(items, 1.5 * static_cast<double>(layout.size * std::min(layout.inner, kStrip)));
  for_parts(parts, items, [&](int64_t, int64_t begin, int64_t end) {
    Walk<3> walk(layout.rank, layout.sizes);
    walk.add(0, layout.out);
    walk.add(1, layout.index);
    walk.add(2, layout.src);
    for (int64_t item = begin; item < end; ++item) {
      walk.seek(item / strips);
      const int64_t first = item % strips * kStrip, last = std::min(layout.inner, first + kStrip);
      for (int64_t i = 0; i < layout.size; ++i) {
        const int64_t from_index = walk.offset[1] + i * layout.index_step,
                      from_src = walk.offset[2] + i * layout.src_step;
        for (int64_t j = first; j < last; ++j) {
          const int64_t place = index[from_index + j * layout.index_inner];
          op(out[walk.offset[0] + place * layout.out_step + j * layout.out_inner], from_src + j * layout.src_inner);
        }
      }
    }
  });
}

// int64 places; one type of them keeps the module small.
Tensor* as_places(const Tensor* index) {
  if (index->dtype == AOTPACK_DTYPE_INT64) return Call::current().retain(index);
  if (index->dtype == AOTPACK_DTYPE_INT32) return convert_contiguous(index, AOTPACK_DTYPE_INT64);
  throw_invalid(std::string("scatter(): Expected dtype int32/int64 for index, got ") + dtype_name(index->dtype));
}

// Shapes, then every index.
void check(const Tensor* out, int32_t dim, const Tensor* index, const Tensor* src) {
  if (index->numel() == 0) return;
  if (std::max(index->rank, 1) != std::max(out->rank, 1) ||
      (src != nullptr && std::max(index->rank, 1) != std::max(src->rank, 1))) {
    throw_invalid("Index tensor must have the same number of dimensions as self and src");
  }
  for (int32_t d = 0; d < index->rank; ++d) {
    const int64_t own = out->rank == 0 ? 1 : out->sizes[d],
                  given = src == nullptr || src->rank == 0 ? 1 : src->sizes[d];
    if ((d != dim && index->sizes[d] > own) || (src != nullptr && index->sizes[d] > given)) {
      throw_invalid("Expected index to be no larger than self apart from dimension " + std::to_string(dim) +
                    " and to be no larger than src; it has size " + std::to_string(index->sizes[d]) + " at dimension " +
                    std::to_string(d));
    }
  }
  const int64_t size = out->rank == 0 ? 1 : out->sizes[dim];
  Walk<1> walk(index->rank, index->sizes);
  walk.add(0, index->strides);
  for (int64_t i = index->numel(); i > 0; --i, walk.next()) {
    const int64_t place = index->as<int64_t>()[walk.offset[0]];
    if (place < 0 || place >= size) throw_index(place, dim, size);
  }
}

void start(Tensor* out, const Tensor* self) {
  if (out->data != self->data) copy_strided(out, self);
}

enum class Reduce { kSum, kProd, kMean, kMax, kMin };

Reduce reduction(const char* name) {
  const std::string text(name);
  if (text == "sum" || text == "add") return Reduce::kSum;
  if (text == "prod" || text == "multiply") return Reduce::kProd;
  if (text == "mean") return Reduce::kMean;
  if (text == "amax") return Reduce::kMax;
  if (text == "amin") return Reduce::kMin;
  throw_invalid("reduce argument must be either sum, prod, mean, amax or amin, got " + text);
}

// What a reduction that leaves `self` out begins with.
template <typename T>
T identity(Reduce reduce) {
  using Limits = std::numeric_limits<T>;
  switch (reduce) {
    case Reduce::kProd:
      return T(1);
    case Reduce::kMax:
      return is_floating<T> ? -Limits::infinity() : Limits::lowest();
    case Reduce::kMin:
      return is_floating<T> ? Limits::infinity() : Limits::max();
    default:
      return T(0);
  }
}

template <typename T>
T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  return static_cast<T>(a + b);
}

template <typename T>
T multiply(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a && b;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  return static_cast<T>(a * b);
}

// Integers divide as torch's "floor" does.
template <typename T>
T divide(T sum, int64_t count) {
  if constexpr (std::is_same_v<T, bool>) return sum;
  if constexpr (std::is_integral_v<T>) {
    const int64_t wide = static_cast<int64_t>(sum);
    return static_cast<T>(wide / count - (wide % count < 0));
  }
  return static_cast<T>(sum / static_cast<T>(count));
}

// The mean of what each element of `out` has summed up.
template <typename T>
void divide_by_counts(Tensor* out, int32_t dim, const Tensor* index, bool include_self) {
  const int64_t n = out->numel();
  int64_t dense[kMaxRank];
  contiguous_strides(out->rank, out->sizes, dense);
  Owned counts(Call::current().empty_contiguous(out->rank, out->sizes, AOTPACK_DTYPE_INT64));
  std::fill_n(counts->as<int64_t>(), n, include_self ? 1 : 0);
  const Layout layout = lay_out(counts.get(), dim, index, nullptr);
  for_each(layout, counts->as<int64_t>(), index, [](int64_t& count, int64_t) { ++count; });
  Walk<1> walk(out->rank, out->sizes);
  walk.add(0, out->strides);
  for (int64_t i = 0; i < n; ++i, walk.next()) {
    T& value = out->as<T>()[walk.offset[0]];
    value = divide(value, std::max<int64_t>(counts->as<int64_t>()[i], 1));
  }
}

// `out` holds self.
template <typename T>
void reduce_into(Tensor* out, int32_t dim, const Tensor* index, const Tensor* src, Reduce reduce, bool include_self) {
  const Layout layout = lay_out(out, dim, index, src);
  T* to = out->as<T>();
  const T* from = src->as<T>();
  if (!include_self) {
    const T first = identity<T>(reduce);
    for_each(layout, to, index, [first](T& value, int64_t) { value = first; });
  }
  switch (reduce) {
    case Reduce::kSum:
    case Reduce::kMean:
      for_each(layout, to, index, [from](T& value, int64_t i) { value = add(value, from[i]); });
      break;
    case Reduce::kProd:
      for_each(layout, to, index, [from](T& value, int64_t i) { value = multiply(value, from[i]); });
      break;
    case Reduce::kMax:
      for_each(layout, to, index, [from](T& value, int64_t i) {
        if (is_nan(from[i]) || value < from[i]) value = from[i];
      });
      break;
    case Reduce::kMin:
      for_each(layout, to, index, [from](T& value, int64_t i) {
        if (is_nan(from[i]) || from[i] < value) value = from[i];
      });
      break;
  }
  if (reduce == Reduce::kMean) divide_by_counts<T>(out, dim, index, include_self);
}

void scatter_reduce(Tensor* out, int32_t dim, const Tensor* given, const Tensor* src, Reduce reduce,
                    bool include_self) {
  Owned places(as_places(given));
  const Tensor* index = places.get();
  check(out, dim, index, src);
  if (src->dtype != out->dtype) throw_invalid("scatter(): Expected self.dtype to be equal to src.dtype");
  if (is_half_dtype(out->dtype)) {
    // Gathered up in float and rounded once.
    Owned wide(convert_contiguous(out, AOTPACK_DTYPE_FLOAT32)), values(convert_contiguous(src, AOTPACK_DTYPE_FLOAT32));
    reduce_into<float>(wide.get(), dim, index, values.get(), reduce, include_self);
    aoti_torch_copy_(out, wide.get(), 0);
    return;
  }
  dispatch(out->dtype, "scatter_reduce", [&]<typename T>(T) {
    if constexpr (!is_half<T>) reduce_into<T>(out, dim, index, src, reduce, include_self);
  });
}

}  // namespace

void aoti_torch_cpu_scatter_src_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index,
                                    AotpackTensor src) {
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned places(as_places(index));
  check(self, axis, places.get(), src);
  if (src->dtype != self->dtype) throw_invalid("scatter(): Expected self.dtype to be equal to src.dtype");
  start(out, self);
  const Layout layout = lay_out(out, axis, places.get(), src);
  dispatch_size(out->dtype, [&]<typename T>(T) {
    const T* from = src->as<T>();
    for_each(layout, out->as<T>(), places.get(), [from](T& value, int64_t i) { value = from[i]; });
  });
}

void aoti_torch_cpu_scatter_value_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index,
                                      double value) {
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned places(as_places(index));
  check(self, axis, places.get(), nullptr);
  start(out, self);
  const Layout layout = lay_out(out, axis, places.get(), nullptr);
  dispatch(out->dtype, "scatter", [&]<typename T>(T) {
    const T fill = convert<T>(value);
    for_each(layout, out->as<T>(), places.get(), [fill](T& to, int64_t) { to = fill; });
  });
}

void aoti_torch_cpu_scatter_reduce_two_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index,
                                           AotpackTensor src, const char* reduce, int32_t include_self) {
  const int32_t axis = wrap_dim(dim, self->rank);
  const Reduce kind = reduction(reduce);
  start(out, self);
  scatter_reduce(out, axis, index, src, kind, include_self != 0);
}

void aoti_torch_cpu_index_reduce(AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor source,
                                 const char* reduce, int32_t include_self, AotpackTensor* ret0) {
  const int32_t axis = wrap_dim(dim, self->rank);
  const Reduce kind = reduction(reduce);
  const int64_t length = source->rank == 0 ? 1 : source->sizes[axis];
  if (index->rank > 1 || index->numel() != length) {
    throw_invalid("index_reduce_(): Number of indices (" + std::to_string(index->numel()) +
                  ") should be equal to source.size(dim): (" + std::to_string(length) + ")");
  }
  Owned result(Call::current().empty_contiguous(self->rank, self->sizes, self->dtype));
  copy_strided(result.get(), self);
  // The same as a scatter whose index does not depend on the other dims.
  int64_t strides[kMaxRank] = {};
  if (source->rank > 0) strides[axis] = index->rank == 0 ? 0 : index->strides[0];
  Owned wide(Call::current().view(index, source->rank, source->sizes, strides, aotpack_storage_offset(index)));
  scatter_reduce(result.get(), axis, wide.get(), source, kind, include_self != 0);
  *ret0 = result.release();
}
