#include "conv_int8_tiles.h"

#if defined(__AMX_INT8__)

#include "amx.h"
#include "int8_requantize.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kTileRows = 32;
constexpr int64_t kStep = 64;   // bytes of a row that a tile holds
constexpr int64_t kSpace = 64;  // between rows: powers of two apart they would evict each other
constexpr int64_t kCopyBytes = 384 << 10;
constexpr int64_t kWay = 4096;  // of the nearest cache: rows so far apart evict each other
constexpr int64_t kMostRows = 512;
constexpr int64_t kFourBytes = kPanel * 4;  // of a panel, for four bytes of a row

int64_t bytes_of(const Int8TileWork& p) { return p.outer * p.steps * 4; }
int64_t stride_of(const Int8TileWork& p) { return round_up(bytes_of(p), kStep) + kSpace; }
int64_t rows_of(const Int8TileWork& p) {
  const int64_t rows = kCopyBytes / stride_of(p) / kTileRows * kTileRows;
  return min64(round_up(p.pixels, kTileRows), min64(kMostRows, max64(kTileRows, rows)));
}

// What a thread works in.
struct Buffers {
  uint8_t* rows;
  int32_t* counts;  // the sum of the bytes of each row
  size_t bytes;
};
Buffers carve(const Int8TileWork& p, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.rows = from.take<uint8_t>(rows_of(p) * stride_of(p));
  b.counts = from.take<int32_t>(rows_of(p));
  b.bytes = from.bytes();
  return b;
}

void copy_window(const Int8TileWork& p, const uint8_t* window, uint8_t* to) {
  uint8_t* const end = to + round_up(bytes_of(p), kStep);
  const size_t run = static_cast<size_t>(p.steps * 4);
  for (int64_t t = 0; t < p.outer; ++t, to += run) std::memcpy(to, window + p.taps[t], run);
  std::memset(to, 0, static_cast<size_t>(end - to));
}

// Whether windows are rows that a tile can read where they lie: pixels side by side, of whole steps.
bool lie_in_rows(const Int8ConvArgs& a, const Int8TileWork& p, const Int8Source& x) {
  bool same = p.outer == 1 && bytes_of(p) == p.cg && p.cg % kStep == 0 && x.pixel < kWay;
  for (int d = 0; d < 3; ++d) same &= a.stride[d] == 1 && a.out[d] == x.size[d];
  return same;
}

// The bytes that count: those of a run, not what follows it up to whole fours.
int32_t count_bytes(const Int8TileWork& p, int64_t run, const uint8_t* row) {
  int32_t sum = 0;
  for (int64_t t = 0; t < p.outer; ++t, row += p.steps * 4) {
    for (int64_t i = 0; i < run; ++i) sum += row[i];
  }
  return sum;
}

// The end of a panel, which fills no tile, with zeros behind.
struct Ending {
  alignas(64) int8_t w[16 * kFourBytes];
};

template <bool both>
void multiply(const uint8_t* rows, int64_t stride, int64_t steps, const int8_t* w, const int8_t* ending,
              const int32_t* init, int32_t* sums) {
  constexpr int64_t kSums = kPanel * 4;
  order_memory();
  _tile_loadd(0, init, 0);
  _tile_loadd(1, init + 16, 0);
  if constexpr (both) {
    _tile_loadd(2, init, 0);
    _tile_loadd(3, init + 16, 0);
  }
  for (int64_t i = 0; i < steps; ++i, rows += kStep, w += 16 * kFourBytes) {
    const int8_t* b = i + 1 == steps && ending != nullptr ? ending : w;
    _tile_loadd(4, b, kFourBytes);
    _tile_loadd(6, rows, stride);
    _tile_loadd(5, b + 64, kFourBytes);
    _tile_dpbusd(0, 6, 4);
    if constexpr (both) _tile_loadd(7, rows + 16 * stride, stride);
    _tile_dpbusd(1, 6, 5);
    if constexpr (both) {
      _tile_dpbusd(2, 7, 4);
      _tile_dpbusd(3, 7, 5);
    }
  }
  _tile_stored(0, sums, kSums);
  _tile_stored(1, sums + 16, kSums);
  if constexpr (both) {
    _tile_stored(2, sums + 16 * kPanel, kSums);
    _tile_stored(3, sums + 16 * kPanel + 16, kSums);
  }
  order_memory();
}

// Tiles of a configuration, which lasts until the end.
class Tiles {
 public:
  ~Tiles() {
    if (count_ != 0) _tile_release();
  }
  void multiply(int count, const uint8_t* rows, int64_t stride, int64_t steps, const int8_t* w, const int8_t* ending,
                const int32_t* init, int32_t* sums) {
    if (count != count_) amx_configure(count_ = count);
    (count > 16 ? kernels::multiply<true> : kernels::multiply<false>)(rows, stride, steps, w, ending, init, sums);
  }

 private:
  int count_ = 0;
};

void subtract_zeros(const int32_t* counts, const int32_t* zeros, int rows, int32_t* sums) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < kPanel; j += kWidth) {
      int32_t* at = sums + r * kPanel + j;
      const vu product = reinterpret_cast<vu>(load_lanes(zeros + j)) * static_cast<uint32_t>(counts[r]);
      store_lanes(at, reinterpret_cast<vi>(reinterpret_cast<vu>(load_lanes(at)) - product));
    }
  }
}

}  // namespace

bool int8_tiles_work() { return amx_allowed(); }

size_t int8_tiles_scratch_bytes(const Int8TileWork& work, int num_threads) {
  return carve(work, reinterpret_cast<void*>(uintptr_t{64})).bytes * static_cast<size_t>(max64(num_threads, 1));
}

void int8_tiles(const Int8ConvArgs& a, const Int8TileWork& p, const Int8Source& x, int thread, int threads,
                void* scratch) {
  const size_t each = carve(p, reinterpret_cast<void*>(uintptr_t{64})).bytes;
  const Buffers b = carve(p, static_cast<char*>(scratch) + each * static_cast<size_t>(thread));
  const bool in_place = lie_in_rows(a, p, x);
  const int64_t row_bytes = bytes_of(p), stride = in_place ? x.pixel : stride_of(p), fours = p.outer * p.steps;
  const int64_t steps = ceil_div(row_bytes, kStep), whole = row_bytes / kStep;
  const int64_t run = int8_runs(p.cg, a.groups, a.kernel, a.dilation).run;
  // Rows are copied by every thread that shares them, where they are copied.
  const Rectangle mine = share_grid(ceil_div(p.pixels, kTileRows), a.groups * p.panels,
                                    static_cast<double>((in_place ? 1 : 4) * row_bytes * kTileRows),
                                    static_cast<double>(row_bytes * kPanel), thread, threads);
  const Range pixels = {mine.rows.begin * kTileRows, min64(mine.rows.end * kTileRows, p.pixels)};
  Tiles tiles;
  Ending ending;
  alignas(64) int32_t sums[kTileRows * kPanel];
  for (int64_t group = mine.columns.begin / p.panels; group * p.panels < mine.columns.end; ++group) {
    const int64_t begin = max64(mine.columns.begin - group * p.panels, 0);
    const int64_t end = min64(mine.columns.end - group * p.panels, p.panels);
    Int8Windows windows(a, x, pixels.begin);
    for (int64_t first = pixels.begin; first < pixels.end; first += rows_of(p)) {
      const int64_t some = min64(rows_of(p), pixels.end - first);
      const uint8_t* rows = in_place ? x.data + first * x.pixel + group * p.cg : b.rows;
      for (int64_t r = 0; r < some; ++r) {
        if (!in_place) copy_window(p, windows.next() + group * p.cg, b.rows + r * stride);
        if (a.weight_zero != nullptr) b.counts[r] = count_bytes(p, run, rows + r * stride);
      }
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t column = (group * p.panels + panel) * kPanel;
        const int8_t* w = a.w_packed + column * fours * 4;
        if (whole < steps) {
          const int64_t done = whole * 16 * kFourBytes, left = fours * kFourBytes - done;
          std::memset(ending.w, 0, sizeof ending.w);
          std::memcpy(ending.w, w + done, static_cast<size_t>(left));
        }
        for (int64_t r = 0; r < some; r += kTileRows) {
          const int count = static_cast<int>(min64(kTileRows, some - r));
          tiles.multiply(count, rows + r * stride, stride, steps, w, whole < steps ? ending.w : nullptr,
                         a.init + column, sums);
          if (a.weight_zero != nullptr) subtract_zeros(b.counts + r, a.weight_zero + column, count, sums);
          requantize(a, {sums, kPanel, count, first + r, group * p.og + panel * kPanel, column,
                         min64(kPanel, p.og - panel * kPanel)});
        }
      }
    }
  }
}

}  // namespace aotpack::kernels

#else

namespace aotpack::kernels {

bool int8_tiles_work() { return false; }
size_t int8_tiles_scratch_bytes(const Int8TileWork&, int) { return 0; }
void int8_tiles(const Int8ConvArgs&, const Int8TileWork&, const Int8Source&, int, int, void*) {}

}  // namespace aotpack::kernels

#endif
