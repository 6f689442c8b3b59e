#include "embedding_bag.h"

#include <atomic>

#include "element_types.h"
#include "parallel.h"
#include "simd.h"

namespace aotpack::kernels {
namespace {

constexpr int kVectors = 4;            // of a row that are summed in registers at a time
constexpr int64_t kPrefetchAhead = 6;  // rows lie anywhere in a large table

template <class T, class Index>
struct Bags {
  const EmbeddingBagArgs& g;
  const Index* indices;
  const Index* offsets;
  const T* table;

  Range bag(int64_t i) const {
    if (offsets == nullptr) return {i * g.bag_length, (i + 1) * g.bag_length};
    return {offsets[i], i + 1 < g.num_offsets ? static_cast<int64_t>(offsets[i + 1]) : g.num_indices};
  }

  bool in_range(Range r) const {
    bool fine = true;
    for (int64_t i = r.begin; i < r.end; ++i) {
      const int64_t index = indices[i];
      fine &= index >= 0 && index < g.rows;
    }
    return fine;
  }

  // Elements [at, at + vectors * kWidth) of the bag's result; only `last` elements of the last vector exist.
  template <int vectors>
  void columns(Range r, int64_t at, int last, T* y) const {
    const auto fetch = [&](const T* p, int v) {
      return v + 1 == vectors && last < kWidth ? load_partial(p + v * kWidth, last) : load(p + v * kWidth);
    };
    vf acc[vectors] = {};
    int64_t counted = 0;
    for (int64_t i = r.begin; i < r.end; ++i) {
      if (i + kPrefetchAhead < r.end) {
        __builtin_prefetch(table + static_cast<int64_t>(indices[i + kPrefetchAhead]) * g.weight_stride + at);
      }
      const int64_t index = indices[i];
      if (index == g.padding_idx) continue;
      const T* row = table + index * g.weight_stride + at;
      if (g.mode == BagMode::max) {
        AOTPACK_UNROLL
        for (int v = 0; v < vectors; ++v) {
          const vf x = fetch(row, v);
          acc[v] = counted == 0 ? x : x > acc[v] ? x : acc[v];
        }
      } else {
        const float scale =
            g.per_sample_weights != nullptr ? to_float(static_cast<const T*>(g.per_sample_weights)[i]) : 1.0f;
        AOTPACK_UNROLL
        for (int v = 0; v < vectors; ++v) acc[v] += scale * fetch(row, v);
      }
      ++counted;
    }
    const float divisor = g.mode == BagMode::mean && counted > 1 ? static_cast<float>(counted) : 1.0f;
    AOTPACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const vf x = acc[v] / divisor;
      if (v + 1 == vectors && last < kWidth) {
        store_partial(y + at + v * kWidth, x, last);
      } else {
        store(y + at + v * kWidth, x);
      }
    }
  }

  void sum(int64_t i) const {
    T* y = static_cast<T*>(g.y) + i * g.y_stride;
    const Range r = bag(i);
    int64_t at = 0;
    for (; at + kVectors * kWidth <= g.dim; at += kVectors * kWidth) columns<kVectors>(r, at, kWidth, y);
    for (; at < g.dim; at += kWidth) columns<1>(r, at, static_cast<int>(min64(kWidth, g.dim - at)), y);
  }

  bool offsets_fine() const {
    if (offsets == nullptr) return true;
    if (g.num_offsets > 0 && offsets[0] != 0) return false;
    int64_t before = 0;
    for (int64_t i = 0; i < g.num_offsets; ++i) {
      const int64_t offset = offsets[i];
      if (offset < before || offset > g.num_indices) return false;
      before = offset;
    }
    return true;
  }

  BagStatus run() const {
    if (!offsets_fine()) return BagStatus::bad_offsets;
    const int64_t bags = embedding_bag_count(g);
    if (offsets == nullptr && bags * g.bag_length > g.num_indices) return BagStatus::bad_offsets;
    std::atomic<bool> fine{true};
    const double bytes = static_cast<double>(g.num_indices) * static_cast<double>(g.dim) * sizeof(T);
    const double us = bytes / 10e3 + static_cast<double>(g.num_indices) * 0.01 + static_cast<double>(bags) * 0.005;
    parallel(worth_threads(us, g.num_threads), [&](int thread, int threads) {
      const Range mine = share(bags, thread, threads);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        if (!in_range(bag(i))) {
          fine.store(false, std::memory_order_relaxed);
          return;
        }
        sum(i);
      }
    });
    return fine.load() ? BagStatus::ok : BagStatus::index_out_of_range;
  }
};

template <class T>
BagStatus run(const EmbeddingBagArgs& g) {
  const T* table = static_cast<const T*>(g.weight);
  if (g.wide_indices) {
    return Bags<T, int64_t>{g, static_cast<const int64_t*>(g.indices), static_cast<const int64_t*>(g.offsets), table}
        .run();
  }
  return Bags<T, int32_t>{g, static_cast<const int32_t*>(g.indices), static_cast<const int32_t*>(g.offsets), table}
      .run();
}

}  // namespace

int64_t embedding_bag_count(const EmbeddingBagArgs& g) {
  if (g.offsets == nullptr) return g.bag_length > 0 ? g.num_indices / g.bag_length : 0;
  return g.include_last_offset ? max64(g.num_offsets - 1, 0) : g.num_offsets;
}

BagStatus embedding_bag(const EmbeddingBagArgs& args) {
  return with_type(args.dtype, [&]<class T>() { return run<T>(args); });
}

}  // namespace aotpack::kernels
