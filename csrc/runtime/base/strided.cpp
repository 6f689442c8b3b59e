#include "base/strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "aotpack/module_abi.h"
#include "base/bytes.h"

namespace aotpack::runtime {
namespace {

// Strides in bytes.
struct Axis {
  int64_t size;
  int64_t to;
  int64_t from;
};

constexpr int64_t kTile = 16;

// The two innermost axes.
template <size_t item>
void copy_plane(char* to, const char* from, const Axis& outer, const Axis& inner) noexcept {
  if (inner.to == item && inner.from == item) {
    for (int64_t i = 0; i < outer.size; ++i) {
      std::memcpy(to + i * outer.to, from + i * outer.from, static_cast<size_t>(inner.size) * item);
    }
    return;
  }
  // In tiles: when one side is a transpose of the other, a walk along whole rows would use each cache line of that side
  // for one element only.
  for (int64_t i0 = 0; i0 < outer.size; i0 += kTile) {
    const int64_t i1 = std::min(i0 + kTile, outer.size);
    for (int64_t j0 = 0; j0 < inner.size; j0 += kTile) {
      const int64_t j1 = std::min(j0 + kTile, inner.size);
      for (int64_t i = i0; i < i1; ++i) {
        for (int64_t j = j0; j < j1; ++j) {
          std::memcpy(to + i * outer.to + j * inner.to, from + i * outer.from + j * inner.from, item);
        }
      }
    }
  }
}

template <size_t item>
void copy_axes(char* to, const char* from, const Axis* axes, int count) noexcept {
  if (count <= 2) return copy_plane<item>(to, from, axes[0], axes[1]);
  for (int64_t i = 0; i < axes[0].size; ++i) {
    copy_axes<item>(to + i * axes[0].to, from + i * axes[0].from, axes + 1, count - 1);
  }
}

}  // namespace

void strided_copy(void* destination, const int64_t* destination_strides, const void* source,
                  const int64_t* source_strides, const int64_t* sizes, int32_t rank, size_t item) noexcept {
  Axis axes[AOTPACK_MAX_RANK + 2];
  int count = 0;
  const auto bytes = static_cast<int64_t>(item);
  for (int32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return;
    if (sizes[i] == 1) continue;  // may have any stride, also one that overflows in bytes
    axes[count++] = {sizes[i], destination_strides[i] * bytes, source_strides[i] * bytes};
  }
  // Outermost first by the destination, then neighbours that are one run in both are joined.
  for (int i = 1; i < count; ++i) {  // a stable sort that needs no memory
    for (int j = i; j > 0 && std::llabs(axes[j - 1].to) < std::llabs(axes[j].to); --j) std::swap(axes[j - 1], axes[j]);
  }
  int joined = 0;
  for (int i = 1; i < count; ++i) {
    Axis& outer = axes[joined];
    const Axis& inner = axes[i];
    if (outer.to == inner.to * inner.size && outer.from == inner.from * inner.size) {
      outer = {outer.size * inner.size, inner.to, inner.from};
    } else {
      axes[++joined] = inner;
    }
  }
  if (count > 0) count = joined + 1;
  // At least two axes, so that the innermost loop nest is always a plane.
  Axis padded[AOTPACK_MAX_RANK + 2];
  int length = 0;
  for (int missing = count; missing < 2; ++missing) padded[length++] = {1, 0, 0};
  for (int i = 0; i < count; ++i) padded[length++] = axes[i];
  if (count == 0) padded[1] = {1, bytes, bytes};

  char* to = static_cast<char*>(destination);
  const char* from = static_cast<const char*>(source);
  switch (item) {
    case 1:
      return copy_axes<1>(to, from, padded, length);
    case 2:
      return copy_axes<2>(to, from, padded, length);
    case 4:
      return copy_axes<4>(to, from, padded, length);
    case 8:
      return copy_axes<8>(to, from, padded, length);
    default:  // every DType has one of these sizes
      return copy_axes<16>(to, from, padded, length);
  }
}

bool strided_equal(const void* a, const int64_t* a_strides, const void* b, const int64_t* b_strides,
                   const int64_t* sizes, int32_t rank, size_t item) noexcept {
  if (std::find(sizes, sizes + rank, 0) != sizes + rank) return true;
  if (a == b && same_layout(sizes, a_strides, b_strides, rank)) return true;
  // The dims at the end that are one run in both are compared at once.
  const auto bytes = static_cast<int64_t>(item);
  int64_t run = 1;
  while (rank > 0 && (sizes[rank - 1] == 1 || (a_strides[rank - 1] == run && b_strides[rank - 1] == run))) {
    run *= sizes[--rank];
  }
  const auto length = static_cast<size_t>(run * bytes);
  int64_t index[AOTPACK_MAX_RANK] = {};
  const auto* left = static_cast<const char*>(a);
  const auto* right = static_cast<const char*>(b);
  for (;;) {
    if (std::memcmp(left, right, length) != 0) return false;
    int32_t axis = rank;
    while (axis-- > 0) {
      left += a_strides[axis] * bytes;
      right += b_strides[axis] * bytes;
      if (++index[axis] < sizes[axis]) break;
      index[axis] = 0;
      left -= sizes[axis] * a_strides[axis] * bytes;
      right -= sizes[axis] * b_strides[axis] * bytes;
    }
    if (axis < 0) return true;
  }
}

bool is_non_overlapping(const int64_t* sizes, const int64_t* strides, int32_t rank) noexcept {
  struct Extent {
    int64_t size;
    int64_t stride;
  };
  Extent extents[AOTPACK_MAX_RANK];
  int count = 0;
  for (int32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] == 1) continue;
    if (strides[i] == INT64_MIN) return false;
    extents[count++] = {sizes[i], std::llabs(strides[i])};
  }
  std::sort(extents, extents + count, [](const Extent& a, const Extent& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // the last element that the axes so far touch
  for (int i = 0; i < count; ++i) {
    if (extents[i].stride <= reach) return false;
    int64_t step;
    if (!checked_mul(extents[i].size - 1, extents[i].stride, &step) || !checked_add(reach, step, &reach)) return false;
  }
  return true;
}

bool dense_strides(const int64_t* sizes, const uint32_t* order, int32_t rank, size_t item, int64_t* out_strides,
                   size_t* out_bytes) noexcept {
  int64_t run = 1;
  bool empty = false;
  for (int32_t i = rank; i-- > 0;) {
    const uint32_t axis = order[i];
    out_strides[axis] = run;
    if (sizes[axis] == 0) {
      empty = true;
    } else if (!checked_mul(run, sizes[axis], &run)) {
      return false;
    }
  }
  int64_t bytes;
  if (!checked_mul(run, static_cast<int64_t>(item), &bytes)) return false;
  *out_bytes = empty ? 0 : static_cast<size_t>(bytes);
  return true;
}

bool same_layout(const int64_t* sizes, const int64_t* a, const int64_t* b, int32_t rank) noexcept {
  bool same = true;
  for (int32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return true;
    same &= sizes[i] == 1 || a[i] == b[i];
  }
  return same;
}

}  // namespace aotpack::runtime
