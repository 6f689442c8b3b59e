#include "attention_bf16.h"

#include <new>

#include "bf16_copy.h"
#include "bf16_product.h"
#include "bf16_squares.h"
#include "linear_bf16.h"
#include "pack.h"
#include "simd.h"

namespace aotpack::kernels {

// Lies in the scratch memory: what a thread needs for the instructions depends on the target, as the header does not.
struct AttentionBf16::State {
  const AttentionArgs& g;
  int64_t depth, keys, columns;  // head_dim padded to whole steps, keys of a block, v_dim to whole panels
  bf16* q;                       // [rows][depth]
  bf16* k;                       // paired panels of keys
  bf16* copies;                  // keys of a panel whose pairs do not lie as words of four bytes do
  bf16* v;                       // paired panels of columns of v
  bf16* weights;                 // [rows of a tile][keys]
  size_t bytes;
  Bf16Unit unit;

  State(const AttentionArgs& args, int64_t rows, int64_t block, void* scratch)
      : g(args), depth(bf16_padded(round_up(args.head_dim, 2))), keys(block), columns(round_up(args.v_dim, kPanel)) {
    Scratch from(scratch);
    from.take<State>(1);
    q = from.take<bf16>(rows * depth);
    k = from.take<bf16>(keys * depth);
    copies = from.take<bf16>(kPanel * round_up(g.head_dim, 2));
    v = from.take<bf16>(keys * columns);
    weights = from.take<bf16>(kBf16Tile * keys);
    bytes = from.bytes();
  }
};

bool attention_takes_bf16(const AttentionArgs& g) { return g.head_dim > 0 && linear_takes_bf16(g.dtype); }

int64_t attention_bf16_rows() { return kBf16Tile; }
static_assert(kBf16Tile <= kMaxBf16Rows);

size_t AttentionBf16::scratch_bytes(const AttentionArgs& args, int64_t rows, int64_t keys) {
  return State(args, rows, keys, reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

AttentionBf16::AttentionBf16(const AttentionArgs& args, int64_t rows, int64_t keys, void* scratch)
    : state_(new (Scratch(scratch).take<State>(1)) State(args, rows, keys, scratch)) {}

AttentionBf16::~AttentionBf16() { state_->~State(); }

void AttentionBf16::set_query(int64_t row, const void* q) {
  const State& s = *state_;
  copy_padded(static_cast<const bf16*>(q), s.g.head_dim, s.depth, s.q + row * s.depth);
}

void AttentionBf16::set_block(const void* keys, const void* values, int64_t count) {
  const State& s = *state_;
  const AttentionArgs& g = s.g;
  const int64_t dim = round_up(g.head_dim, 2);
  const bool in_words = g.head_dim == dim && g.k_strides[2] % 2 == 0 && reinterpret_cast<uintptr_t>(keys) % 4 == 0;
  for (int64_t j = 0; j < count; j += kPanel) {
    const bf16* from = static_cast<const bf16*>(keys) + j * g.k_strides[2];
    const int64_t some = min64(kPanel, count - j);
    if constexpr (kBf16Run != 2) {
      bf16_pair_columns(from, 1, g.k_strides[2], g.head_dim, some, s.k + j * s.depth);
      continue;
    }
    if (!in_words) {
      for (int64_t i = 0; i < some; ++i) {
        bf16* to = s.copies + i * dim;
        to[dim - 1] = {};
        std::memcpy(to, from + i * g.k_strides[2], static_cast<size_t>(g.head_dim) * sizeof(bf16));
      }
      from = s.copies;
    }
    // Pairs lie next to each other in a key, so that this is a panel of words.
    bf16* panel = s.k + j * s.depth;
    pack_panel(from, 1, (in_words ? g.k_strides[2] : dim) / 2, DType::f32, dim / 2, some,
               reinterpret_cast<float*>(panel));
    std::memset(panel + dim * kPanel, 0, static_cast<size_t>((s.depth - dim) * kPanel) * sizeof(bf16));
  }
  for (int64_t column = 0; column < g.v_dim; column += kPanel) {
    bf16_pair_panel(static_cast<const bf16*>(values) + column, g.v_strides[2], min64(kPanel, g.v_dim - column), count,
                    s.v + column * s.keys);
  }
}

void AttentionBf16::score(int64_t row, int count, int64_t from, int64_t to, float* scores) {
  State& s = *state_;
  alignas(64) static constexpr float kZeros[kPanel] = {};
  Bf16Args a = {};
  a.rows = s.q + row * s.depth;
  a.stride = a.k = s.depth;
  a.init = kZeros;
  a.sums_stride = s.keys;
  for (int64_t j = from; j < to; j += kPanel) {
    a.paired = s.k + j * s.depth;
    a.sums = scores + j;
    s.unit.multiply(count, a);
  }
}

namespace {

// None of them is below the normal range (vexp_nonpositive).
void store_weights(bf16* p, vf w) {
#if defined(__AVX512BF16__)
  const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(w));
  std::memcpy(p, &halves, sizeof halves);
#else
  store(p, w);
#endif
}

}  // namespace

float AttentionBf16::weights(int r, const float* scores, int64_t from, int64_t to, float shift) {
  const State& s = *state_;
  bf16* mine = s.weights + r * s.keys;
  vf added = vset(0.0f);
  for (int64_t j = from; j < to; j += kWidth, mine += kWidth) {
    const vf w = vexp_nonpositive(load(scores + j) - shift);
    store_weights(mine, w);
    added += w;
  }
  // What exceeds them in the last step of the product.
  const int64_t padded = bf16_padded(to - from);
  for (int64_t j = to - from; j < padded; j += kWidth, mine += kWidth) store(mine, vset(0.0f));
  return sum_of(added);
}

void AttentionBf16::weigh(int count, int64_t from, int64_t to, float* sums, int64_t stride) {
  State& s = *state_;
  const int64_t depth = bf16_padded(to - from);
  Bf16Args a = {};
  a.rows = s.weights;
  a.stride = s.keys;
  a.k = depth;
  a.init_stride = a.sums_stride = stride;
  for (int64_t column = 0; column < s.g.v_dim; column += kPanel) {
    a.paired = s.v + column * s.keys + from * kPanel;
    a.sums = sums + column;
    a.init = a.sums;
    s.unit.multiply(count, a);
  }
}

}  // namespace aotpack::kernels
