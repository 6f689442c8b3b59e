#include "interleave.h"

#include "parallel.h"

namespace aotpack::kernels {
namespace {

struct Wide {
  uint64_t low, high;
};

// With a number of parts that the compiler knows, it moves whole vectors; 0 for any number.
template <class T, int64_t kParts>
void rows(const InterleaveArgs& g, Range mine) {
  const int64_t parts = kParts > 0 ? kParts : g.parts;
  for (int64_t p = mine.begin; p < mine.end; ++p) {
    T* const to = static_cast<T*>(g.y) + p * g.c * parts;
    if constexpr (kParts > 0) {
      const T* from[kParts];
      for (int64_t j = 0; j < kParts; ++j) from[j] = static_cast<const T*>(g.x[j]) + p * g.x_strides[j];
      for (int64_t i = 0; i < g.c; ++i) {
        for (int64_t j = 0; j < kParts; ++j) to[i * kParts + j] = from[j][i];
      }
    } else {
      for (int64_t j = 0; j < parts; ++j) {
        const T* const from = static_cast<const T*>(g.x[j]) + p * g.x_strides[j];
        for (int64_t i = 0; i < g.c; ++i) to[i * parts + j] = from[i];
      }
    }
  }
}

template <class T>
void rows(const InterleaveArgs& g, Range mine) {
  switch (g.parts) {
    case 2:
      return rows<T, 2>(g, mine);
    case 3:
      return rows<T, 3>(g, mine);
    case 4:
      return rows<T, 4>(g, mine);
    case 8:
      return rows<T, 8>(g, mine);
    default:
      return rows<T, 0>(g, mine);
  }
}

}  // namespace

void interleave(const InterleaveArgs& g) {
  const double bytes = static_cast<double>(g.pixels * g.c) * static_cast<double>(g.parts * g.elem_size);
  parallel(worth_threads(bytes / 10e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.pixels, thread, threads);
    switch (g.elem_size) {
      case 1:
        return rows<uint8_t>(g, mine);
      case 2:
        return rows<uint16_t>(g, mine);
      case 4:
        return rows<uint32_t>(g, mine);
      case 8:
        return rows<uint64_t>(g, mine);
      default:
        return rows<Wide>(g, mine);
    }
  });
}

}  // namespace aotpack::kernels
