// Blocked attention with online softmax, as attention.cpp, right rather than tuned: a task is a block of queries of one
// head, keys and values go by in blocks.
#include "attention_double.h"

#include "attention_blocks.h"
#include "block_states.h"

namespace aotpack::kernels {
namespace {

using A = double;

struct Buffers {
  A *q, *k, *v, *scores, *sums, *top, *total;
  uint8_t* states;
  int32_t* states_of;
  int64_t v_padded;
  size_t bytes;
};
Buffers carve(const AttentionDoubleArgs& g, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.v_padded = round_up(g.v_dim, kLanes<A>);
  b.q = from.take<A>(kBlockQueries * g.head_dim);
  b.k = from.take<A>(g.head_dim * kBlockKeys);
  b.v = from.take<A>(kBlockKeys * b.v_padded);
  b.scores = from.take<A>(kBlockQueries * kBlockKeys);
  b.sums = from.take<A>(kBlockQueries * b.v_padded);
  b.top = from.take<A>(kBlockQueries);
  b.total = from.take<A>(kBlockQueries);
  b.states = from.take<uint8_t>(BlockStates::bytes(g.rules, kBlockQueries, g.q_len, g.kv_len));
  b.states_of = from.take<int32_t>(BlockStates::places(g.rules, kBlockQueries));
  b.bytes = from.bytes();
  return b;
}

// Turns a row of scores into weights relative to the new maximum, and brings what the row has so far up to that.
void soften(A* scores, A& top, A& total, A* sums, int64_t width) {
  A next = top;
  for (int64_t j = 0; j < kBlockKeys; ++j) next = scores[j] > next ? scores[j] : next;
  // Without a key so far there is nothing to be relative to.
  exponentials(scores, kBlockKeys, next == kMinusInfinity<A> ? A(0) : next);
  A added = 0;
  for (int64_t j = 0; j < kBlockKeys; ++j) added += scores[j];
  if (next != top && top != kMinusInfinity<A>) {
    const A decay = std::exp(top - next);
    total *= decay;
    for (int64_t j = 0; j < width; ++j) sums[j] *= decay;
  }
  top = next;
  total += added;
}

// Whether any row looks at any of the keys.
bool looked_at(const AttentionDoubleArgs& g, const BlockStates& states, int64_t rows, int64_t j, int64_t count) {
  for (int64_t r = 0; g.rules != nullptr && r < rows; ++r) {
    int64_t from = j, to = j + count;
    if (states.narrow(r, from, to)) return true;
  }
  return g.rules == nullptr;
}

void block(const AttentionDoubleArgs& g, const Buffers& b, int64_t item, int64_t head, int64_t first) {
  const int64_t rows = min64(kBlockQueries, g.q_len - first), kv_head = head / (g.q_heads / max64(g.kv_heads, 1));
  const A* q = g.q + item * g.q_strides[0] + head * g.q_strides[1] + first * g.q_strides[2];
  const A* k = g.k + item * g.k_strides[0] + kv_head * g.k_strides[1];
  const A* v = g.v + item * g.v_strides[0] + kv_head * g.v_strides[1];
  bring_rows(q, g.q_strides[2], rows, g.head_dim, g.scale, b.q, g.head_dim);
  for (int64_t i = 0; i < rows * b.v_padded; ++i) b.sums[i] = 0;
  BlockStates states(g.rules, g.kv_len, b.states, b.states_of);
  for (int64_t r = 0; r < rows; ++r) {
    b.top[r] = kMinusInfinity<A>, b.total[r] = 0;
    states.add(r, item, head, first + r);
  }
  const int64_t keys = g.causal ? min64(g.kv_len, first + rows) : g.kv_len;
  for (int64_t j = 0; j < keys; j += kBlockKeys) {
    const int64_t count = min64(kBlockKeys, keys - j);
    if (!looked_at(g, states, rows, j, count)) continue;
    bring_columns(k + j * g.k_strides[2], g.k_strides[2], count, g.head_dim, b.k);
    bring_rows(v + j * g.v_strides[2], g.v_strides[2], count, g.v_dim, A(1), b.v, b.v_padded);
    block_product<A>({rows, kBlockKeys, g.head_dim, b.q, g.head_dim, 1, b.k, kBlockKeys, b.scores, kBlockKeys, false});
    for (int64_t r = 0; r < rows; ++r) {
      A* scores = b.scores + r * kBlockKeys;
      const int64_t mine = g.causal ? max64(0, min64(count, first + r + 1 - j)) : count;
      const void* mask = mask_at<A>(g.mask, g.mask_kind, g.mask_strides, item, head, first + r, j);
      if (mask != nullptr) mask_row<A, A>(mask, g.mask_kind, g.mask_strides[3], mine, scores);
      if (g.rules != nullptr) {
        const ScoreRow at{{item, head, first + r}, g.rules->operands, g.rules->numbers};
        states.apply(at, r, j, j + mine, scores);
      }
      for (int64_t c = mine; c < kBlockKeys; ++c) scores[c] = kMinusInfinity<A>;
      soften(scores, b.top[r], b.total[r], b.sums + r * b.v_padded, b.v_padded);
    }
    block_product<A>({rows, b.v_padded, count, b.scores, kBlockKeys, 1, b.v, b.v_padded, b.sums, b.v_padded, true});
  }
  for (int64_t r = 0; r < rows; ++r) {
    const A factor = b.total[r] == 0 ? A(0) : 1 / b.total[r];
    A* y = g.y + item * g.y_strides[0] + head * g.y_strides[1] + (first + r) * g.y_strides[2];
    for (int64_t i = 0; i < g.v_dim; ++i) y[i] = b.sums[r * b.v_padded + i] * factor;
    if (g.lse == nullptr) continue;
    g.lse[(item * g.q_heads + head) * g.q_len + first + r] =
        b.total[r] == 0 ? kMinusInfinity<A> : b.top[r] + std::log(b.total[r]);
  }
}

}  // namespace

size_t attention_double_scratch_bytes(const AttentionDoubleArgs& g) {
  const size_t each = carve(g, reinterpret_cast<void*>(uintptr_t{64})).bytes;
  return each * static_cast<size_t>(max64(g.num_threads, 1));
}

void attention_double(const AttentionDoubleArgs& g) {
  const int64_t blocks = ceil_div(g.q_len, kBlockQueries), tasks = g.batch * g.q_heads * blocks;
  if (tasks <= 0) return;
  const size_t each = carve(g, reinterpret_cast<void*>(uintptr_t{64})).bytes;
  const double scores =
      static_cast<double>(g.batch * g.q_heads) * static_cast<double>(g.q_len) * static_cast<double>(g.kv_len);
  const int wanted =
      worth_threads(scores * (4.0 * static_cast<double>(g.head_dim + g.v_dim) + 2000.0) / 150e3, g.num_threads);
  parallel(static_cast<int>(min64(wanted, tasks)), [&](int thread, int threads) {
    const Buffers b = carve(g, static_cast<char*>(g.scratch) + each * static_cast<size_t>(thread));
    for (int64_t t = thread; t < tasks; t += threads) {
      const int64_t pair = t / blocks;
      block(g, b, pair / g.q_heads, pair % g.q_heads, t % blocks * kBlockQueries);
    }
  });
}

}  // namespace aotpack::kernels
