// The backward pass of T. Dao et al., "FlashAttention" (algorithm 4). With weights p = exp(s - lse) of scores
// s = scale q k^T + mask, and delta = sum(dy * y) of each query:
//   dv = p^T dy,   ds = p * (dy v^T - delta),   dq = scale ds k,   dk = ds^T (scale q).
// A task is a key head: its keys and values, in the layouts that the products read, and their gradients stay with one
// thread, while the queries that look at it go by in blocks.
#include "attention_backward.h"

#include "attention_blocks.h"
#include "element_types.h"

namespace aotpack::kernels {
namespace {

template <class A>
struct Buffers {
  A *k_columns, *v_columns, *k_rows, *dk, *dv;  // of all keys, in blocks of kBlockKeys
  A *q, *dy, *dq, *scores, *ds, *delta;         // of a block of queries
  int64_t k_padded, v_padded;
  size_t bytes;
};
template <class A>
Buffers<A> carve(const AttentionBackwardArgs& g, void* scratch) {
  Scratch from(scratch);
  Buffers<A> b;
  const int64_t keys = round_up(g.kv_len, kBlockKeys);
  b.k_padded = round_up(g.head_dim, kLanes<A>);
  b.v_padded = round_up(g.v_dim, kLanes<A>);
  b.k_columns = from.take<A>(keys * g.head_dim);
  b.v_columns = from.take<A>(keys * g.v_dim);
  b.k_rows = from.take<A>(keys * b.k_padded);
  b.dk = from.take<A>(keys * b.k_padded);
  b.dv = from.take<A>(keys * b.v_padded);
  b.q = from.take<A>(kBlockQueries * b.k_padded);
  b.dy = from.take<A>(kBlockQueries * b.v_padded);
  b.dq = from.take<A>(kBlockQueries * b.k_padded);
  b.scores = from.take<A>(kBlockQueries * kBlockKeys);
  b.ds = from.take<A>(kBlockQueries * kBlockKeys);
  b.delta = from.take<A>(kBlockQueries);
  b.bytes = from.bytes();
  return b;
}

template <class T>
const T* rows_of(const void* base, const int64_t strides[3], int64_t item, int64_t head, int64_t position = 0) {
  return static_cast<const T*>(base) + item * strides[0] + head * strides[1] + position * strides[2];
}

template <class T, class A>
void put_rows(const A* from, int64_t padded, int64_t rows, int64_t dim, A factor, void* base, const int64_t strides[3],
              int64_t item, int64_t head, int64_t position) {
  T* to = static_cast<T*>(base) + item * strides[0] + head * strides[1] + position * strides[2];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < dim; ++i) {
      T* element = to + r * strides[2] + i;
      if constexpr (std::is_same_v<T, double>) *element = from[r * padded + i] * factor;
      if constexpr (!std::is_same_v<T, double>) from_float(from[r * padded + i] * factor, element);
    }
  }
}

// scores become weights, and ds, which comes in as dy v^T, the gradients of the scores.
template <class A>
void differentiate(A* scores, A* ds, int64_t keys, A lse, A delta) {
  if (lse == kMinusInfinity<A>) keys = 0;  // no key takes part
  exponentials(scores, kBlockKeys, keys == 0 ? A(0) : lse);
  for (int64_t j = 0; j < keys; ++j) ds[j] = scores[j] * (ds[j] - delta);
  for (int64_t j = keys; j < kBlockKeys; ++j) scores[j] = ds[j] = A(0);
}

template <class T, class A>
void queries(const AttentionBackwardArgs& g, const Buffers<A>& b, int64_t item, int64_t head, int64_t first) {
  const int64_t rows = min64(kBlockQueries, g.q_len - first);
  const T* y = rows_of<T>(g.y, g.y_strides, item, head, first);
  bring_rows(rows_of<T>(g.q, g.q_strides, item, head, first), g.q_strides[2], rows, g.head_dim, static_cast<A>(g.scale),
             b.q, b.k_padded);
  bring_rows(rows_of<T>(g.dy, g.dy_strides, item, head, first), g.dy_strides[2], rows, g.v_dim, A(1), b.dy, b.v_padded);
  for (int64_t r = 0; r < rows; ++r) {
    A sum = 0;
    for (int64_t i = 0; i < g.v_dim; ++i) sum += b.dy[r * b.v_padded + i] * element<A>(y[r * g.y_strides[2] + i]);
    b.delta[r] = sum;
  }
  for (int64_t i = 0; i < rows * b.k_padded; ++i) b.dq[i] = A(0);
  const A* lse = rows_of<A>(g.lse, g.lse_strides, item, head, first);
  const int64_t keys = g.causal ? min64(g.kv_len, first + rows) : g.kv_len;
  for (int64_t j = 0; j < keys; j += kBlockKeys) {
    const int64_t count = min64(kBlockKeys, keys - j);
    block_product<A>({rows, kBlockKeys, g.head_dim, b.q, b.k_padded, 1, b.k_columns + j * g.head_dim, kBlockKeys,
                      b.scores, kBlockKeys, false});
    block_product<A>({rows, kBlockKeys, g.v_dim, b.dy, b.v_padded, 1, b.v_columns + j * g.v_dim, kBlockKeys, b.ds,
                      kBlockKeys, false});
    for (int64_t r = 0; r < rows; ++r) {
      A* scores = b.scores + r * kBlockKeys;
      const int64_t mine = g.causal ? max64(0, min64(count, first + r + 1 - j)) : count;
      const void* mask = mask_at<T>(g.mask, g.mask_kind, g.mask_strides, item, head, first + r, j);
      if (mask != nullptr) mask_row<A, T>(mask, g.mask_kind, g.mask_strides[3], mine, scores);
      differentiate(scores, b.ds + r * kBlockKeys, mine, lse[r * g.lse_strides[2]], b.delta[r]);
    }
    block_product<A>(
        {count, b.v_padded, rows, b.scores, 1, kBlockKeys, b.dy, b.v_padded, b.dv + j * b.v_padded, b.v_padded, true});
    block_product<A>(
        {count, b.k_padded, rows, b.ds, 1, kBlockKeys, b.q, b.k_padded, b.dk + j * b.k_padded, b.k_padded, true});
    block_product<A>(
        {rows, b.k_padded, count, b.ds, kBlockKeys, 1, b.k_rows + j * b.k_padded, b.k_padded, b.dq, b.k_padded, true});
  }
  put_rows<T>(b.dq, b.k_padded, rows, g.head_dim, static_cast<A>(g.scale), g.dq, g.dq_strides, item, head, first);
}

template <class T, class A>
void key_head(const AttentionBackwardArgs& g, const Buffers<A>& b, int64_t item, int64_t kv_head) {
  const T* k = rows_of<T>(g.k, g.k_strides, item, kv_head);
  const T* v = rows_of<T>(g.v, g.v_strides, item, kv_head);
  for (int64_t j = 0; j < g.kv_len; j += kBlockKeys) {
    const int64_t count = min64(kBlockKeys, g.kv_len - j);
    const T *keys = k + j * g.k_strides[2], *values = v + j * g.v_strides[2];
    bring_columns(keys, g.k_strides[2], count, g.head_dim, b.k_columns + j * g.head_dim);
    bring_columns(values, g.v_strides[2], count, g.v_dim, b.v_columns + j * g.v_dim);
    bring_rows(keys, g.k_strides[2], count, g.head_dim, A(1), b.k_rows + j * b.k_padded, b.k_padded);
  }
  for (int64_t i = 0; i < g.kv_len * b.k_padded; ++i) b.dk[i] = A(0);
  for (int64_t i = 0; i < g.kv_len * b.v_padded; ++i) b.dv[i] = A(0);
  const int64_t group = g.q_heads / g.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int64_t first = 0; first < g.q_len; first += kBlockQueries) queries<T>(g, b, item, head, first);
  }
  put_rows<T>(b.dk, b.k_padded, g.kv_len, g.head_dim, A(1), g.dk, g.dk_strides, item, kv_head, 0);
  put_rows<T>(b.dv, b.v_padded, g.kv_len, g.v_dim, A(1), g.dv, g.dv_strides, item, kv_head, 0);
}

template <class A>
size_t bytes_of_each(const AttentionBackwardArgs& g) {
  return carve<A>(g, reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

template <class T, class A>
void run(const AttentionBackwardArgs& g) {
  const int64_t tasks = g.batch * g.kv_heads;
  if (tasks <= 0) return;
  const size_t each = bytes_of_each<A>(g);
  const double scores =
      static_cast<double>(g.batch * g.q_heads) * static_cast<double>(g.q_len) * static_cast<double>(g.kv_len);
  const double micros = scores * (6.0 * static_cast<double>(g.head_dim + g.v_dim) + 60.0) / 100e3;
  parallel(static_cast<int>(min64(worth_threads(micros, g.num_threads), tasks)), [&](int thread, int threads) {
    const Buffers<A> b = carve<A>(g, static_cast<char*>(g.scratch) + each * static_cast<size_t>(thread));
    for (int64_t t = thread; t < tasks; t += threads) key_head<T>(g, b, t / g.kv_heads, t % g.kv_heads);
  });
}

}  // namespace

size_t attention_backward_scratch_bytes(const AttentionBackwardArgs& g) {
  const size_t each = g.in_double ? bytes_of_each<double>(g) : bytes_of_each<float>(g);
  return each * static_cast<size_t>(max64(min64(g.num_threads, g.batch * g.kv_heads), 1));
}

void attention_backward(const AttentionBackwardArgs& g) {
  if (g.in_double) return run<double, double>(g);
  with_type(g.dtype, [&]<class T>() { run<T, float>(g); });
}

}  // namespace aotpack::kernels
