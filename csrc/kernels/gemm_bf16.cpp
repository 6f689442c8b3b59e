#include "gemm_bf16.h"

#include "bf16_copy.h"
#include "bf16_product.h"
#include "bf16_squares.h"
#include "epilogue.h"
#include "gemm_result.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kWholeDepth = 1024;           // of k: up to here in one piece
constexpr int64_t kPieceDepth = 512;            // otherwise in pieces of about this
constexpr int64_t kPairedElements = 128 << 10;  // of b at a time, which stay in the second-level cache
constexpr int64_t kTileBlocks = 16;             // row tiles that share them where k comes in several pieces
constexpr int64_t kFewRows = 4;                 // b is not paired for so few

struct Plan {
  int64_t depth, chunks, panels, blocks, super;
  int64_t rows;  // of the largest tile
};
Plan plan(const GemmArgs& g) {
  Plan p = {};
  p.chunks = g.k <= kWholeDepth ? 1 : ceil_div(g.k, kPieceDepth);
  p.depth = p.chunks == 1 ? g.k : round_up(ceil_div(g.k, p.chunks), kBf16Step);
  p.chunks = max64(1, ceil_div(g.k, max64(p.depth, 1)));
  const int64_t fitting = kPairedElements / (max64(bf16_padded(p.depth), kBf16Step) * kPanel);
  p.panels = max64(1, min64(fitting, ceil_div(g.n, kPanel)));
  p.blocks = ceil_div(g.m, kBf16Tile);
  p.rows = ceil_div(g.m, max64(p.blocks, 1));
  p.super = p.chunks == 1 ? p.blocks : min64(p.blocks, kTileBlocks);
  return p;
}

struct Buffers {
  bf16 *paired, *staged;
  float* partial;
  size_t bytes;
};
// The odd part keeps rows in different cache sets; copies end at whole vectors.
int64_t staged_stride(const Plan& p) { return round_up(p.depth, 32) + 32; }
// For one thread.
Buffers carve(const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.paired = from.take<bf16>(p.panels * bf16_padded(p.depth) * kPanel);
  b.staged = from.take<bf16>(round_up(p.rows, 16) * staged_stride(p));
  b.partial = from.take<float>(p.chunks == 1 ? 0 : p.super * p.rows * p.panels * kPanel);
  b.bytes = from.bytes();
  return b;
}

const bf16* at(const void* matrix, int64_t offset) { return static_cast<const bf16*>(matrix) + offset; }

class Product {
 public:
  Product(const GemmArgs& g, const Plan& p, const Buffers& buffers) : g_(g), p_(p), buffers_(buffers) {}

  void run(int64_t item, Range blocks, Range panels) {
    const bf16 *a = at(g_.a, item * g_.a_batch), *b = at(g_.b, item * g_.b_batch);
    for (int64_t panel = panels.begin; panel < panels.end; panel += p_.panels) {
      const Range some = {panel, min64(panel + p_.panels, panels.end)};
      for (int64_t first = blocks.begin; first < blocks.end; first += p_.super) {
        const Range rows = {first, min64(first + p_.super, blocks.end)};
        for (int64_t chunk = 0; chunk < p_.chunks; ++chunk) piece(item, a, b, rows, some, chunk);
      }
    }
  }

 private:
  // A piece of k.
  void piece(int64_t item, const bf16* a, const bf16* b, Range blocks, Range panels, int64_t chunk) {
    const int64_t k0 = chunk * p_.depth, depth = min64(p_.depth, g_.k - k0);
    const int64_t padded = bf16_padded(depth);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t column = panel * kPanel;
      bf16_pair_columns(b + k0 * g_.b_row + column * g_.b_col, g_.b_row, g_.b_col, depth, min64(kPanel, g_.n - column),
                        buffers_.paired + (panel - panels.begin) * padded * kPanel);
    }
    const bool begins = chunk == 0, ends = chunk + 1 == p_.chunks;
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const Range rows = share(g_.m, block, p_.blocks);
      const int count = static_cast<int>(rows.end - rows.begin);
      Bf16Args m = {};
      m.rows = a + rows.begin * g_.a_row + k0 * g_.a_col;
      m.stride = g_.a_row;
      if (stages_ || padded != depth) {
        bf16_gather_rows(m.rows, g_.a_row, g_.a_col, count, depth, buffers_.staged, staged_stride(p_));
        m.rows = buffers_.staged;
        m.stride = staged_stride(p_);
      }
      m.k = padded;
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const int64_t j = panel - panels.begin;
        float* sums = buffers_.partial + ((block - blocks.begin) * p_.panels + j) * p_.rows * kPanel;
        m.paired = buffers_.paired + j * padded * kPanel;
        m.init = begins ? zeros_ : sums;
        m.init_stride = begins ? 0 : kPanel;
        m.sums = ends ? tile_ : sums;
        m.sums_stride = kPanel;
        unit_.multiply(count, m);
        if (!ends) continue;
        const int64_t column = panel * kPanel;
        write_result(g_, item, rows.begin, column, count, min64(kPanel, g_.n - column), tile_, kPanel);
      }
    }
  }

  const GemmArgs& g_;
  const Plan& p_;
  const Buffers buffers_;
  // Rows whose elements are apart, or that would push one another out of the nearest cache.
  const bool stages_ = g_.a_col != 1 || (g_.m > 8 && g_.k >= 256 && g_.a_row * 2 % 4096 == 0);
  Bf16Unit unit_;
  alignas(64) float zeros_[kPanel] = {};
  alignas(64) float tile_[kBf16Tile * kPanel];
};

}  // namespace

bool gemm_takes_bf16(const GemmArgs& g) {
  return kBf16Rows > 0 && g.dtype == DType::bf16 && g.m > kFewRows && g.n > kFewRows && bf16_works();
}

size_t gemm_bf16_scratch_bytes(const GemmArgs& g) {
  const Plan p = plan(g);
  return carve(p, reinterpret_cast<void*>(uintptr_t{64})).bytes * static_cast<size_t>(max64(g.num_threads, 1));
}

void gemm_bf16(const GemmArgs& g) {
  if constexpr (kBf16Rows > 0) {
    const Plan p = plan(g);
    const size_t each = carve(p, reinterpret_cast<void*>(uintptr_t{64})).bytes;
    const int64_t panels = ceil_div(g.n, kPanel);
    const double items = static_cast<double>(g.batch), depth = static_cast<double>(max64(g.k, 1));
    const double flops = 2.0 * items * static_cast<double>(g.m) * static_cast<double>(g.n) * depth;
    const double elements = items * depth * static_cast<double>(g.m + g.n);
    const int worth = worth_threads(flops / kBf16Speed + elements * 2.0 / 40e3, g.num_threads);
    const int threads = turned_threads(g.knobs, kGemmThreads, g.num_threads, worth);
    parallel(threads, [&](int thread, int count) {
      Product product(g, p, carve(p, static_cast<char*>(g.scratch) + each * static_cast<size_t>(thread)));
      // Many products: whole ones to each thread; few: each is shared among all.
      if (g.batch % count == 0 || g.batch >= 4 * count) {
        const Range mine = share(g.batch, thread, count);
        for (int64_t item = mine.begin; item < mine.end; ++item) product.run(item, {0, p.blocks}, {0, panels});
        return;
      }
      const double row_bytes = 2.0 * depth * kBf16Tile, column_bytes = 2.0 * depth * kPanel;
      const Rectangle mine = turned_grid(g.knobs, kGemmGrid, p.blocks, panels, row_bytes, column_bytes, thread, count);
      if (mine.rows.begin == mine.rows.end || mine.columns.begin == mine.columns.end) return;
      for (int64_t item = 0; item < g.batch; ++item) product.run(item, mine.rows, mine.columns);
    });
  }
}

}  // namespace aotpack::kernels
