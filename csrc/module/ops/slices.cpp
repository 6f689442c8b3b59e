#include "ops/slices.h"

#include "shim.h"

namespace aotpack::module {

void dense_strides(int32_t rank, const int64_t* sizes, const int64_t* strides, int64_t* dense) {
  int32_t order[AOTPACK_MAX_RANK];  // innermost first
  for (int32_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  auto compare = [&](int32_t a, int32_t b) {
    if (strides[a] == 0 || strides[b] == 0) return 0;
    if (strides[a] != strides[b]) return strides[a] < strides[b] ? -1 : 1;
    return sizes[a] > sizes[b] ? 1 : 0;
  };
  for (int32_t i = 1; i < rank; ++i) {
    int32_t moving = i;
    for (int32_t j = i - 1; j >= 0; --j) {
      const int comparison = compare(order[j], order[moving]);
      if (comparison < 0) break;
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      }
    }
  }
  int64_t stride = 1;
  for (int32_t i = 0; i < rank; ++i) {
    dense[order[i]] = stride;
    stride *= std::max<int64_t>(sizes[order[i]], 1);
  }
}

int32_t broadcast_sizes(const Tensor* a, const Tensor* b, int64_t* sizes) {
  const int32_t rank = std::max(a->rank, b->rank);
  for (int32_t d = 0; d < rank; ++d) {
    const int32_t da = d - (rank - a->rank), db = d - (rank - b->rank);
    const int64_t sa = da < 0 ? 1 : a->sizes[da], sb = db < 0 ? 1 : b->sizes[db];
    if (sa != sb && sa != 1 && sb != 1) {
      throw_invalid("The size of tensor a (" + std::to_string(sa) + ") must match the size of tensor b (" +
                    std::to_string(sb) + ") at non-singleton dimension " + std::to_string(d));
    }
    sizes[d] = sa == 1 ? sb : sa;
  }
  return rank;
}

Tensor* expand(const Tensor* source, int32_t rank, const int64_t* sizes) {
  const int32_t lead = rank - source->rank;
  bool fits = lead >= 0;
  int64_t strides[AOTPACK_MAX_RANK];
  for (int32_t d = 0; fits && d < rank; ++d) {
    const int64_t size = d < lead ? 1 : source->sizes[d - lead];
    fits = size == 1 || size == sizes[d];
    strides[d] = size == 1 ? 0 : source->strides[d - lead];
  }
  if (!fits) {
    auto text = [](int32_t n, const int64_t* values) {
      std::string s = "[";
      for (int32_t i = 0; i < n; ++i) s += (i == 0 ? "" : ", ") + std::to_string(values[i]);
      return s + "]";
    };
    throw_invalid("shape mismatch: a tensor of shape " + text(source->rank, source->sizes) +
                  " cannot be broadcast to shape " + text(rank, sizes));
  }
  return Call::current().view(source, rank, sizes, strides, aotpack_storage_offset(const_cast<Tensor*>(source)));
}

Tensor* convert_contiguous(const Tensor* source, int32_t dtype) {
  Owned copy(Call::current().empty_contiguous(source->rank, source->sizes, dtype));
  aoti_torch_copy_(copy.get(), const_cast<Tensor*>(source), 0);
  return copy.release();
}

}  // namespace aotpack::module
