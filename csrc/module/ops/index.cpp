// Advanced indexing: reading and writing.
//
// The indexed dims of a tensor become the broadcast shape of their indices, in place where they are adjacent and in
// front where they are not (numpy's rule). All indices are checked before anything is written.
#include "declare/index.h"

#include "ops/nonzero.h"
#include "ops/slices.h"
#include "shim.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

constexpr int kMaxRank = AOTPACK_MAX_RANK;

// Tensors that live as long as an indexing does.
class Keeper {
 public:
  ~Keeper() {
    for (int i = 0; i < count_; ++i) Call::current().drop(tensors_[i]);
  }
  Tensor* keep(Tensor* tensor) {
    if (count_ == kCapacity) {
      Call::current().drop(tensor);
      throw_invalid("too many indices");
    }
    return tensors_[count_++] = tensor;
  }

 private:
  static constexpr int kCapacity = 4 * kMaxRank;
  Tensor* tensors_[kCapacity];
  int count_ = 0;
};

// self[indices]: the view of `self` with its indexed dims taken away, and for each index position an offset that brings
// them back.
//   shape = before + replacement + after
struct Indexing {
  int32_t before = 0, replaced = 0, after = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[kMaxRank];  // of self; 0 in the replaced dims
  int64_t positions = 1;      // of the replaced dims
  int32_t rank() const { return before + replaced + after; }
};

// Expands masks: one index tensor or null per dim of self.
void expand_masks(const Tensor* self, const Tensor* const* given, int64_t given_len, Keeper& keeper,
                  const Tensor** indices) {
  int32_t dim = 0;
  auto room = [&](int32_t needed) {
    if (dim + needed > self->rank)
      throw_invalid("too many indices for tensor of dimension " + std::to_string(self->rank));
  };
  for (int64_t i = 0; i < given_len; ++i) {
    const Tensor* index = given[i];
    if (index == nullptr) {
      room(1);
      indices[dim++] = nullptr;
      continue;
    }
    if (index->dtype == AOTPACK_DTYPE_INT64 || index->dtype == AOTPACK_DTYPE_INT32) {
      room(1);
      indices[dim++] = index;
      continue;
    }
    if (index->dtype != AOTPACK_DTYPE_BOOL && index->dtype != AOTPACK_DTYPE_UINT8) {
      throw_invalid("tensors used as indices must be long, int, byte or bool tensors");
    }
    room(index->rank);
    for (int32_t d = 0; d < index->rank; ++d) {
      if (index->sizes[d] != self->sizes[dim + d]) {
        throw_invalid("the mask's size " + std::to_string(index->sizes[d]) + " at dimension " + std::to_string(d) +
                      " does not match the indexed tensor's size " + std::to_string(self->sizes[dim + d]) +
                      " at dimension " + std::to_string(dim + d));
      }
    }
    const Tensor* dense = keeper.keep(contiguous(index));
    Tensor* places = keeper.keep(places_of_nonzero(dense));
    const int64_t size = places->sizes[1], stride = 1;
    for (int32_t d = 0; d < index->rank; ++d) {
      indices[dim++] = keeper.keep(Call::current().view(places, 1, &size, &stride, d * size));
    }
  }
  while (dim < self->rank) indices[dim++] = nullptr;
}

Indexing plan(const Tensor* self, const Tensor** indices, Keeper& keeper) {
  Indexing result;
  int64_t shape[kMaxRank];
  int32_t shape_rank = 0;
  // Broadcast all indices together.
  for (int32_t d = 0; d < self->rank; ++d) {
    if (indices[d] == nullptr) continue;
    Tensor so_far;
    so_far.rank = shape_rank;
    std::copy(shape, shape + shape_rank, so_far.sizes);
    shape_rank = broadcast_sizes(&so_far, indices[d], shape);
  }
  int32_t first = -1, last = -1, indexed = 0;
  for (int32_t d = 0; d < self->rank; ++d) {
    if (indices[d] == nullptr) continue;
    indices[d] = keeper.keep(expand(indices[d], shape_rank, shape));
    first = first < 0 ? d : first;
    last = d;
    ++indexed;
  }
  const bool adjacent = indexed > 0 && last - first + 1 == indexed;
  int32_t rank = 0;
  auto take = [&](int32_t d) {
    if (rank >= kMaxRank) throw_invalid("an indexing result of this rank is not supported");
    result.sizes[rank] = self->sizes[d];
    result.strides[rank++] = self->strides[d];
  };
  for (int32_t d = 0; adjacent && d < first; ++d) take(d);
  result.before = rank;
  if (rank + shape_rank > kMaxRank) throw_invalid("an indexing result of this rank is not supported");
  for (int32_t d = 0; d < shape_rank; ++d) {
    result.sizes[rank] = shape[d];
    result.strides[rank++] = 0;
    result.positions *= shape[d];
  }
  result.replaced = shape_rank;
  for (int32_t d = 0; d < self->rank; ++d) {
    if (indices[d] == nullptr && !(adjacent && d < first)) take(d);
  }
  result.after = rank - result.before - result.replaced;
  return result;
}

// offsets[p]: where in self the p-th index position lies, in elements. Throws for the first index out of range.
void resolve(const Tensor* self, const Tensor* const* indices, const Indexing& plan, int64_t* offsets) {
  std::fill(offsets, offsets + plan.positions, 0);
  for (int32_t d = 0; d < self->rank; ++d) {
    const Tensor* index = indices[d];
    if (index == nullptr) continue;
    const int64_t size = self->sizes[d], stride = self->strides[d];
    Walk<1> walk(index->rank, index->sizes);
    walk.add(0, index->strides);
    for (int64_t p = 0; p < plan.positions; ++p, walk.next()) {
      const int64_t given = index->dtype == AOTPACK_DTYPE_INT64 ? index->as<int64_t>()[walk.offset[0]]
                                                                : index->as<int32_t>()[walk.offset[0]];
      if (given < -size || given >= size) throw_index(given, d, size);
      offsets[p] += (given < 0 ? given + size : given) * stride;
    }
  }
}

// A few innermost dims of two views, merged where both run on.
struct Block {
  int32_t rank = 0;
  int64_t sizes[kMaxRank], to[kMaxRank], from[kMaxRank];
  int64_t count = 1;

  Block(int32_t n, const int64_t* shape, const int64_t* to_strides, const int64_t* from_strides) {
    for (int32_t d = 0; d < n; ++d) {
      count *= shape[d];
      if (shape[d] == 1) continue;
      if (rank > 0 && to[rank - 1] == to_strides[d] * shape[d] && from[rank - 1] == from_strides[d] * shape[d]) {
        sizes[rank - 1] *= shape[d];
        to[rank - 1] = to_strides[d];
        from[rank - 1] = from_strides[d];
      } else {
        sizes[rank] = shape[d];
        to[rank] = to_strides[d];
        from[rank++] = from_strides[d];
      }
    }
    if (rank == 0) {
      sizes[0] = to[0] = from[0] = 1;
      rank = 1;
    }
  }

  template <typename T, typename F>
  void apply(T* t, const T* f, F op) const {
    const int32_t last = rank - 1;
    const int64_t n = sizes[last], ts = to[last], fs = from[last];
    if (count == 0) return;
    int64_t index[kMaxRank] = {};
    for (;;) {
      if (ts == 1 && fs == 1) {
        for (int64_t i = 0; i < n; ++i) op(t[i], f[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) op(t[i * ts], f[i * fs]);
      }
      int32_t d = last - 1;
      for (; d >= 0; --d) {
        t += to[d];
        f += from[d];
        if (++index[d] < sizes[d]) break;
        t -= sizes[d] * to[d];
        f -= sizes[d] * from[d];
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }
};

// For every position of before × replaced: op on the `after` blocks. Element (b, p, a) of `to` is at to_strides·(b, p,
// a) + to_offsets[p], the same for `from`; an offset array may be null. With `exclusive`, positions may meet at the
// same element of `to`: then only `before` is spread over threads, and positions go in order.
template <typename T, typename F>
void for_blocks(const Indexing& plan, T* to, const int64_t* to_strides, const int64_t* to_offsets, const T* from,
                const int64_t* from_strides, const int64_t* from_offsets, bool exclusive, F op) {
  const int32_t inner = plan.before + plan.replaced;
  const Block block(plan.after, plan.sizes + inner, to_strides + inner, from_strides + inner);
  int64_t before = 1;
  for (int32_t d = 0; d < plan.before; ++d) before *= plan.sizes[d];
  const int64_t items = before * plan.positions;
  if (items == 0 || block.count == 0) return;
  const int64_t units = exclusive ? before : items;
  const double cost = 2.0 + 0.3 * static_cast<double>(block.count);
  const int64_t parts = parts_for(units, exclusive ? cost * static_cast<double>(plan.positions) : cost);
  for_parts(parts, units, [&](int64_t, int64_t begin, int64_t end) {
    if (exclusive) begin *= plan.positions, end *= plan.positions;
    Walk<2> walk(inner, plan.sizes);
    walk.add(0, to_strides);
    walk.add(1, from_strides);
    walk.seek(begin);
    for (int64_t i = begin, p = begin % plan.positions; i < end; ++i, walk.next()) {
      block.apply(to + walk.offset[0] + (to_offsets == nullptr ? 0 : to_offsets[p]),
                  from + walk.offset[1] + (from_offsets == nullptr ? 0 : from_offsets[p]), op);
      if (++p == plan.positions) p = 0;
    }
  });
}

Tensor* index_tensor(const Tensor* self, const Tensor* const* given, int64_t given_len) {
  Keeper keeper;
  const Tensor* indices[kMaxRank];
  expand_masks(self, given, given_len, keeper, indices);
  const Indexing indexing = plan(self, indices, keeper);
  Scratch offsets(indexing.positions * 8);
  resolve(self, indices, indexing, offsets.as<int64_t>());
  int64_t strides[kMaxRank];
  if (self->numel() == 0) {
    contiguous_strides(indexing.rank(), indexing.sizes, strides);
  } else {
    dense_strides(indexing.rank(), indexing.sizes, indexing.strides, strides);
  }
  Owned result(Call::current().empty(indexing.rank(), indexing.sizes, strides, self->dtype));
  dispatch_size(self->dtype, [&]<typename T>(T) {
    for_blocks(indexing, result->as<T>(), result->strides, nullptr, self->as<T>(), indexing.strides,
               offsets.as<int64_t>(), false, [](T& to, const T& from) { to = from; });
  });
  return result.release();
}

// self[indices] = values, or += with `accumulate`; in order of the index positions, so that the last of equal indices
// wins.
void put(Tensor* self, const Tensor* const* given, int64_t given_len, const Tensor* values, bool accumulate) {
  Keeper keeper;
  if (values->dtype != self->dtype) {
    throw_invalid(std::string("Index put requires the source and destination dtypes match, got ") +
                  dtype_name(self->dtype) + " for the destination and " + dtype_name(values->dtype) +
                  " for the source.");
  }
  const Tensor* indices[kMaxRank];
  expand_masks(self, given, given_len, keeper, indices);
  const Indexing indexing = plan(self, indices, keeper);
  Scratch offsets(indexing.positions * 8);
  resolve(self, indices, indexing, offsets.as<int64_t>());
  // torch lets values have leading dims of size 1 that the result lacks.
  Tensor trimmed = *values;
  while (trimmed.rank > indexing.rank() && trimmed.sizes[0] == 1) {
    --trimmed.rank;
    std::copy(trimmed.sizes + 1, trimmed.sizes + 1 + trimmed.rank, trimmed.sizes);
    std::copy(trimmed.strides + 1, trimmed.strides + 1 + trimmed.rank, trimmed.strides);
  }
  const Tensor* source = keeper.keep(expand(&trimmed, indexing.rank(), indexing.sizes));
  if (accumulate) {
    dispatch(self->dtype, "index_put", [&]<typename T>(T) {
      for_blocks(indexing, self->as<T>(), indexing.strides, offsets.as<int64_t>(), source->as<T>(), source->strides,
                 nullptr, true, [](T& to, const T& from) {
                   if constexpr (std::is_same_v<T, bool>) {
                     to = to || from;
                   } else if constexpr (std::is_integral_v<T>) {
                     to = static_cast<T>(static_cast<uint64_t>(to) + static_cast<uint64_t>(from));  // wraps
                   } else {
                     to = T(static_cast<Compute<T>>(to) + static_cast<Compute<T>>(from));
                   }
                 });
    });
  } else {
    dispatch_size(self->dtype, [&]<typename T>(T) {
      for_blocks(indexing, self->as<T>(), indexing.strides, offsets.as<int64_t>(), source->as<T>(), source->strides,
                 nullptr, true, [](T& to, const T& from) { to = from; });
    });
  }
}

// Generated code passes optional tensors as pointers to handles.
void unwrap(const AotpackTensor** indices, int64_t count, const Tensor** out) {
  if (count > kMaxRank) throw_invalid("too many indices");
  for (int64_t i = 0; i < count; ++i) out[i] = indices[i] == nullptr ? nullptr : *indices[i];
}

}  // namespace

void aoti_torch_cpu_index_Tensor(AotpackTensor self, const AotpackTensor** indices, int64_t indices_len,
                                 AotpackTensor* ret0) {
  const Tensor* given[kMaxRank];
  unwrap(indices, indices_len, given);
  *ret0 = index_tensor(self, given, indices_len);
}

void aoti_torch_cpu_index_put(AotpackTensor self, const AotpackTensor** indices, int64_t indices_len,
                              AotpackTensor values, int32_t accumulate, AotpackTensor* ret0) {
  const Tensor* given[kMaxRank];
  unwrap(indices, indices_len, given);
  int64_t strides[kMaxRank];
  dense_strides(self->rank, self->sizes, self->strides, strides);
  Owned result(Call::current().empty(self->rank, self->sizes, strides, self->dtype));
  copy_strided(result.get(), self);
  put(result.get(), given, indices_len, values, accumulate != 0);
  *ret0 = result.release();
}

void aoti_torch_index_put_out(AotpackTensor out, AotpackTensor self, const AotpackTensor* indices, int64_t indices_len,
                              AotpackTensor values, int32_t accumulate) {
  if (out->data != self->data) copy_strided(out, self);
  put(out, indices, indices_len, values, accumulate != 0);
}
