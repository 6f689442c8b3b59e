// Blocked attention with online softmax (T. Dao et al., "FlashAttention"; M. Milakov and N. Gimelshein, "Online
// normalizer calculation for softmax"). A task is a block of query rows of the heads that share a key head; keys and
// values go by in blocks that stay in the second-level cache, and each row carries its running maximum, sum and
// weighted values.
#include "attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "attention_bf16.h"
#include "block_states.h"
#include "element_types.h"
#include "epilogue.h"
#include "pack.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kKeys = 256;                // keys of a block
constexpr int64_t kMostRows = 16 * kMaxRows;  // query rows of a task: enough to pay for packing the keys
constexpr int64_t kTileRows = kMaxBf16Rows > kMaxRows ? kMaxBf16Rows : kMaxRows;
constexpr int64_t kFewRows = 4;  // up to here keys and values are read where they lie
constexpr float kNone = -std::numeric_limits<float>::infinity();

int64_t heads_per_key(const AttentionArgs& g) { return g.q_heads / max64(g.kv_heads, 1); }

struct Plan {
  int64_t rows;    // of one key head: its query heads x q_len, in this order
  int64_t blocks;  // tasks per key head
  int64_t most;    // rows of the largest task
  int64_t tile;    // rows that are multiplied at a time
  int64_t v_padded;
  bool bf16;
};

Plan plan(const AttentionArgs& g) {
  Plan p;
  p.rows = heads_per_key(g) * g.q_len;
  const int64_t pairs = max64(1, g.batch * g.kv_heads);
  const int64_t wanted = max64(ceil_div(p.rows, kMostRows), ceil_div(2 * max64(g.num_threads, 1), pairs));
  p.blocks = max64(1, min64(wanted, row_tiles(p.rows)));
  p.most = ceil_div(p.rows, p.blocks);
  p.bf16 = p.rows > kFewRows && attention_takes_bf16(g);
  p.tile = p.bf16 ? attention_bf16_rows() : kMaxRows;
  p.v_padded = round_up(g.v_dim, kPanel);
  return p;
}

// What one thread works in.
struct Buffers {
  float *q, *k, *v, *scores, *sums, *top, *total;
  char* bf16;
  uint8_t* states;
  int32_t* states_of;
  size_t bytes;
};
Buffers carve(const AttentionArgs& g, const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.q = from.take<float>(p.most * g.head_dim);
  b.k = from.take<float>(kKeys * g.head_dim);
  b.v = from.take<float>(kKeys * p.v_padded);
  b.scores = from.take<float>(p.tile * kKeys);
  b.sums = from.take<float>(p.most * p.v_padded);
  b.top = from.take<float>(p.most);
  b.total = from.take<float>(p.most);
  b.bf16 = from.take<char>(p.bf16 ? static_cast<int64_t>(AttentionBf16::scratch_bytes(g, p.most, kKeys)) : 0);
  b.states = from.take<uint8_t>(BlockStates::bytes(g.rules, p.most, g.q_len, g.kv_len));
  b.states_of = from.take<int32_t>(BlockStates::places(g.rules, p.most));
  b.bytes = from.bytes();
  return b;
}

template <class M>
const M* mask_row(const AttentionArgs& g, int64_t item, int64_t head, int64_t i, int64_t j) {
  return static_cast<const M*>(g.mask) + item * g.mask_strides[0] + head * g.mask_strides[1] + i * g.mask_strides[2] +
         j * g.mask_strides[3];
}

struct Lanes {
  alignas(64) float number[kWidth];
};
inline constexpr Lanes kLanes = [] {
  Lanes lanes{};
  for (int i = 0; i < kWidth; ++i) lanes.number[i] = static_cast<float>(i);
  return lanes;
}();

// The first `count` elements, less than kWidth in the last vector of a row.
template <class M>
AOTPACK_INLINE vf load_mask(const M* mask, int64_t stride, int64_t count) {
  if (stride == 1) return count >= kWidth ? load(mask) : load_partial(mask, static_cast<int>(count));
  alignas(64) float all[kWidth] = {};
  for (int64_t i = 0; i < min64(count, kWidth); ++i) all[i] = to_float(mask[i * stride]);
  return load(all);
}
AOTPACK_INLINE vf choose(const uint8_t* mask, int64_t stride, int64_t count, vf scores) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if (stride == 1 && count >= kWidth) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask));
    return reinterpret_cast<vf>(_mm512_mask_mov_ps(reinterpret_cast<__m512>(vset(kNone)),
                                                   _mm_test_epi8_mask(bytes, bytes), reinterpret_cast<__m512>(scores)));
  }
#endif
  alignas(64) float all[kWidth] = {};
  for (int64_t i = 0; i < min64(count, kWidth); ++i) all[i] = mask[i * stride] != 0 ? 1.0f : 0.0f;
  return load(all) != vset(0.0f) ? scores : vset(kNone);
}

// scores[j] = masked(scale * scores[j]) for j < count, up to a whole vector those that count for nothing. Returns the
// greatest. In vectors throughout: a load does not get at once what narrower stores have written.
template <class Masked>
AOTPACK_INLINE vf scale_with(float* scores, int64_t count, float scale, const Masked& masked) {
  vf most = vset(kNone);
  for (int64_t j = 0; j < count; j += kWidth) {
    vf s = masked(load(scores + j) * scale, j);
    if (count - j < kWidth) s = load(kLanes.number) < vset(static_cast<float>(count - j)) ? s : vset(kNone);
    store(scores + j, s);
    most = s > most ? s : most;
  }
  return most;
}

float greatest(const float* scores, int64_t count) {
  vf most = vset(kNone);
  for (int64_t j = 0; j < count; j += kWidth) {
    const vf s = load(scores + j);
    most = s > most ? s : most;
  }
  return max_of(most);
}

// For query i and the keys from j on.
float scale_and_mask(const AttentionArgs& g, int64_t item, int64_t head, int64_t i, int64_t j, int64_t count,
                     float scale, float* scores) {
  const int64_t stride = g.mask_strides[3];
  if (g.mask == nullptr || g.mask_kind == 0) {
    if (scale == 1.0f && count % kWidth == 0) return greatest(scores, count);
    return max_of(scale_with(scores, count, scale, [](vf s, int64_t) { return s; }));
  }
  if (g.mask_kind == 1) {
    const uint8_t* mask = mask_row<uint8_t>(g, item, head, i, j);
    return max_of(scale_with(scores, count, scale,
                             [&](vf s, int64_t t) { return choose(mask + t * stride, stride, count - t, s); }));
  }
  return with_type(g.mask_kind == 3 ? DType::f32 : g.dtype, [&]<class T>() {
    const T* mask = mask_row<T>(g, item, head, i, j);
    return max_of(scale_with(scores, count, scale,
                             [&](vf s, int64_t t) { return s + load_mask(mask + t * stride, stride, count - t); }));
  });
}

// exp(scores - shift), in place; returns their sum.
float exponentials(float* scores, int64_t count, float shift) {
  vf added = vset(0.0f);
  for (int64_t j = 0; j < count; j += kWidth) {
    const vf w = vexp_nonpositive(load(scores + j) - shift);
    store(scores + j, w);
    added += w;
  }
  return sum_of(added);
}

// scores[r][j] = q[r] . key j for `rows` rows and `count` keys that are contiguous along head_dim.
template <class T>
void dots(const float* q, int64_t rows, const T* keys, int64_t stride, int64_t dim, int64_t count, float* scores) {
  constexpr int kAtOnce = 4;
  const int64_t whole = dim / kWidth * kWidth;
  for (int64_t j = 0; j < count; j += kAtOnce) {
    const int keys_left = static_cast<int>(min64(kAtOnce, count - j));
    // The last few keys are computed as often as needed to be four.
    const T* key[kAtOnce];
    for (int c = 0; c < kAtOnce; ++c) key[c] = keys + (j + min64(c, keys_left - 1)) * stride;
    for (int64_t r = 0; r < rows; ++r) {
      const float* mine = q + r * dim;
      vf acc[kAtOnce] = {};
      for (int64_t i = 0; i < whole; i += kWidth) {
        const vf x = load(mine + i);
        AOTPACK_UNROLL
        for (int c = 0; c < kAtOnce; ++c) acc[c] += x * load(key[c] + i);
      }
      AOTPACK_UNROLL
      for (int c = 0; c < kAtOnce; ++c) {
        float sum = sum_of(acc[c]);
        for (int64_t i = whole; i < dim; ++i) sum += mine[i] * to_float(key[c][i]);
        scores[r * kKeys + j + c] = sum;  // a block of scores has room for whole fours
      }
    }
  }
}

class Task {
 public:
  Task(const AttentionArgs& g, const Plan& p, const Buffers& b, int64_t pair, int64_t block)
      : g_(g),
        p_(p),
        b_(b),
        item_(pair / g.kv_heads),
        kv_head_(pair % g.kv_heads),
        rows_(share(p.rows, block, p.blocks)),
        states_(g.rules, g.kv_len, b.states, b.states_of) {
    k_ = advance(g.k, item_ * g.k_strides[0] + kv_head_ * g.k_strides[1], g.dtype);
    v_ = advance(g.v, item_ * g.v_strides[0] + kv_head_ * g.v_strides[1], g.dtype);
    few_ = rows_.end - rows_.begin <= kFewRows;
    if (p.bf16 && !few_) bf16_.emplace(g, rows_.end - rows_.begin, kKeys, b.bf16);
  }

  void run() {
    const int64_t count = rows_.end - rows_.begin;
    int64_t keys = 0;  // that any row looks at
    for (int64_t r = 0; r < count; ++r) {
      set_query(r, advance(g_.q, at(r, g_.q_strides), g_.dtype));
      for (int64_t i = 0; i < p_.v_padded; ++i) b_.sums[r * p_.v_padded + i] = 0.0f;
      b_.top[r] = kNone;
      b_.total[r] = 0.0f;
      keys = max64(keys, limit(r));
      states_.add(r, item_, head(r), position(r));
    }
    const int64_t tiles = ceil_div(count, p_.tile);
    for (int64_t j = 0; j < keys; j += kKeys) {
      const int64_t block = min64(kKeys, keys - j);
      if (!looked_at(count, j, block)) continue;
      pack(j, block);
      for (int64_t t = 0; t < tiles; ++t) tile(share(count, t, tiles), j, block);
    }
    for (int64_t r = 0; r < count; ++r) finish_row(r);
  }

 private:
  int64_t head(int64_t r) const { return kv_head_ * heads_per_key(g_) + (rows_.begin + r) / g_.q_len; }
  int64_t position(int64_t r) const { return (rows_.begin + r) % g_.q_len; }
  int64_t at(int64_t r, const int64_t strides[3]) const {
    return item_ * strides[0] + head(r) * strides[1] + position(r) * strides[2];
  }
  // Keys from 0 on that a row may look at.
  int64_t limit(int64_t r) const { return g_.causal ? min64(g_.kv_len, position(r) + 1) : g_.kv_len; }
  // The part of `block` keys from j on that a row looks at, counted from j.
  Range part(int64_t r, int64_t j, int64_t block) const {
    int64_t from = j, to = min64(limit(r), j + block);
    if (from >= to || !states_.narrow(r, from, to)) return {0, 0};
    return {from - j, to - j};
  }
  bool looked_at(int64_t rows, int64_t j, int64_t block) const {
    if (g_.rules == nullptr) return true;
    for (int64_t r = 0; r < rows; ++r) {
      if (part(r, j, block).end > 0) return true;
    }
    return false;
  }
  void set_query(int64_t r, const void* q) {
    if (bf16_) return bf16_->set_query(r, q);
    widen(q, g_.dtype, g_.head_dim, b_.q + r * g_.head_dim);
    for (int64_t i = 0; i < g_.head_dim; ++i) b_.q[r * g_.head_dim + i] *= g_.scale;
  }

  bool v_in_place(int64_t column) const { return few_ && column + kPanel <= g_.v_dim; }

  void pack(int64_t j, int64_t count) {
    if (bf16_) {
      return bf16_->set_block(advance(k_, j * g_.k_strides[2], g_.dtype), advance(v_, j * g_.v_strides[2], g_.dtype),
                              count);
    }
    if (!few_) {
      for (int64_t c = 0; c < count; c += kPanel) {
        pack_panel(advance(k_, (j + c) * g_.k_strides[2], g_.dtype), 1, g_.k_strides[2], g_.dtype, g_.head_dim,
                   count - c, b_.k + c * g_.head_dim);
      }
    }
    for (int64_t column = 0; column < g_.v_dim; column += kPanel) {
      if (v_in_place(column)) continue;
      pack_panel(advance(v_, j * g_.v_strides[2] + column, g_.dtype), g_.v_strides[2], 1, g_.dtype, count,
                 g_.v_dim - column, b_.v + column * kKeys);
    }
  }

  // Of the keys [from, used) after j; from is a multiple of kPanel.
  void score(Range rows, int64_t j, int64_t from, int64_t used) {
    const int count = static_cast<int>(rows.end - rows.begin);
    if (bf16_) return bf16_->score(rows.begin, count, from, used, b_.scores);
    if (few_) {
      const void* keys = advance(k_, (j + from) * g_.k_strides[2], g_.dtype);
      const float* q = b_.q + rows.begin * g_.head_dim;
      with_type(g_.dtype, [&]<class T>() {
        dots(q, count, static_cast<const T*>(keys), g_.k_strides[2], g_.head_dim, used - from, b_.scores + from);
      });
      return;
    }
    const float* pointers[kMaxRows];
    for (int r = 0; r < count; ++r) pointers[r] = b_.q + (rows.begin + r) * g_.head_dim;
    MicroArgs m = {};
    m.rows = pointers;
    m.row_step = g_.head_dim;
    m.taps = 1;
    m.k = g_.head_dim;
    m.b_stride = kPanel;
    m.y_stride = kKeys;
    m.columns = static_cast<int>(kPanel);
    for (int64_t c = from; c < used; c += kPanel) {
      m.b = b_.k + c * g_.head_dim;
      m.y = b_.scores + c;
      micro(DType::f32, count, m);
    }
  }

  void tile(Range rows, int64_t j, int64_t block) {
    Range parts[kTileRows];
    int64_t from = block, used = 0;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const Range mine = parts[r - rows.begin] = part(r, j, block);
      if (mine.end <= mine.begin) continue;
      from = min64(from, mine.begin / kPanel * kPanel);
      used = max64(used, mine.end);
    }
    if (used <= 0) return;
    score(rows, j, from, used);
    const int count = static_cast<int>(rows.end - rows.begin);
    for (int t = 0; t < count; ++t) {
      const int64_t r = rows.begin + t;
      float* scores = b_.scores + t * kKeys;
      const Range mine = parts[t];
      const int64_t padded = round_up(used, kWidth);
      float most = kNone;
      if (mine.end > mine.begin) {
        most = scale_and_mask(g_, item_, head(r), position(r), j + from, mine.end - from, bf16_ ? g_.scale : 1.0f,
                              scores + from);
      }
      if (g_.rules != nullptr) {
        for (int64_t c = from; c < mine.begin; ++c) scores[c] = kNone;
        const ScoreRow at{{item_, head(r), position(r)}, g_.rules->operands, g_.rules->numbers};
        states_.apply(at, r, j + mine.begin, j + mine.end, scores + mine.begin);
        most = greatest(scores + from, round_up(max64(mine.end - from, 0), kWidth));
      }
      for (int64_t c = mine.end > mine.begin ? round_up(mine.end, kWidth) : from; c < padded; c += kWidth) {
        store(scores + c, vset(kNone));
      }
      soften(t, r, scores, from, padded, most);
    }
    float* sums = b_.sums + rows.begin * p_.v_padded;
    if (bf16_) return bf16_->weigh(count, from, used, sums, p_.v_padded);
    weigh(count, j, from, used, sums);
  }

  // Turns scores [from, to) of a row, whole vectors and `most` the greatest, into weights relative to the new maximum
  // and brings the row's running maximum, total and sums up to date.
  void soften(int t, int64_t r, float* scores, int64_t from, int64_t to, float most) {
    const float top = b_.top[r], next = most > top ? most : top;
    const float shift = next == kNone ? 0.0f : next;  // no -inf - -inf where there is no key so far
    const float added =
        bf16_ ? bf16_->weights(t, scores, from, to, shift) : exponentials(scores + from, to - from, shift);
    if (next != top && top != kNone) {
      const float decay = std::exp(top - next);
      b_.total[r] *= decay;
      float* sums = b_.sums + r * p_.v_padded;
      for (int64_t i = 0; i < p_.v_padded; i += kWidth) store(sums + i, load(sums + i) * decay);
    }
    b_.top[r] = next;
    b_.total[r] += added;
  }

  void weigh(int count, int64_t j, int64_t from, int64_t used, float* sums) {
    const float* pointers[kMaxRows];
    for (int t = 0; t < count; ++t) pointers[t] = b_.scores + t * kKeys + from;
    MicroArgs m = {};
    m.rows = pointers;
    m.row_step = kKeys;
    m.taps = 1;
    m.k = used - from;
    m.columns = static_cast<int>(kPanel);
    m.init_stride = m.y_stride = p_.v_padded;
    for (int64_t column = 0; column < g_.v_dim; column += kPanel) {
      const bool in_place = v_in_place(column);
      m.b = in_place ? advance(v_, (j + from) * g_.v_strides[2] + column, g_.dtype)
                     : b_.v + column * kKeys + from * kPanel;
      m.b_stride = in_place ? g_.v_strides[2] : kPanel;
      m.b_ahead = in_place ? 16 * m.b_stride : 0;
      m.y = sums + column;
      m.init = m.y;
      micro(in_place ? g_.dtype : DType::f32, count, m);
    }
  }

  void finish_row(int64_t r) {
    const float* sums = b_.sums + r * p_.v_padded;
    const float total = b_.total[r];
    const float factor = total == 0.0f ? 0.0f : 1.0f / total;
    void* y = advance(g_.y, at(r, g_.y_strides), g_.dtype);
    with_type(g_.dtype, [&]<class T>() {
      T* const to = static_cast<T*>(y);
      int64_t i = 0;
      for (; i + kWidth <= g_.v_dim; i += kWidth) store(to + i, load(sums + i) * factor);
      if (i < g_.v_dim) store_partial(to + i, load(sums + i) * factor, static_cast<int>(g_.v_dim - i));
    });
    if (g_.lse != nullptr) {
      g_.lse[(item_ * g_.q_heads + head(r)) * g_.q_len + position(r)] =
          total == 0.0f ? kNone : b_.top[r] + std::log(total);
    }
  }

  const AttentionArgs& g_;
  const Plan& p_;
  const Buffers& b_;
  int64_t item_, kv_head_;
  Range rows_;
  BlockStates states_;
  const void *k_, *v_;
  bool few_;
  std::optional<AttentionBf16> bf16_;
};

}  // namespace

size_t attention_scratch_bytes(const AttentionArgs& g) {
  const size_t each = carve(g, plan(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;
  return each * static_cast<size_t>(max64(g.num_threads, 1));
}

void attention(const AttentionArgs& g) {
  if (g.batch <= 0 || g.q_heads <= 0 || g.q_len <= 0) return;
  const Plan p = plan(g);
  const size_t each = carve(g, p, reinterpret_cast<void*>(uintptr_t{64})).bytes;
  const int64_t tasks = g.batch * g.kv_heads * p.blocks;
  const double scores = static_cast<double>(g.batch * g.q_heads) * static_cast<double>(g.q_len) *
                        static_cast<double>(g.kv_len) * (g.causal && g.q_len > 1 ? 0.5 : 1.0);
  const double elements = static_cast<double>(g.batch * g.kv_heads) * static_cast<double>(g.kv_len);
  const double dims = static_cast<double>(g.head_dim + g.v_dim);
  const int wanted = worth_threads(scores * (2.0 * dims + 40.0) / 150e3 + elements * dims * 4.0 / 30e3, g.num_threads);
  parallel(static_cast<int>(min64(wanted, tasks)), [&](int thread, int threads) {
    const Buffers b = carve(g, p, static_cast<char*>(g.scratch) + each * static_cast<size_t>(thread));
    // Dealt out in turn: with a causal mask later blocks are longer.
    for (int64_t t = thread; t < tasks; t += threads) Task(g, p, b, t / p.blocks, t % p.blocks).run();
  });
}

}  // namespace aotpack::kernels
