// Strided copy. Dims are merged where both sides allow it and ordered by the destination's strides, so that the usual
// cases end as a few long runs; a transposition (source runs along another dim than the destination) goes through small
// tiles that stay in L1.
#include <algorithm>

#include "tensor.h"

namespace aotpack::module {

namespace {

struct Dim {
  int64_t size;
  int64_t to;
  int64_t from;
};

template <typename T>
void copy_run(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// The two innermost dims, tiled when they disagree about which one is contiguous.
template <typename T>
void copy_plane(T* to, const T* from, const Dim& outer, const Dim& inner) {
  if (inner.from == 1 || outer.from != 1) {
    for (int64_t i = 0; i < outer.size; ++i)
      copy_run(to + i * outer.to, inner.to, from + i * outer.from, inner.from, inner.size);
    return;
  }
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < outer.size; i0 += kTile) {
    int64_t i1 = std::min(i0 + kTile, outer.size);
    for (int64_t j0 = 0; j0 < inner.size; j0 += kTile) {
      int64_t j1 = std::min(j0 + kTile, inner.size);
      for (int64_t i = i0; i < i1; ++i) {
        for (int64_t j = j0; j < j1; ++j) to[i * outer.to + j * inner.to] = from[i * outer.from + j * inner.from];
      }
    }
  }
}

template <typename T>
void copy_dims(T* to, const T* from, const Dim* dims, int rank, int num_threads) {
  const Dim one{1, 0, 0};
  const Dim& inner = rank > 0 ? dims[rank - 1] : one;
  const Dim& outer = rank > 1 ? dims[rank - 2] : one;
  const int outer_rank = std::max(0, rank - 2);
  int64_t planes = 1;
  for (int d = 0; d < outer_rank; ++d) planes *= dims[d].size;
  const int64_t bytes = planes * outer.size * inner.size * static_cast<int64_t>(sizeof(T));
  auto copy_one = [&](int64_t plane, int64_t begin, int64_t end) {
    T* t = to + begin * outer.to;
    const T* f = from + begin * outer.from;
    for (int d = outer_rank - 1; d >= 0; --d) {
      int64_t index = plane % dims[d].size;
      plane /= dims[d].size;
      t += index * dims[d].to;
      f += index * dims[d].from;
    }
    copy_plane(t, f, Dim{end - begin, outer.to, outer.from}, inner);
  };
  if (bytes < (1 << 18) || num_threads <= 1) {
    for (int64_t p = 0; p < planes; ++p) copy_one(p, 0, outer.size);
  } else if (planes >= num_threads) {
#pragma omp parallel for num_threads(num_threads)
    for (int64_t p = 0; p < planes; ++p) copy_one(p, 0, outer.size);
  } else {
    for (int64_t p = 0; p < planes; ++p) {
      const int64_t step = (outer.size + num_threads - 1) / num_threads;
#pragma omp parallel for num_threads(num_threads)
      for (int64_t i = 0; i < num_threads; ++i) {
        const int64_t begin = std::min(i * step, outer.size);
        copy_one(p, begin, std::min(begin + step, outer.size));
      }
    }
  }
}

struct Wide {
  uint64_t words[2];
};

}  // namespace

void copy_strided(const Tensor* destination, const Tensor* source) {
  Dim dims[AOTPACK_MAX_RANK];
  int rank = 0;
  for (int32_t i = 0; i < source->rank; ++i) {
    if (source->sizes[i] == 0) return;
    if (source->sizes[i] == 1) continue;
    dims[rank++] = Dim{source->sizes[i], destination->strides[i], source->strides[i]};
  }
  std::stable_sort(dims, dims + rank, [](const Dim& a, const Dim& b) { return a.to > b.to; });
  int merged = 0;
  for (int i = 1; i < rank; ++i) {
    Dim& last = dims[merged];
    if (last.to == dims[i].to * dims[i].size && last.from == dims[i].from * dims[i].size) {
      last = Dim{last.size * dims[i].size, dims[i].to, dims[i].from};
    } else {
      dims[++merged] = dims[i];
    }
  }
  if (rank > 0) rank = merged + 1;
  const int threads = Call::current().num_threads();
  switch (element_size(source->dtype)) {
    case 1:
      return copy_dims(destination->as<uint8_t>(), source->as<uint8_t>(), dims, rank, threads);
    case 2:
      return copy_dims(destination->as<uint16_t>(), source->as<uint16_t>(), dims, rank, threads);
    case 4:
      return copy_dims(destination->as<uint32_t>(), source->as<uint32_t>(), dims, rank, threads);
    case 8:
      return copy_dims(destination->as<uint64_t>(), source->as<uint64_t>(), dims, rank, threads);
    default:
      return copy_dims(destination->as<Wide>(), source->as<Wide>(), dims, rank, threads);
  }
}

}  // namespace aotpack::module
