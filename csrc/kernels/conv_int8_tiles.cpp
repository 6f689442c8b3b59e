// Windows are multiplied where they lie, as rows that overlap (tile_rows.h); the few sums at the ends of lines that
// belong to no output are not written. What lies together in a window and is no whole steps is read with what follows
// it, by weights that have zeros there. Where either would be too much, windows are copied, some hundred at a time: the
// copies stay in the second-level cache. A tile of 32 rows is multiplied with one panel after another, so that its rows
// stay in the first-level cache, and becomes bytes during the steps of the next tile.
#include "conv_int8_tiles.h"

#if defined(__AMX_INT8__)

#include "amx.h"
#include "int8_requantize.h"
#include "parallel.h"
#include "tile_rows.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kTile = 2 * kHalfTile;        // rows
constexpr int64_t kStep = 64;                   // bytes of a row
constexpr int64_t kPanelStep = kStep * kPanel;  // bytes of a panel
constexpr int64_t kSpace = 64;                  // between rows: powers of two apart they would evict each other
constexpr int64_t kCopyBytes = 384 << 10;       // of the rows, that are multiplied with all panels before others
constexpr int64_t kPanelBytes = 768 << 10;      // of the panels, that tiles of these rows are multiplied with in turn
constexpr int64_t kWay = 4096;                  // of the nearest cache: rows so far apart evict each other
constexpr int64_t kMostRows = 512;
constexpr int64_t kEnds = 4;                // rows that become bytes at once, or a multiple
constexpr double kMostTiles = 1.5;          // as many as outputs alone would fill
constexpr int64_t kCopySteps = 3;           // as many as copies of 32 rows' steps take as long as
constexpr int64_t kMostPadded = 256 << 10;  // bytes of weights with zeros

// The rows that tiles read.
struct Layout {
  bool in_place;  // or copied
  bool padded;    // weights have zeros up to whole steps of each run
  int64_t images;
  TileRows rows;            // of each image, in bytes
  int64_t steps;            // of a row
  int64_t runs, run_steps;  // that lie together: runs of a row, and their steps
  int64_t block;            // rows at a time
};

// Whether what is no whole steps is read in place: what would be copied takes longer than the steps that are added.
bool reads_beyond(const Int8ConvArgs& a, const Int8TileWork& p) {
  const int64_t run_steps = ceil_div(p.steps * 4, kStep), steps = p.outer * run_steps;
  const int64_t added = (steps - ceil_div(p.outer * p.steps * 4, kStep)) * a.groups * p.panels;
  return p.slack && added <= kCopySteps * steps && a.groups * p.panels * steps * kPanelStep <= kMostPadded;
}

Layout layout_of(const Int8ConvArgs& a, const Int8TileWork& p, const Int8Source& x) {
  Layout l = {};
  l.steps = ceil_div(p.outer * p.steps * 4, kStep);
  const int64_t row = a.stride[2] * x.pixel;
  bool same = true;  // sizes of input and output
  for (int d = 0; d < 3; ++d) same &= a.stride[d] == 1 && a.out[d] == x.size[d];
  const bool flat = x.size[0] == 1 && a.stride[1] == 1 && a.stride[2] == 1;
  const int64_t run_steps = ceil_div(p.steps * 4, kStep);
  l.padded = p.steps * 4 % kStep != 0;
  if ((!l.padded || reads_beyond(a, p)) && row < kWay && (same || x.size[0] == 1)) {
    l.images = same ? 1 : a.n;
    l.rows = same   ? TileRows::matrix(p.pixels, p.pixels, p.pixels, row)
             : flat ? TileRows::matrix((a.out[1] - 1) * x.size[2] + a.out[2], x.size[2], a.out[2], row)
                    : TileRows::halves(a.out[1], a.out[2], row, a.stride[1] * x.row);
    l.in_place =
        (a.weight_zero == nullptr || (l.rows.half == 0 && !l.padded)) &&
        static_cast<double>(l.images * l.rows.tiles()) <= kMostTiles * static_cast<double>(ceil_div(p.pixels, kTile));
  }
  if (l.in_place) {
    l.runs = p.outer;
    l.steps = p.outer * run_steps;
    l.run_steps = run_steps;
  } else {
    l.images = l.runs = 1;
    l.padded = false;
    l.rows = TileRows::matrix(p.pixels, p.pixels, p.pixels, l.steps * kStep + kSpace);
    l.run_steps = l.steps;
  }
  const int64_t most = max64(kCopyBytes / (kTile * l.rows.row), 1) * kTile;
  l.block = min64(round_up(l.rows.rows, kTile), l.in_place ? most : min64(most, kMostRows));
  return l;
}

// What a thread works in.
struct Buffers {
  uint8_t* rows;
  int32_t* counts;  // the sum of the bytes of each row
  int8_t* weights;  // with zeros
  size_t bytes;
};
Buffers carve(const Layout& l, int64_t panels, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.rows = from.take<uint8_t>(l.in_place ? 0 : l.block * l.rows.row);
  b.counts = from.take<int32_t>(l.block);
  b.weights = from.take<int8_t>(l.padded ? panels * l.steps * kPanelStep : 0);
  b.bytes = from.bytes();
  return b;
}
// Counting needs an address; it is not touched.
size_t bytes_each(const Layout& l, int64_t panels) {
  return carve(l, panels, reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void pad_weights(const Int8ConvArgs& a, const Int8TileWork& p, const Layout& l, Range panels, int8_t* to) {
  const int64_t run = p.steps * 4 * kPanel, padded = l.run_steps * kPanelStep;
  for (int64_t i = panels.begin * l.runs; i < panels.end * l.runs; ++i) {
    std::memcpy(to + i * padded, a.w_packed + i * run, static_cast<size_t>(run));
    std::memset(to + i * padded + run, 0, static_cast<size_t>(padded - run));
  }
}

// Rows of a group by some of its panels.
class Part {
 public:
  Part(const Int8ConvArgs& a, const Int8TileWork& p, const Int8Source& x, const Layout& l, const Buffers& b,
       const Weights& next)
      : a_(a), p_(p), x_(x), l_(l), b_(b), next_(next), end_(a) {}
  ~Part() {
    finish_all();
    if (configured_) _tile_release();
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  void run(int64_t image, Range rows, int64_t group, Range panels) {
    const int64_t panel_bytes = weight(1) - weight(0);
    const int64_t together = max64(kPanelBytes / panel_bytes, 1);
    // Where all panels stay, rows are read once.
    const bool all = panels.end - panels.begin <= together;
    const int64_t block = l_.in_place && all && a_.weight_zero == nullptr ? rows.end - rows.begin : l_.block;
    image_ = image;
    group_ = group;
    for (int64_t row = rows.begin; row < rows.end; row += block) {
      const Range some = {row, min64(row + block, rows.end)};
      prepare(some);
      for (int64_t panel = panels.begin; panel < panels.end; panel += together) {
        const Range mine = {panel, min64(panel + together, panels.end)};
        ahead_ = weight(mine.end);
        ahead_end_ = weight(min64(mine.end + together, panels.end));
        if (mine.end == panels.end && some.end == rows.end) ahead(next_);
        multiply(some, mine);
      }
    }
  }

 private:
  static constexpr int64_t kFour = kPanel * 4;  // bytes of a panel, for four bytes of a row

  struct Tile {
    const uint8_t *first, *later;  // rows of its halves
  };

  const int8_t* weight(int64_t panel) const {
    panel += group_ * p_.panels;
    return l_.padded ? b_.weights + panel * l_.steps * kPanelStep : a_.w_packed + panel * p_.outer * p_.steps * kFour;
  }
  // Rows of the tiles of a block.
  const uint8_t* rows(int64_t row) const {
    if (!l_.in_place) return b_.rows + (row - begin_) * l_.rows.row;
    return x_.data + image_ * x_.image + group_ * p_.cg + l_.rows.place(row);
  }

  int32_t* sums() { return sums_ + which_ * kTile * kPanel; }

  // ---- rows ------------------------------------------------------------------------------------------------------

  void prepare(Range rows) {
    begin_ = rows.begin;
    if (l_.in_place && a_.weight_zero == nullptr) return;
    finish_all();  // which reads counts
    const int64_t run = int8_runs(p_.cg, a_.groups, a_.kernel, a_.dilation).run;
    Int8Windows windows(a_, x_, l_.in_place ? 0 : rows.begin);
    for (int64_t r = 0; r < rows.end - rows.begin; ++r) {
      const uint8_t* window = l_.in_place ? this->rows(rows.begin + r) : windows.next() + group_ * p_.cg;
      if (!l_.in_place) copy(window, b_.rows + r * l_.rows.row);
      if (a_.weight_zero != nullptr) b_.counts[r] = count(window, run);
    }
  }

  // Zeros follow up to whole steps.
  void copy(const uint8_t* window, uint8_t* to) const {
    const int64_t run = p_.steps * 4;
    for (int64_t t = 0; t < p_.outer; ++t) {
      const uint8_t* from = window + p_.taps[t];
      for (int64_t i = 0; i < run; i += kStep) {
        const int64_t left = min64(run - i, kStep);
        const __m512i bytes = _mm512_maskz_loadu_epi8(~uint64_t{0} >> (kStep - left), from + i);
        std::memcpy(to, &bytes, kStep);
        to += left;
      }
    }
    std::memset(to, 0, kStep);
  }

  // The bytes that count: those of a run, not what follows it up to whole fours.
  int32_t count(const uint8_t* window, int64_t run) const {
    int32_t sum = 0;
    for (int64_t t = 0; t < p_.outer; ++t) {
      const uint8_t* from = window + p_.taps[t];
      for (int64_t i = 0; i < run; ++i) sum += from[i];
    }
    return sum;
  }

  // ---- beside the steps ------------------------------------------------------------------------------------------

  void ahead(const Weights& weights) {
    ahead_ = reinterpret_cast<const int8_t*>(weights.data);
    ahead_end_ = ahead_ + weights.bytes;
  }

  // Asks for some of the next panels in the second-level cache, when these are there.
  void ask() {
    constexpr int64_t kLines = 8;
    if (ahead_ >= ahead_end_) return;
    AOTPACK_UNROLL
    for (int64_t i = 0; i < kLines; ++i) __builtin_prefetch(ahead_ + i * 64, 0, 2);
    ahead_ += kLines * 64;
  }

  // `count` outputs of the tile before.
  void finish(int64_t count) {
    pending_.take(count, [&](const TileOutputs::Run& run) {
      ended_.sums = ended_sums_ + run.row * kPanel;
      ended_.rows = static_cast<int>(run.count);
      ended_.pixel = ended_pixel_ + run.pixel;
      if (a_.weight_zero != nullptr) subtract_zeros(run);
      requantize(a_, end_, ended_);
    });
  }
  void finish_all() { finish(pending_.left()); }

  void begin_finish(const TileOutputs& outputs, int64_t panel, int64_t counts) {
    finish_all();
    pending_ = PendingOutputs(outputs);
    counts_ = counts;
    ended_sums_ = sums();
    ended_pixel_ = image_ * image_pixels_;
    ended_.stride = kPanel;
    ended_.channel = group_ * p_.og + panel * kPanel;
    ended_.column = (group_ * p_.panels + panel) * kPanel;
    ended_.columns = min64(kPanel, p_.og - panel * kPanel);
  }

  void subtract_zeros(const TileOutputs::Run& run) {
    const int32_t* zeros = a_.weight_zero + ended_.column;
    int32_t* sums = sums_ + (ended_sums_ - sums_);
    for (int64_t r = run.row; r < run.row + run.count; ++r) {
      const auto bytes = static_cast<uint32_t>(b_.counts[counts_ + r]);
      for (int64_t j = 0; j < kPanel; j += kWidth) {
        int32_t* at = sums + r * kPanel + j;
        const vu product = reinterpret_cast<vu>(load_lanes(zeros + j)) * bytes;
        store_lanes(at, reinterpret_cast<vi>(reinterpret_cast<vu>(load_lanes(at)) - product));
      }
    }
  }

  // ---- steps -----------------------------------------------------------------------------------------------------

  void multiply(Range rows, Range panels) {
    ends_of_step_ = round_up(ceil_div(kTile, l_.steps), kEnds);
    for (int64_t begin = rows.begin; begin < rows.end; begin += kTile) {
      // Tiles are configured once: where the last one has fewer rows, those before it are computed twice, or what the
      // copies have behind it.
      const int64_t left = min64(kTile, rows.end - begin), half = l_.rows.half;
      const int64_t few = l_.in_place ? min64(l_.rows.rows, kTile) : kTile;
      const int64_t count = half > 0 ? left : few < kTile ? few : left > kHalfTile ? kTile : kHalfTile;
      const int64_t before = l_.in_place ? count - left : 0;
      const Tile tile = {this->rows(begin - before),
                         count > kHalfTile ? this->rows(begin - before + kHalfTile) : nullptr};
      if (!configured_)
        half > 0 ? amx_configure(static_cast<int>(half), static_cast<int>(half)) : amx_configure(static_cast<int>(few));
      configured_ = true;
      asks_ = begin > rows.begin;
      // Not those of the tile before, which are ended during the steps of this one.
      TileOutputs& outputs = outputs_[which_outputs_ = 1 - which_outputs_];
      l_.rows.outputs(begin, left, before, &outputs);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        which_ = 1 - which_;
        count > kHalfTile ? sum<true>(tile, panel) : sum<false>(tile, panel);
        begin_finish(outputs, panel, begin - before - begin_);
      }
    }
  }

  // The last panels are followed by too little for whole steps.
  void copy_ending(int64_t panel) {
    const int8_t* const from = weight(panel) + (l_.steps - 1) * kPanelStep;
    if (from == ending_from_) return;
    ending_from_ = from;
    const int64_t left = weight(panel + 1) - from;
    std::memcpy(ending_, from, static_cast<size_t>(left));
    std::memset(ending_ + left, 0, static_cast<size_t>(kPanelStep - left));
  }

  template <bool both>
  void sum(const Tile& tile, int64_t panel) {
    int32_t* const sums = this->sums();
    constexpr int64_t kSums = kPanel * 4;
    const int32_t* init = a_.init + (group_ * p_.panels + panel) * kPanel;
    order_memory();
    _tile_loadd(0, init, 0);
    _tile_loadd(1, init + 16, 0);
    if constexpr (both) {
      _tile_loadd(2, init, 0);
      _tile_loadd(3, init + 16, 0);
    }
    const int8_t* w = weight(panel);
    const bool ends = !l_.padded && w + l_.steps * kPanelStep > weights_end_;
    if (ends) copy_ending(panel);
    for (int64_t t = 0; t < l_.runs; ++t, w += l_.run_steps * kPanelStep) {
      steps<both>(tile, l_.in_place ? p_.taps[t] : 0, l_.run_steps - (ends ? 1 : 0), w);
    }
    if (ends) steps<both>(tile, (l_.run_steps - 1) * kStep, 1, ending_);
    _tile_stored(0, sums, kSums);
    _tile_stored(1, sums + 16, kSums);
    if constexpr (both) {
      _tile_stored(2, sums + 16 * kPanel, kSums);
      _tile_stored(3, sums + 16 * kPanel + 16, kSums);
    }
    order_memory();
  }

  template <bool both>
  void steps(const Tile& tile, int64_t offset, int64_t count, const int8_t* w) {
    const uint8_t *x = tile.first + offset, *later = both ? tile.later + offset : nullptr;
    for (; count > 0; --count, x += kStep, later += both ? kStep : 0, w += kPanelStep) {
      _tile_loadd(4, w, kFour);
      _tile_loadd(6, x, l_.rows.row);
      _tile_loadd(5, w + 64, kFour);
      _tile_dpbusd(0, 6, 4);
      if constexpr (both) _tile_loadd(7, later, l_.rows.row);
      _tile_dpbusd(1, 6, 5);
      if constexpr (both) {
        _tile_dpbusd(2, 7, 4);
        _tile_dpbusd(3, 7, 5);
      }
      if (asks_) ask();
      if (pending_.left() > 0) finish(ends_of_step_);
    }
  }

  const Int8ConvArgs& a_;
  const Int8TileWork& p_;
  const Int8Source& x_;
  const Layout& l_;
  const Buffers& b_;
  const Weights next_;  // this thread's part
  const Int8End end_;
  const int64_t image_pixels_ = p_.pixels / l_.images;
  int64_t image_ = 0, group_ = 0, begin_ = 0;
  bool configured_ = false, asks_ = false;
  int64_t which_ = 0;
  const int8_t *ahead_ = nullptr, *ahead_end_ = nullptr;

  TileOutputs outputs_[2];
  int which_outputs_ = 0;
  PendingOutputs pending_;
  Int8Sums ended_ = {};
  const int32_t* ended_sums_ = nullptr;
  int64_t ended_pixel_ = 0;  // the first one of the image
  int64_t counts_ = 0, ends_of_step_ = kTile;

  const int8_t* const weights_end_ = a_.w_packed + a_.groups * p_.panels * p_.outer * p_.steps * kFour;
  const int8_t* ending_from_ = nullptr;  // the step that `ending_` is, with zeros
  alignas(64) int8_t ending_[kPanelStep];
  alignas(64) int32_t sums_[2 * kTile * kPanel];
};

}  // namespace

bool int8_tiles_work() { return amx_allowed(); }

size_t int8_tiles_scratch_bytes(const Int8ConvArgs& a, const Int8TileWork& work, const Int8Source& x) {
  return bytes_each(layout_of(a, work, x), a.groups * work.panels) * static_cast<size_t>(max64(a.num_threads, 1));
}

void int8_tiles(const Int8ConvArgs& a, const Int8TileWork& p, const Int8Source& x, int thread, int threads,
                void* scratch) {
  const Layout l = layout_of(a, p, x);
  const int64_t columns = a.groups * p.panels;
  const size_t each = bytes_each(l, columns);
  const Buffers b = carve(l, columns, static_cast<char*>(scratch) + each * static_cast<size_t>(thread));
  // Rows are copied by every thread that shares them, where they are copied.
  const Rectangle mine = share_grid(l.images * l.rows.tiles(), columns,
                                    static_cast<double>((l.in_place ? 1 : 4) * l.steps * kStep * kTile),
                                    static_cast<double>(l.steps * kPanelStep), thread, threads);
  if (l.padded) pad_weights(a, p, l, mine.columns, b.weights);
  Part part(a, p, x, l, b, share_ahead(p.next, thread, threads));
  for (int64_t group = mine.columns.begin / p.panels; group * p.panels < mine.columns.end; ++group) {
    const Range panels = {max64(mine.columns.begin - group * p.panels, 0),
                          min64(mine.columns.end - group * p.panels, p.panels)};
    for (int64_t image = mine.rows.begin / l.rows.tiles(); image * l.rows.tiles() < mine.rows.end; ++image) {
      const int64_t first = max64(mine.rows.begin - image * l.rows.tiles(), 0) * kTile;
      const int64_t last = min64((mine.rows.end - image * l.rows.tiles()) * kTile, l.rows.rows);
      part.run(image, {first, last}, group, panels);
    }
  }
}

}  // namespace aotpack::kernels

#else

namespace aotpack::kernels {

bool int8_tiles_work() { return false; }
size_t int8_tiles_scratch_bytes(const Int8ConvArgs&, const Int8TileWork&, const Int8Source&) { return 0; }
void int8_tiles(const Int8ConvArgs&, const Int8TileWork&, const Int8Source&, int, int, void*) {}

}  // namespace aotpack::kernels

#endif
