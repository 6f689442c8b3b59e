// Dense and grouped convolutions. Bytes of a window are multiplied where they lie, in a copy of x that has its padding
// around it; x itself serves where it needs neither padding nor a change of sign. A tile is a few output pixels, whose
// bytes are broadcast in fours, by one or two panels of output channels; or pairs of pixels by pairs of channels, by
// ARM's instruction for them.
#include "conv_int8.h"

#include <array>
#include <utility>

#include "conv_int8_depthwise.h"
#include "conv_int8_matrix.h"
#include "conv_int8_tiles.h"
#include "int8_dot.h"
#include "int8_requantize.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int kVectors = static_cast<int>(kPanel) / kWidth;  // of a panel
#if defined(__AVX512F__)
constexpr int kRows = 6;
#elif defined(__AVX2__)
constexpr int kRows = 4;
#elif defined(AOTPACK_INT8_DOT)
constexpr int kRows = 6;
#else
constexpr int kRows = 3;
#endif
// By the instruction: vectors of a row whose sums are in registers at the same time, and the panels that have them.
constexpr int kFusedAtOnce = 4, kFusedPanels = kFusedAtOnce < 2 * kVectors ? 1 : 2;
constexpr int64_t kNearBytes = 16 << 10, kChunkBytes = 128 << 10, kMostTiles = 64;

struct Plan {
  bool copied, weight_zeros;
  bool tiles;  // AMX's
  int64_t cg, og, panels, columns, pixels, taps;
  Int8Runs runs;
  int64_t padded[3];
  uint8_t* copy;
  int64_t* tap_offsets;
  uint8_t* ones;  // 1 for each byte of a window that counts, as packed
  char* tile_scratch;
  int64_t kept_bytes;  // of a panel as ARM's matrices, for each thread
  int8_t* kept;
  Weights next;  // that are read after these
  size_t bytes;

  // What tiles read.
  Int8Source source(const Int8ConvArgs& a) const {
    Int8Source x;
    x.set(copied ? copy : static_cast<const uint8_t*>(a.x), copied ? padded : a.in, a.c);
    return x;
  }
  Int8TileWork tile_work() const {
    return {cg, og, panels, pixels, runs.outer, runs.steps(), tap_offsets, copied, next};
  }
};

Plan plan_of(const Int8ConvArgs& a, void* scratch) {
  Plan p{};
  p.weight_zeros = a.weight_zero != nullptr;
  p.cg = a.c / a.groups;
  p.og = a.oc / a.groups;
  p.panels = ceil_div(p.og, kPanel);
  p.columns = int8_columns(a.c, a.oc, a.groups);
  p.runs = int8_runs(p.cg, a.groups, a.kernel, a.dilation);
  p.pixels = a.n * a.out[0] * a.out[1] * a.out[2];
  p.taps = a.kernel[0] * a.kernel[1] * a.kernel[2];
  bool padding = false;
  for (int d = 0; d < 3; ++d) {
    p.padded[d] = a.in[d] + a.before[d] + a.after[d];
    padding |= a.before[d] != 0 || a.after[d] != 0;
  }
  // Fours and vectors read beyond the end of a run, and so of x, where they do not divide it.
  p.copied = padding || a.x_signed || p.runs.run % 4 != 0;
  Scratch from(scratch);
  p.copy = from.take<uint8_t>(p.copied ? a.n * p.padded[0] * p.padded[1] * p.padded[2] * a.c + kInt8Slack : 0);
  p.tap_offsets = from.take<int64_t>(p.taps);
  p.ones = from.take<uint8_t>(p.runs.outer * p.runs.steps() * 4);
  p.tiles = !a.plain && int8_tiles_pay(p.pixels) && int8_tiles_work();
  const size_t tile_bytes = p.tiles ? int8_tiles_scratch_bytes(a, p.tile_work(), p.source(a)) : 0;
  p.tile_scratch = from.take<char>(static_cast<int64_t>(tile_bytes));
  const bool keeps = kInt8Matrix && !a.plain && p.pixels > kRows;
  p.kept_bytes = keeps ? int8_matrix_bytes(p.runs.outer, p.runs.steps()) : 0;
  p.kept = from.take<int8_t>(p.kept_bytes * max64(a.num_threads, 1));
  p.bytes = from.bytes();
  return p;
}

// One row of the padded copy. x may be null where it has no elements.
void copy_row(const Int8ConvArgs& a, const Plan& p, int64_t row) {
  const int64_t bytes = p.padded[2] * a.c;
  uint8_t* to = p.copy + row * bytes;
  const int64_t h = row % p.padded[1] - a.before[1];
  const int64_t d = row / p.padded[1] % p.padded[0] - a.before[0];
  const int64_t n = row / p.padded[1] / p.padded[0];
  const int fill = a.x_zero & 0xff;
  if (h < 0 || h >= a.in[1] || d < 0 || d >= a.in[0] || a.in[2] == 0) {
    std::memset(to, fill, static_cast<size_t>(bytes));
    return;
  }
  const int64_t before = a.before[2] * a.c, after = a.after[2] * a.c, inside = a.in[2] * a.c;
  const uint8_t* from = static_cast<const uint8_t*>(a.x) + ((n * a.in[0] + d) * a.in[1] + h) * inside;
  std::memset(to, fill, static_cast<size_t>(before));
  if (a.x_signed) {
    for (int64_t i = 0; i < inside; ++i) to[before + i] = from[i] ^ 0x80u;
  } else {
    std::memcpy(to + before, from, static_cast<size_t>(inside));
  }
  std::memset(to + before + inside, fill, static_cast<size_t>(after));
}

// Where the taps, or the runs of taps, of a window lie.
void lay_taps(const Int8ConvArgs& a, const Plan& p, const Int8Source& x) {
  const int64_t across = p.runs.outer / (a.kernel[0] * a.kernel[1]);
  int64_t* to = p.tap_offsets;
  for (int64_t d = 0; d < a.kernel[0]; ++d) {
    for (int64_t h = 0; h < a.kernel[1]; ++h) {
      for (int64_t w = 0; w < across; ++w) {
        *to++ = d * a.dilation[0] * x.plane + h * a.dilation[1] * x.row + w * a.dilation[2] * x.pixel;
      }
    }
  }
  if (!p.weight_zeros) return;
  for (int64_t t = 0; t < p.runs.outer; ++t) {
    for (int64_t i = 0; i < p.runs.steps() * 4; ++i) p.ones[t * p.runs.steps() * 4 + i] = i < p.runs.run ? 1 : 0;
  }
}

// `rows` windows by all columns of `panels` panels; into s.sums, which `requantize` then reads, or, where it returns
// true, from registers into the result, which is no floats if there is an `end`.
template <bool fused, bool zeros, int rows, int panels>
bool tile(const Int8ConvArgs& a, const Int8TileArgs& t, const uint8_t* const* windows, int32_t* sums, const Int8Sums& s,
          [[maybe_unused]] const Int8End* end) {
  using Dot = Int8Dot<fused>;
  using Four = typename Dot::Four;
  constexpr bool kShifts = kInt8Shifts && fused && !zeros;
  constexpr int kAll = kVectors * panels;
  constexpr int kMost = fused ? kFusedAtOnce : 2, kAtOnce = kAll < kMost ? kAll : kMost;
  const uint8_t* x[rows];
  for (int r = 0; r < rows; ++r) x[r] = windows[r] + t.begin;
  for (int first = 0; first < kAll; first += kAtOnce) {
    vi sum[rows][kAtOnce], ones[rows];
    AOTPACK_UNROLL
    for (int v = 0; v < kAtOnce; ++v) {
      const vi init = load_lanes(t.init + (first + v) * kWidth);
      AOTPACK_UNROLL
      for (int r = 0; r < rows; ++r) sum[r][v] = init;
    }
    if constexpr (zeros) {
      AOTPACK_UNROLL
      for (int r = 0; r < rows; ++r) ones[r] = vi{};
    }
    const auto place = [&](int v) {
      return (first + v) / kVectors * t.panel_bytes + (first + v) % kVectors * kWidth * 4;
    };
    const int8_t* w = t.w;
    const uint8_t* counted = t.ones;
    for (int64_t tap = 0; tap < t.outer; ++tap) {
      const int64_t begin = t.taps[tap], end = begin + t.steps * 4;
      for (int64_t i = begin; i < end; i += 4, w += kPanel * 4) {
        Four weights[kAtOnce];
        AOTPACK_UNROLL
        for (int v = 0; v < kAtOnce; ++v) weights[v] = Dot::signed_four(load_lanes(w + place(v)));
        Four count;
        if constexpr (zeros) {
          count = Dot::signed_four(broadcast_four(counted));
          counted += 4;
        }
        AOTPACK_UNROLL
        for (int r = 0; r < rows; ++r) {
          const Four bytes = Dot::unsigned_four(broadcast_four(x[r] + i));
          AOTPACK_UNROLL
          for (int v = 0; v < kAtOnce; ++v) {
            if constexpr (kShifts) {
              sum[r][v] = Dot::add_shifted(sum[r][v], bytes, weights[v]);
            } else {
              sum[r][v] = Dot::add(sum[r][v], bytes, weights[v]);
            }
          }
          if constexpr (zeros) ones[r] = Dot::add(ones[r], bytes, count);
        }
      }
    }
    if constexpr (fused && !zeros && kAll <= 4) {
      if (end != nullptr) {
        const Int8End e = *end;
        const int64_t at = s.pixel * a.oc + s.channel, next = a.oc, column = s.column;
        const detail::Columns columns(s.columns);
        if (e.residual != nullptr) {
          AOTPACK_UNROLL
          for (int r = 0; r < rows; ++r) requantize_bytes<true, kAll>(e, sum[r], column, at + r * next, columns);
        } else {
          AOTPACK_UNROLL
          for (int r = 0; r < rows; ++r) requantize_bytes<false, kAll>(e, sum[r], column, at + r * next, columns);
        }
        return true;
      }
    }
    AOTPACK_UNROLL
    for (int v = 0; v < kAtOnce; ++v) {
      vi zero{};
      if constexpr (zeros) zero = load_lanes(t.weight_zero + (first + v) * kWidth);
      AOTPACK_UNROLL
      for (int r = 0; r < rows; ++r) {
        if constexpr (zeros)
          sum[r][v] = reinterpret_cast<vi>(reinterpret_cast<vu>(sum[r][v]) -
                                           reinterpret_cast<vu>(ones[r]) * reinterpret_cast<vu>(zero));
        store_lanes(sums + r * kAll * kWidth + (first + v) * kWidth, sum[r][v]);
      }
    }
  }
  return false;
}

using Tile = bool (*)(const Int8ConvArgs&, const Int8TileArgs&, const uint8_t* const*, int32_t*, const Int8Sums&,
                      const Int8End*);
template <bool fused, bool zeros, int panels, int... row>
constexpr std::array<Tile, sizeof...(row)> tiles(std::integer_sequence<int, row...>) {
  return {tile<fused, zeros, row + 1, panels>...};
}

// Output pixels and columns that a thread computes, a block of `panels` panels at a time.
template <bool fused, bool zeros>
void dense(const Int8ConvArgs& a, const Plan& p, const Int8Source& x, int thread, int threads) {
  constexpr int kWide = fused && !zeros ? kFusedPanels : 1;
  constexpr auto kRowNumbers = std::make_integer_sequence<int, kRows>();
  static constexpr std::array<Tile, kRows> kTiles[2] = {tiles<fused, zeros, 1>(kRowNumbers),
                                                        tiles<fused, zeros, kWide>(kRowNumbers)};
  constexpr bool kMatrix = kInt8Matrix && fused && !zeros;
  const int64_t steps = p.runs.outer * p.runs.steps();
  Int8TileArgs t{p.tap_offsets, p.runs.outer, p.runs.steps(), nullptr, steps * kPanel * 4, nullptr, nullptr, p.ones, 0};
  const Int8End all(a);
  const Int8End* const end = a.result != Int8Result::f32 ? &all : nullptr;
  const int64_t per_group = ceil_div(p.panels, kWide), row_tiles = ceil_div(p.pixels, kRows);
  const Rectangle mine = share_grid(row_tiles, a.groups * per_group, static_cast<double>(steps * 4 * kRows),
                                    static_cast<double>(steps * kPanel * 4 * kWide), thread, threads);
  alignas(64) int32_t sums[kRows * kPanel * kWide];
  [[maybe_unused]] alignas(64) int32_t shifted[kPanel];
  // As even as possible: a tile of one row waits for each product. In pairs where an instruction multiplies two rows.
  constexpr int64_t kUnit = kMatrix ? 2 : 1;
  const int64_t units = ceil_div(p.pixels, kUnit), fewest = units / row_tiles, larger = units % row_tiles;
  const auto begin_of = [&](int64_t tile) { return min64((tile * fewest + min64(tile, larger)) * kUnit, p.pixels); };
  // So many tiles at a time that what they read and write stays in the cache over all columns, which write parts of the
  // same lines.
  const int64_t weight_bytes = p.columns * steps * 4, tile_bytes = kRows * (a.c * a.stride[2] + 2 * a.oc);
  const int64_t room = weight_bytes <= kNearBytes ? kNearBytes : kChunkBytes;
  const int64_t some = min64(max64(room / tile_bytes, 1), kMostTiles);
  const uint8_t* at[kMostTiles * kRows];
  [[maybe_unused]] int8_t* const kept = p.kept + thread * p.kept_bytes;
  Int8Windows windows(a, x, begin_of(mine.rows.begin));
  for (int64_t first = mine.rows.begin; first < mine.rows.end; first += some) {
    const int64_t last = min64(first + some, mine.rows.end), pixel = begin_of(first);
    const int64_t pixels = begin_of(last) - pixel;
    for (int64_t i = 0; i < pixels; ++i) at[i] = windows.next();
    for (int64_t block = mine.columns.begin; block < mine.columns.end; ++block) {
      const int64_t group = block / per_group, panel = block % per_group * kWide;
      const int panels = p.panels - panel < kWide ? 1 : kWide;
      const int64_t column = (group * p.panels + panel) * kPanel, channel = group * p.og + panel * kPanel;
      t.w = a.w_packed + column * steps * 4;
      t.init = a.init + column;
      if constexpr (kInt8Shifts && fused && !zeros) {
        static_assert(kWide == 1);
        int8_shift(t.w, steps, t.init, shifted);
        t.init = shifted;
      }
      t.weight_zero = zeros ? a.weight_zero + column : nullptr;
      t.begin = group * p.cg;
      Int8Sums s{sums, panels * kPanel, 0, pixel, channel, column, min64(panels * kPanel, p.og - panel * kPanel)};
      for (int64_t each = first; each < last; ++each, s.pixel += s.rows) {
        s.rows = static_cast<int>(begin_of(each + 1) - s.pixel);
        const uint8_t* const* const from = at + (s.pixel - pixel);
#if defined(__ARM_FEATURE_MATMUL_INT8)
        if constexpr (kMatrix) {
          if (s.rows > 1) {
            if (last - first == 1) {
              int8_matrix_rows<Int8Columns::pair>(t, from, s.rows, nullptr, sums);
            } else if (each == first) {
              int8_matrix_rows<Int8Columns::pair_and_keep>(t, from, s.rows, kept, sums);
            } else {
              int8_matrix_rows<Int8Columns::kept>(t, from, s.rows, kept, sums);
            }
            requantize(a, s);
            continue;
          }
        }
#endif
        const Tile multiply = kTiles[panels - 1][static_cast<size_t>(s.rows - 1)];
        if (!multiply(a, t, from, sums, s, end)) requantize(a, s);
      }
    }
  }
}

template <bool fused, bool zeros>
void run(const Int8ConvArgs& a) {
  Plan p = plan_of(a, a.scratch);
  if (p.tiles) p.next = weights_after(a.w_packed, a.groups * p.panels * p.runs.outer * p.runs.steps() * 4 * kPanel);
  const double macs = static_cast<double>(p.pixels) * static_cast<double>(a.oc * p.cg) * static_cast<double>(p.taps);
  const double bytes = static_cast<double>(p.pixels) * static_cast<double>(a.oc);
  const double speed = p.tiles ? 600e3 : fused ? 100e3 : 25e3;  // multiply-adds in a microsecond
  const int team = worth_threads(macs / speed + bytes / 2e3, a.num_threads);
  const Int8Source x = p.source(a);
  lay_taps(a, p, x);
  parallel(team, [&](int thread, int threads) {
    if (p.copied) {
      const Range rows = share(a.n * p.padded[0] * p.padded[1], thread, threads);
      for (int64_t row = rows.begin; row < rows.end; ++row) copy_row(a, p, row);
      if (thread == 0) std::memset(p.copy + a.n * x.image, 0, kInt8Slack);
      team_barrier(threads);
    }
    if (p.tiles) return int8_tiles(a, p.tile_work(), x, thread, threads, p.tile_scratch);
    dense<fused, zeros>(a, p, x, thread, threads);
  });
}

}  // namespace

size_t conv_int8_scratch_bytes(const Int8ConvArgs& args) {
  if (int8_depthwise(args.c, args.oc, args.groups)) return conv_int8_depthwise_scratch_bytes(args);
  return plan_of(args, reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void conv_int8(const Int8ConvArgs& args) {
  if (args.n * args.out[0] * args.out[1] * args.out[2] * args.oc <= 0) return;
  if (int8_depthwise(args.c, args.oc, args.groups)) return conv_int8_depthwise(args);
  const bool zeros = args.weight_zero != nullptr;
#if defined(AOTPACK_INT8_DOT)
  if (!args.plain && has_int8_dot()) return zeros ? run<true, true>(args) : run<true, false>(args);
#endif
  zeros ? run<false, true>(args) : run<false, false>(args);
}

}  // namespace aotpack::kernels
