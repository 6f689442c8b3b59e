// Reductions of segments, and their gradients.
#include "declare/segment.h"

#include <optional>
#include <string_view>

#include "ops/common.h"
#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

enum class Reduce { sum, mean, max, min, prod };

Reduce parse(std::string_view name) {
  if (name == "sum") return Reduce::sum;
  if (name == "mean") return Reduce::mean;
  if (name == "max") return Reduce::max;
  if (name == "min") return Reduce::min;
  if (name == "prod") return Reduce::prod;
  throw_invalid("segment_reduce does not know the reduction " + std::string(name));
}

// Data [outer, size, inner] and, for each outer, the bounds of its segments, checked: all of them inside of the data.
struct Segments {
  Owned data;
  int64_t outer, size, inner, count = 0;

  Segments(Tensor* given, Tensor* lengths, Tensor* offsets, int64_t axis, bool complete)
      : data(contiguous(given)), outer(1), size(1), inner(1) {
    Tensor* by = lengths != nullptr ? lengths : offsets;
    if (by == nullptr) throw_invalid("segment_reduce(): Either lengths or offsets must be defined.");
    const int32_t dim = wrap_dim(axis, given->rank);
    if (by->rank != dim + 1 || given->rank < by->rank) {
      throw_invalid("segment_reduce(): lengths or offsets must have as many dims as precede and include the axis");
    }
    for (int32_t d = 0; d < dim; ++d) {
      if (by->sizes[d] != given->sizes[d]) throw_invalid("segment_reduce(): lengths or offsets do not fit the data");
    }
    const Around around(given, dim);
    outer = around.outer;
    size = around.size;
    inner = around.inner;
    Owned values(convert_contiguous(by, AOTPACK_DTYPE_INT64));
    const int64_t stored = by->sizes[dim];
    if (lengths == nullptr && stored < 1) throw_invalid("segment_reduce(): offsets must have at least one element");
    count = lengths != nullptr ? stored : stored - 1;
    bounds_.emplace(outer * (count + 1) * 8);
    for (int64_t o = 0; o < outer; ++o) {
      const int64_t* from = values->as<int64_t>() + o * stored;
      int64_t* to = bounds_->as<int64_t>() + o * (count + 1);
      to[0] = lengths != nullptr ? 0 : from[0];
      if (to[0] < 0) throw_invalid("segment_reduce(): offsets must not be negative");
      for (int64_t i = 0; i < count; ++i) {
        const int64_t length = lengths != nullptr ? from[i] : from[i + 1] - to[i];
        if (length < 0) {
          throw_invalid(lengths != nullptr ? "lengths contains negative value!"
                                           : "segment_reduce(): offsets must not fall");
        }
        if (length > size - to[i]) throw_sum();
        to[i + 1] = to[i] + length;
      }
      if (lengths != nullptr && complete && to[count] != size) throw_sum();
    }
  }

  int64_t rows() const { return outer * count; }

  // Calls `f(place, length, at)` for each place of the result, [outer, count, inner]: as many elements of the data as
  // `length` belong to it, and `at(j)` is where the j-th of them is.
  template <typename F>
  void for_each(F f) const {
    const double work = 2.0 * static_cast<double>(outer * size * inner);
    const int64_t parts = parts_for(rows(), work / std::max<double>(1.0, static_cast<double>(rows())));
    for_parts(parts, rows(), [&](int64_t, int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t o = row / count;
        const int64_t* bounds = bounds_->as<int64_t>() + o * (count + 1) + row % count;
        for (int64_t i = 0; i < inner; ++i) {
          f(row * inner + i, bounds[1] - bounds[0],
            [start = o * size + bounds[0], i, this](int64_t j) { return (start + j) * inner + i; });
        }
      }
    });
  }

 private:
  std::optional<Scratch> bounds_;  // int64 [outer, count + 1]

  [[noreturn]] static void throw_sum() {
    throw_invalid("Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.");
  }
};

template <typename C>
C start_of(Reduce reduce, const double* initial) {
  if (initial != nullptr) return static_cast<C>(*initial);
  if (reduce == Reduce::max) return -std::numeric_limits<C>::infinity();
  if (reduce == Reduce::min) return std::numeric_limits<C>::infinity();
  return reduce == Reduce::prod ? C(1) : C(0);
}

template <typename C>
C joined(Reduce reduce, C so_far, C value) {
  switch (reduce) {
    case Reduce::max:
      return std::isnan(value) || so_far < value ? value : so_far;
    case Reduce::min:
      return std::isnan(value) || value < so_far ? value : so_far;
    case Reduce::prod:
      return so_far * value;
    default:
      return so_far + value;
  }
}

template <typename F>
void dispatch_floating(int32_t dtype, F f) {
  if (!is_floating_dtype(dtype))
    throw_invalid(std::string("segment_reduce of ") + dtype_name(dtype) + " is not supported");
  dispatch(dtype, "segment_reduce", [&](auto tag) {
    if constexpr (is_floating<decltype(tag)>) f(tag);
  });
}

}  // namespace

void aoti_torch_cpu_segment_reduce(AotpackTensor data, const char* reduce, AotpackTensor* lengths,
                                   AotpackTensor* indices, AotpackTensor* offsets, int64_t axis, int32_t unsafe,
                                   double* initial, AotpackTensor* ret0) {
  if (optional(indices) != nullptr) {
    throw_invalid("segment_reduce(): indices based reduction is not supported yet.");
  }
  const Reduce how = parse(reduce);
  const Segments s(data, optional(lengths), optional(offsets), axis, unsafe == 0);
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(data->sizes, data->sizes + data->rank, sizes);
  sizes[wrap_dim(axis, data->rank)] = s.count;
  Owned result(Call::current().empty_contiguous(data->rank, sizes, data->dtype));
  dispatch_floating(data->dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Compute<T>;
    const T* from = s.data->template as<T>();
    T* to = result->as<T>();
    s.for_each([&](int64_t place, int64_t length, auto at) {
      C value = start_of<C>(how, initial);
      for (int64_t j = 0; j < length; ++j) value = joined(how, value, static_cast<C>(from[at(j)]));
      if (how == Reduce::mean && length == 0 && initial == nullptr) value = std::numeric_limits<C>::quiet_NaN();
      if (how == Reduce::mean && length > 0) value /= static_cast<C>(length);
      to[place] = convert<T>(value);
    });
  });
  *ret0 = result.release();
}

void aoti_torch_cpu__segment_reduce_backward(AotpackTensor grad, AotpackTensor output, AotpackTensor data,
                                             const char* reduce, AotpackTensor* lengths, AotpackTensor* offsets,
                                             int64_t axis, double* initial, AotpackTensor* ret0) {
  const Reduce how = parse(reduce);
  const Segments s(data, optional(lengths), optional(offsets), axis, false);
  Owned grads(convert_contiguous(grad, data->dtype)), reduced(convert_contiguous(output, data->dtype));
  if (grads->numel() != s.rows() * s.inner || reduced->numel() != s.rows() * s.inner) {
    throw_invalid("segment_reduce(): the gradient does not fit the result");
  }
  Owned result(Call::current().empty_contiguous(data->rank, data->sizes, data->dtype));
  // Of 0 to the places of no segment.
  std::memset(result->data, 0, static_cast<size_t>(result->numel() * element_size(data->dtype)));
  dispatch_floating(data->dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Compute<T>;
    const T* from = s.data->template as<T>();
    T* to = result->as<T>();
    s.for_each([&](int64_t place, int64_t length, auto at) {
      const C g = static_cast<C>(grads->as<T>()[place]);
      const C value = static_cast<C>(reduced->as<T>()[place]);
      // Several may equal the result.
      auto chosen = [&](int64_t j) {
        const C x = static_cast<C>(from[at(j)]);
        return std::isnan(x) || x == value;
      };
      int64_t sharing = 0;
      if (how == Reduce::max || how == Reduce::min) {
        for (int64_t j = 0; j < length; ++j) sharing += chosen(j) ? 1 : 0;
      }
      // torch (2.11 to 2.13) divides a positive gradient alone; results are to be those of training with it.
      const C shared = g > C(0) && sharing > 1 ? g / static_cast<C>(sharing) : g;
      for (int64_t j = 0; j < length; ++j) {
        C out = g;
        if (how == Reduce::mean) out = g / static_cast<C>(length);
        if (how == Reduce::max || how == Reduce::min) out = chosen(j) ? shared : C(0);
        if (how == Reduce::prod) {
          const C x = static_cast<C>(from[at(j)]);
          if (std::isnan(x) || x == C(0)) {
            C others = start_of<C>(how, initial);
            for (int64_t k = 0; k < length; ++k) {
              if (k != j) others *= static_cast<C>(from[at(k)]);
            }
            out = g * others;
          } else {
            out = g * value / x;
          }
        }
        to[at(j)] = convert<T>(out);
      }
    });
  });
  *ret0 = result.release();
}
