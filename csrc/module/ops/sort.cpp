// Sorting, top-k and k-th value along one dim; binary search.
//
// Elements become unsigned keys in the order of torch (NaN greatest, -0 equal to 0) and are sorted together with their
// places, which makes every order total: stable for free, and the same whatever the number of threads.
#include "declare/sort.h"

#include "ops/order_key.h"
#include "ops/slices.h"
#include "shim.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// A key of 32 bits and its place in one word.
struct Narrow {
  uint64_t word;
  Narrow() = default;
  Narrow(uint32_t key, int64_t place) : word(uint64_t{key} << 32 | static_cast<uint32_t>(place)) {}
  static constexpr int kKeyBits = 32;
  uint64_t key() const { return word >> 32; }
  int64_t place() const { return static_cast<int64_t>(word & 0xffffffffu); }
  bool operator<(const Narrow& other) const { return word < other.word; }
};

struct Broad {
  uint64_t bits;
  int64_t where;
  Broad() = default;
  Broad(uint64_t key, int64_t place) : bits(key), where(place) {}
  static constexpr int kKeyBits = 64;
  uint64_t key() const { return bits; }
  int64_t place() const { return where; }
  bool operator<(const Broad& other) const { return bits != other.bits ? bits < other.bits : where < other.where; }
};

template <typename T>
using Item = std::conditional_t<sizeof(decltype(order_key(T{}))) == 4, Narrow, Broad>;

// Below this std::sort wins.
constexpr int64_t kRadixLength = 512;

// Least significant digit first; items come in order of place, and stay so among equal keys. `spare` holds n items.
template <typename I>
void radix_sort(I* items, I* spare, int64_t n) {
  constexpr int kDigits = I::kKeyBits / 8;
  int64_t counts[kDigits][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = items[i].key();
    for (int d = 0; d < kDigits; ++d) ++counts[d][key >> (8 * d) & 0xff];
  }
  I *from = items, *to = spare;
  for (int d = 0; d < kDigits; ++d) {
    int64_t* starts = counts[d];
    if (starts[from[0].key() >> (8 * d) & 0xff] == n) continue;  // one value for all
    int64_t next = 0;
    for (int v = 0; v < 256; ++v) {
      const int64_t count = starts[v];
      starts[v] = next;
      next += count;
    }
    for (int64_t i = 0; i < n; ++i) to[starts[from[i].key() >> (8 * d) & 0xff]++] = from[i];
    std::swap(from, to);
  }
  if (from != items) std::memcpy(static_cast<void*>(items), from, static_cast<size_t>(n) * sizeof(I));
}

template <typename I>
void sort_items(I* items, I* spare, int64_t n) {
  if (n < kRadixLength) {
    std::sort(items, items + n);
  } else {
    radix_sort(items, spare, n);
  }
}

// Where each 1-d slice along `dim` begins in several tensors.
template <int Views>
struct Slices {
  int32_t rank = 0;
  int64_t sizes[AOTPACK_MAX_RANK];
  int64_t strides[Views][AOTPACK_MAX_RANK];
  int64_t steps[Views];
  int64_t count = 1;

  Slices(const Tensor* const (&tensors)[Views], int32_t dim) {
    for (int32_t d = 0; d < tensors[0]->rank; ++d) {
      if (d == dim) continue;
      sizes[rank] = tensors[0]->sizes[d];
      count *= sizes[rank];
      for (int v = 0; v < Views; ++v) strides[v][rank] = tensors[v]->strides[d];
      ++rank;
    }
    for (int v = 0; v < Views; ++v) steps[v] = tensors[v]->rank == 0 ? 1 : tensors[v]->strides[dim];
  }
  Walk<Views> walk() const {
    Walk<Views> result(rank, sizes);
    for (int v = 0; v < Views; ++v) result.add(v, strides[v]);
    return result;
  }
};

// For every slice of `self`: makes its items, lets `select(items, spare, n)` bring the first `kept` of them into place,
// and writes those out.
template <typename Select>
void select_slices(const Tensor* self, Tensor* values, Tensor* indices, int32_t dim, int64_t kept, bool descending,
                   const char* name, double nanoseconds, Select select) {
  const int64_t n = self->rank == 0 ? 1 : self->sizes[dim];
  const Slices<3> slices({self, values, indices}, dim);
  if (slices.count == 0 || n == 0 || kept == 0) return;
  if (n > int64_t{0xffffffff}) throw_invalid(std::string(name) + " of a dim of 2^32 elements or more is not supported");
  const int64_t parts = parts_for(slices.count, nanoseconds * static_cast<double>(n));
  dispatch(self->dtype, name, [&]<typename T>(T) {
    using I = Item<T>;
    Scratch scratch(parts * 2 * n * static_cast<int64_t>(sizeof(I)));
    for_parts(parts, slices.count, [&](int64_t part, int64_t begin, int64_t end) {
      I* items = scratch.as<I>() + part * 2 * n;
      Walk<3> walk = slices.walk();
      walk.seek(begin);
      for (int64_t s = begin; s < end; ++s, walk.next()) {
        const T* x = self->as<T>() + walk.offset[0];
        for (int64_t i = 0; i < n; ++i) {
          const auto key = order_key(x[i * slices.steps[0]]);
          items[i] = I(descending ? static_cast<decltype(key)>(~key) : key, i);
        }
        select(items, items + n, n);
        T* v = values->as<T>() + walk.offset[1];
        int64_t* p = indices->as<int64_t>() + walk.offset[2];
        for (int64_t i = 0; i < kept; ++i) {
          const int64_t place = items[i].place();
          v[i * slices.steps[1]] = x[place * slices.steps[0]];
          p[i * slices.steps[2]] = place;
        }
      }
    });
  });
}

void sort(const Tensor* self, int64_t dim, bool descending, Tensor** values, Tensor** indices) {
  Call& call = Call::current();
  const int32_t axis = wrap_dim(dim, self->rank);
  int64_t strides[AOTPACK_MAX_RANK];
  dense_strides(self->rank, self->sizes, self->strides, strides);
  Owned sorted(call.empty(self->rank, self->sizes, strides, self->dtype));
  Owned places(call.empty(self->rank, self->sizes, strides, AOTPACK_DTYPE_INT64));
  const int64_t n = self->rank == 0 ? 1 : self->sizes[axis];
  select_slices(self, sorted.get(), places.get(), axis, n, descending, "sort", 20.0,
                [](auto* items, auto* spare, int64_t count) { sort_items(items, spare, count); });
  *values = sorted.release();
  *indices = places.release();
}

// dtype of a comparison between the two, as torch promotes: the higher kind wins, then tensors of a rank over those
// without, then the wider.
int32_t promote(const Tensor* a, const Tensor* b) {
  if (a->dtype == b->dtype) return a->dtype;
  auto kind = [](int32_t dtype) { return is_floating_dtype(dtype) ? 2 : dtype == AOTPACK_DTYPE_BOOL ? 0 : 1; };
  const int ka = kind(a->dtype), kb = kind(b->dtype);
  if (ka != kb) return ka > kb ? a->dtype : b->dtype;
  if ((a->rank == 0) != (b->rank == 0)) return a->rank == 0 ? b->dtype : a->dtype;
  if (is_half_dtype(a->dtype) && is_half_dtype(b->dtype)) return AOTPACK_DTYPE_FLOAT32;
  const int64_t wa = element_size(a->dtype), wb = element_size(b->dtype);
  if (wa == wb) return AOTPACK_DTYPE_INT16;  // uint8 and int8
  const int32_t wide = wa > wb ? a->dtype : b->dtype;
  return wide;
}

Tensor* with_dtype(const Tensor* source, int32_t dtype) {
  return source->dtype == dtype ? contiguous(source) : convert_contiguous(source, dtype);
}

// The number of boundaries below (`right`: up to) each value. Comparisons are written so that NaN goes to the end.
Tensor* search(const Tensor* boundaries, const Tensor* values, const Tensor* sorter, bool as_int32, bool right) {
  if (boundaries->rank == 0) throw_invalid("searchsorted: boundaries need at least one dim");
  const int64_t n = boundaries->sizes[boundaries->rank - 1];
  const bool shared = boundaries->rank == 1;
  bool fits = shared || boundaries->rank == values->rank;
  for (int32_t d = 0; fits && !shared && d + 1 < boundaries->rank; ++d) fits = boundaries->sizes[d] == values->sizes[d];
  if (!fits) throw_invalid("searchsorted: boundaries and values differ in a dim other than the last");
  const int32_t dtype = promote(boundaries, values);
  Owned edges(with_dtype(boundaries, dtype)), wanted(with_dtype(values, dtype));
  Owned order(sorter == nullptr ? nullptr : contiguous(sorter));
  if (sorter != nullptr) {
    if (sorter->dtype != AOTPACK_DTYPE_INT64 || sorter->numel() != boundaries->numel())
      throw_invalid("searchsorted: sorter must be int64 with the shape of the boundaries");
    for (int64_t i = 0; i < order->numel(); ++i) {
      const int64_t place = order->as<int64_t>()[i];
      if (place < 0 || place >= n) throw_invalid("searchsorted: sorter index out of range");
    }
  }
  Owned result(Call::current().empty_contiguous(values->rank, values->sizes,
                                                as_int32 ? AOTPACK_DTYPE_INT32 : AOTPACK_DTYPE_INT64));
  const int64_t total = wanted->numel();
  const int64_t row = shared || values->rank == 0 ? std::max<int64_t>(total, 1) : values->sizes[values->rank - 1];
  const int64_t parts = parts_for(total, 5.0 * std::log2(static_cast<double>(n) + 2));
  dispatch(dtype, "searchsorted", [&]<typename T>(T) {
    for_parts(parts, total, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i / row * n;
        const T* edge = edges->as<T>() + first;
        const int64_t* places = order.get() == nullptr ? nullptr : order->as<int64_t>() + first;
        const T value = wanted->as<T>()[i];
        int64_t low = 0, high = n;
        while (low < high) {
          const int64_t middle = low + (high - low) / 2;
          const T at = edge[places == nullptr ? middle : places[middle]];
          const bool stop = right ? at > value : at >= value;
          (stop ? high : low) = stop ? middle : middle + 1;
        }
        if (as_int32) {
          result->as<int32_t>()[i] = static_cast<int32_t>(low);
        } else {
          result->as<int64_t>()[i] = low;
        }
      }
    });
  });
  return result.release();
}

bool is_right(int32_t right, const char* const* side) {
  if (side == nullptr || *side == nullptr) return right != 0;
  const std::string name(*side);
  if (name != "left" && name != "right") throw_invalid("searchsorted: side can only be left or right, got " + name);
  if (name == "left" && right != 0) throw_invalid("searchsorted: side and right can't be set to opposites");
  return name == "right";
}

}  // namespace

void aoti_torch_cpu_sort(AotpackTensor self, int64_t dim, int32_t descending, AotpackTensor* ret0,
                         AotpackTensor* ret1) {
  sort(self, dim, descending != 0, ret0, ret1);
}

void aoti_torch_cpu_sort_stable(AotpackTensor self, int32_t*, int64_t dim, int32_t descending, AotpackTensor* ret0,
                                AotpackTensor* ret1) {
  sort(self, dim, descending != 0, ret0, ret1);
}

void aoti_torch_cpu_topk(AotpackTensor self, int64_t k, int64_t dim, int32_t largest, int32_t sorted,
                         AotpackTensor* ret0, AotpackTensor* ret1) {
  Call& call = Call::current();
  const int32_t axis = wrap_dim(dim, self->rank);
  const int64_t n = self->rank == 0 ? 1 : self->sizes[axis];
  if (k < 0 || k > n)
    throw_invalid("selected index k out of range: k is " + std::to_string(k) + ", the dim has size " +
                  std::to_string(n));
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(self->sizes, self->sizes + self->rank, sizes);
  if (self->rank > 0) sizes[axis] = k;
  Owned values(call.empty_contiguous(self->rank, sizes, self->dtype));
  Owned indices(call.empty_contiguous(self->rank, sizes, AOTPACK_DTYPE_INT64));
  select_slices(self, values.get(), indices.get(), axis, k, largest != 0, "topk", 5.0,
                [&](auto* items, auto*, int64_t count) {
                  // By values alone, and by the functions that torch calls: so of equal values the same ones are named,
                  // and what is not sorted comes in the same order.
                  const auto less = [](const auto& a, const auto& b) { return a.key() < b.key(); };
                  if (k * 64 <= count) {
                    std::partial_sort(items, items + k, items + count, less);
                    return;
                  }
                  std::nth_element(items, items + k - 1, items + count, less);
                  if (sorted != 0) std::sort(items, items + k - 1, less);
                });
  *ret0 = values.release();
  *ret1 = indices.release();
}

void aoti_torch_cpu_kthvalue(AotpackTensor self, int64_t k, int64_t dim, int32_t keepdim, AotpackTensor* ret0,
                             AotpackTensor* ret1) {
  Call& call = Call::current();
  const int32_t axis = wrap_dim(dim, self->rank);
  const int64_t n = self->rank == 0 ? 1 : self->sizes[axis];
  if (k < 1 || k > n) throw_invalid("kthvalue: selected number k out of range for dimension " + std::to_string(axis));
  int64_t sizes[AOTPACK_MAX_RANK], strides[AOTPACK_MAX_RANK], kept[AOTPACK_MAX_RANK];
  std::copy(self->sizes, self->sizes + self->rank, sizes);
  if (self->rank > 0) sizes[axis] = 1;
  int32_t rank = 0;
  for (int32_t d = 0; d < self->rank; ++d) {
    if (keepdim != 0 || d != axis) kept[rank++] = sizes[d];
  }
  contiguous_strides(self->rank, sizes, strides);
  Owned values(call.empty_contiguous(rank, kept, self->dtype)),
      indices(call.empty_contiguous(rank, kept, AOTPACK_DTYPE_INT64));
  Owned full_values(call.view(values.get(), self->rank, sizes, strides, 0));
  Owned full_indices(call.view(indices.get(), self->rank, sizes, strides, 0));
  select_slices(self, full_values.get(), full_indices.get(), axis, 1, false, "kthvalue", 10.0,
                [&](auto* items, auto*, int64_t count) {
                  std::nth_element(items, items + k - 1, items + count);
                  std::swap(items[0], items[k - 1]);
                });
  *ret0 = values.release();
  *ret1 = indices.release();
}

void aoti_torch_cpu_searchsorted_Tensor(AotpackTensor sorted_sequence, AotpackTensor self, int32_t out_int32,
                                        int32_t right, const char** side, AotpackTensor* sorter, AotpackTensor* ret0) {
  *ret0 = search(sorted_sequence, self, sorter == nullptr ? nullptr : *sorter, out_int32 != 0, is_right(right, side));
}

void aoti_torch_cpu_searchsorted_Scalar(AotpackTensor sorted_sequence, double self, int32_t out_int32, int32_t right,
                                        const char** side, AotpackTensor* sorter, AotpackTensor* ret0) {
  // A number of python: double, unless it is whole among integers.
  const bool whole = !is_floating_dtype(sorted_sequence->dtype) && self == std::floor(self) && std::abs(self) < 0x1p53;
  Owned value(whole ? aotpack_scalar_to_tensor(static_cast<int64_t>(self), AOTPACK_DTYPE_INT64)
                    : aotpack_scalar_to_tensor(self, AOTPACK_DTYPE_FLOAT64));
  *ret0 = search(sorted_sequence, value.get(), sorter == nullptr ? nullptr : *sorter, out_int32 != 0,
                 is_right(right, side));
}

void aoti_torch_cpu_bucketize_Tensor(AotpackTensor self, AotpackTensor boundaries, int32_t out_int32, int32_t right,
                                     AotpackTensor* ret0) {
  if (boundaries->rank != 1) throw_invalid("bucketize: boundaries must be 1-d");
  *ret0 = search(boundaries, self, nullptr, out_int32 != 0, right != 0);
}
