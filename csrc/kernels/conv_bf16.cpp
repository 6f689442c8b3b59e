// What an output pixel reads is copied into one row, some hundred pixels at a time, which are then multiplied with the
// weights as a linear's. The copies stay in the second-level cache and are read once for every panel of outputs.
#include "conv_bf16.h"

#include <cstring>

#include "bf16_copy.h"
#include "bf16_product.h"
#include "conv_bf16_direct.h"
#include "conv_bf16_tiles.h"
#include "conv_phase.h"
#include "linear_bf16.h"
#include "parallel.h"
#include "transpose_copy.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kCopyBytes = (kBf16Rows > 16 ? 768 : 512) << 10;  // of copied rows at a time
constexpr int64_t kFewestRows = 64;
// Between copied rows: powers of two apart they would evict each other. And what a copy writes behind its end.
constexpr int64_t kSpace = 32;

struct Plan {
  int64_t cg, og;          // channels of a group
  int64_t k;               // elements that an output reads
  int64_t stride;          // from one copied row to the next
  int64_t rows;            // copied at a time
  int64_t pixels, panels;  // of a group's outputs
};

Plan plan(const ConvArgs& g) {
  Plan p = {};
  p.cg = g.c / g.groups;
  p.og = g.oc / g.groups;
  p.k = g.kernel[0] * g.kernel[1] * g.kernel[2] * p.cg;
  // Whole steps of the instructions, so that the ends of rows need no copies of their own.
  p.stride = bf16_padded(p.k) + kSpace;
  p.pixels = g.n * g.out[0] * g.out[1] * g.out[2];
  const int64_t most = max64(kFewestRows, kCopyBytes / (2 * p.stride) / kBf16Tile * kBf16Tile);
  p.rows = min64(p.pixels, round_up(ceil_div(p.pixels, max64(ceil_div(p.pixels, most), 1)), kBf16Tile));
  p.panels = ceil_div(p.og, kPanel);
  return p;
}

// Where an output pixel lies.
struct Position {
  int64_t image, d, h, w;
};

Position position_of(const ConvArgs& g, int64_t pixel) {
  const int64_t row = pixel / g.out[2], slice = row / g.out[1];
  return {slice / g.out[0], slice % g.out[0], row % g.out[1], pixel % g.out[2]};
}

// One tap after the other for all pixels of a run, in ascending order: a copy may write zeros behind its end.
class Copier {
 public:
  Copier(const ConvArgs& g, const Plan& p, const bf16* x) : g_(g), p_(p), x_(x) {}

  // What `count` output pixels from `pixel` on read, each to a row of `to`: in runs that lie in one row of outputs.
  void run(int64_t pixel, int64_t count, bf16* to) const {
    while (count > 0) {
      const Position at = position_of(g_, pixel);
      const int64_t some = min64(count, g_.out[2] - at.w);
      copy_run(at, some, to);
      pixel += some;
      count -= some;
      to += some * p_.stride;
    }
  }

 private:
  void copy_run(const Position& at, int64_t count, bf16* to) const {
    const int64_t image = at.image * g_.in[0] * g_.in[1] * g_.in[2] * g_.c, row = p_.cg * g_.kernel[2];
    int64_t done = 0;
    for (int64_t i = 0; i < g_.kernel[0]; ++i) {
      const int64_t d = at.d * g_.stride[0] - g_.padding[0] + i * g_.dilation[0];
      for (int64_t j = 0; j < g_.kernel[1]; ++j, done += row) {
        const int64_t h = at.h * g_.stride[1] - g_.padding[1] + j * g_.dilation[1];
        if (d >= 0 && d < g_.in[0] && h >= 0 && h < g_.in[1]) {
          copy_lines(x_ + image + (d * g_.in[1] + h) * g_.in[2] * g_.c, at.w, count, to + done);
        } else {
          for (int64_t r = 0; r < count; ++r) copy_vectors(x_, 0, row, to + done + r * p_.stride);
        }
      }
    }
    const int64_t rest = p_.stride - kSpace - done;
    for (int64_t r = 0; rest > 0 && r < count; ++r) copy_vectors(x_, 0, rest, to + done + r * p_.stride);
  }

  // The taps of one line of x, for the outputs from column `w` on: kernel[2] pixels of cg channels each. What lies
  // outside is zero.
  void copy_lines(const bf16* line, int64_t w, int64_t count, bf16* to) const {
    const int64_t taps = g_.kernel[2], row = taps * p_.cg, step = g_.stride[2];
    const int64_t left = w * step - g_.padding[2];
    // Taps side by side are one piece of memory. The outputs for which all of them are inside are [first, last).
    const bool together = taps == 1 || (g_.dilation[2] == 1 && g_.groups == 1);
    const int64_t first = together ? min64(count, left < 0 ? ceil_div(-left, step) : 0) : count;
    const int64_t room = g_.in[2] - taps - left;
    const int64_t last = max64(first, min64(count, room < 0 ? 0 : room / step + 1));
    for (int64_t r = 0; r < first; ++r) copy_taps(line, left + r * step, to + r * p_.stride);
    copy_runs(line + (left + first * step) * g_.c, step * g_.c, row, last - first, to + first * p_.stride, p_.stride);
    for (int64_t r = last; r < count; ++r) copy_taps(line, left + r * step, to + r * p_.stride);
  }

  void copy_taps(const bf16* line, int64_t left, bf16* to) const {
    for (int64_t t = 0; t < g_.kernel[2]; ++t) {
      const int64_t column = left + t * g_.dilation[2];
      const bool inside = column >= 0 && column < g_.in[2];
      copy_vectors(line + (inside ? column * g_.c : 0), inside ? p_.cg : 0, p_.cg, to + t * p_.cg);
    }
  }

  const ConvArgs& g_;
  const Plan& p_;
  const bf16* const x_;
};

// A phase of a transposed convolution (conv_phase.h) as a plain one: its taps in descending order.
struct PlainPhase {
  ConvArgs g;
  Phase phase[3];
  Plan p;
};

PlainPhase plain_phase(const ConvArgs& g, int64_t index) {
  PlainPhase s = {g, {}, {}};
  s.phase[0] = phase_of(g, 0, index / (phases(g, 1) * phases(g, 2)));
  s.phase[1] = phase_of(g, 1, index / phases(g, 2) % phases(g, 1));
  s.phase[2] = phase_of(g, 2, index % phases(g, 2));
  s.g.transposed = false;
  for (int d = 0; d < 3; ++d) {
    const Phase& phase = s.phase[d];
    s.g.kernel[d] = phase.taps;
    s.g.out[d] = phase.count;
    s.g.stride[d] = 1;
    s.g.dilation[d] = phase.taps > 1 ? -phase.offset_step : 1;
    s.g.padding[d] = phase.taps > 0 ? -(phase.offset0 + (phase.taps - 1) * phase.offset_step) : 0;
  }
  s.p = plan(s.g);
  return s;
}
int64_t phase_count(const ConvArgs& g) { return phases(g, 0) * phases(g, 1) * phases(g, 2); }

// The panels of a phase, of those of all taps.
void gather_weights(const ConvArgs& g, const PlainPhase& s, Range panels, bf16* to) {
  const Phase* phase = s.phase;
  const int64_t tap = s.p.cg * kPanel, all = g.kernel[0] * g.kernel[1] * g.kernel[2];
  to += panels.begin * s.p.k * kPanel;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const bf16* from = static_cast<const bf16*>(g.w_packed) + panel * all * tap;
    for (int64_t i = phase[0].taps; i-- > 0;) {
      for (int64_t j = phase[1].taps; j-- > 0;) {
        for (int64_t t = phase[2].taps; t-- > 0; to += tap) {
          const int64_t kd = phase[0].kernel0 + i * phase[0].kernel_step;
          const int64_t kh = phase[1].kernel0 + j * phase[1].kernel_step;
          const int64_t kw = phase[2].kernel0 + t * phase[2].kernel_step;
          std::memcpy(to, from + ((kd * g.kernel[1] + kh) * g.kernel[2] + kw) * tap,
                      static_cast<size_t>(tap) * sizeof(bf16));
        }
      }
    }
  }
}

struct Buffers {
  bf16* copies;    // rows for each thread
  bf16* outputs;   // transposed: of these rows, before they are put apart, and what is added to them
  bf16* weights;   // transposed: by phases
  bf16* channels;  // x with its channels last, where it is planar
  char* tiles;     // of conv_bf16_tiles, or null where it does not apply
  int64_t copies_each, outputs_each;
  size_t bytes;
};

Buffers carve(const ConvArgs& g, void* scratch) {
  Scratch from(scratch);
  Buffers b = {};
  b.channels = g.planar ? from.take<bf16>(g.n * g.in[0] * g.in[1] * g.in[2] * g.c) : nullptr;
  if (takes_bf16_tiles(g)) {
    b.tiles = from.take<char>(static_cast<int64_t>(conv_bf16_tiles_scratch_bytes(g)));
  } else if (g.transposed) {
    int64_t weights = 0;
    for (int64_t index = 0; index < phase_count(g); ++index) {
      const Plan p = plain_phase(g, index).p;
      weights += g.groups * p.panels * p.k * kPanel;
      b.copies_each = max64(b.copies_each, p.rows * p.stride);
      b.outputs_each = max64(b.outputs_each, 2 * p.rows * p.panels * kPanel);
    }
    b.weights = from.take<bf16>(weights);
  } else {
    const Plan p = plan(g);
    b.copies_each = p.rows * p.stride;
  }
  b.copies = from.take<bf16>(b.copies_each * max64(g.num_threads, 1));
  b.outputs = from.take<bf16>(b.outputs_each * max64(g.num_threads, 1));
  b.bytes = from.bytes();
  return b;
}

// Of each of `count` outputs of a phase from `pixel` on, where it lies in y.
template <class F>
void each_place(const ConvArgs& all, const PlainPhase& s, int64_t pixel, int64_t count, F&& use) {
  Position at = position_of(s.g, pixel);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t d = s.phase[0].first + at.d * s.phase[0].step, h = s.phase[1].first + at.h * s.phase[1].step;
    const int64_t w = s.phase[2].first + at.w * s.phase[2].step;
    use(r, (((at.image * all.out[0] + d) * all.out[1] + h) * all.out[2] + w) * all.oc);
    if (++at.w == s.g.out[2]) at = position_of(s.g, pixel + r + 1);
  }
}

// Rows of a linear whose outputs are put apart.
void apart(const ConvArgs& all, const PlainPhase& s, LinearArgs a, int64_t pixel, int64_t column, int64_t panels,
           bf16* outputs) {
  const size_t bytes = static_cast<size_t>(a.n) * sizeof(bf16);
  bf16* const added = outputs + a.m * a.n;
  if (all.residual != nullptr) {
    const bf16* from = static_cast<const bf16*>(all.residual) + column;
    each_place(all, s, pixel, a.m,
               [&](int64_t r, int64_t place) { std::memcpy(added + r * a.n, from + place, bytes); });
    a.residual = added;
  }
  a.y = outputs;
  a.residual_stride = a.y_stride = a.n;
  linear_bf16_part(a, all.dtype, {0, a.m}, {0, panels}, true);
  bf16* to = static_cast<bf16*>(all.y) + column;
  each_place(all, s, pixel, a.m, [&](int64_t r, int64_t place) { std::memcpy(to + place, outputs + r * a.n, bytes); });
}

void part(const ConvArgs& g, const Plan& p, const bf16* x, bf16* copies, Range rows, Range panels,
          const ConvArgs* all = nullptr, const PlainPhase* phase = nullptr, bf16* outputs = nullptr) {
  for (int64_t group = panels.begin / p.panels; group * p.panels < panels.end; ++group) {
    const int64_t first = max64(panels.begin - group * p.panels, 0);
    const int64_t last = min64(panels.end - group * p.panels, p.panels);
    const int64_t column = group * p.og + first * kPanel;
    LinearArgs a = {};
    a.dtype = g.dtype;
    a.n = min64(p.og - first * kPanel, (last - first) * kPanel);
    a.k = p.k;
    a.x = copies;
    a.x_stride = p.stride;
    a.w_packed = advance(g.w_packed, (group * p.panels + first) * p.k * kPanel, g.dtype);
    a.bias = advance(g.bias, column, g.dtype);
    a.residual_stride = a.y_stride = g.oc;
    a.act = g.act;
    const Copier copier(g, p, x + group * p.cg);
    for (int64_t row = rows.begin; row < rows.end; row += p.rows) {
      a.m = min64(p.rows, rows.end - row);
      copier.run(row, a.m, copies);
      if (phase != nullptr) {
        apart(*all, *phase, a, row, column, last - first, outputs);
        continue;
      }
      a.residual = advance(g.residual, row * g.oc + column, g.dtype);
      a.y = advance(g.y, row * g.oc + column, g.dtype);
      linear_bf16_part(a, g.dtype, {0, a.m}, {0, last - first}, true);
    }
  }
}

}  // namespace

bool takes_bf16(const ConvArgs& g) { return linear_takes_bf16(g.dtype); }

size_t conv_bf16_scratch_bytes(const ConvArgs& g) {
  if (takes_bf16_direct(g)) return conv_bf16_direct_scratch_bytes(g);
  // Counting needs an address; it is not touched.
  return carve(g, reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

namespace {

// x with its channels last.
const bf16* channels_last(const ConvArgs& g, const Buffers& buffers) {
  if (!g.planar) return static_cast<const bf16*>(g.x);
  const int64_t plane = g.in[0] * g.in[1] * g.in[2];
  const int64_t sizes[] = {g.n, plane, g.c}, strides[] = {g.c * plane, 1, plane};
  transpose_copy(buffers.channels, g.x, 3, sizes, strides, sizeof(bf16), g.num_threads);
  return buffers.channels;
}

int threads_of(const ConvArgs& g, double products) {
  const int worth = worth_threads(2.0 * products / kBf16Speed, g.num_threads);
  return turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
}

// The part of a thread. Rows are copied again by every thread that shares them.
Rectangle share_of(const ConvArgs& g, const Plan& p, int thread, int count) {
  const double depth = static_cast<double>(p.k);
  const int64_t tiles = ceil_div(p.pixels, kBf16Tile), panels = g.groups * p.panels;
  Rectangle mine =
      turned_grid(g.knobs, kConvGrid, tiles, panels, 6.0 * depth * kBf16Tile, 2.0 * depth * kPanel, thread, count);
  mine.rows = {mine.rows.begin * kBf16Tile, min64(mine.rows.end * kBf16Tile, p.pixels)};
  return mine;
}
bool is_empty(const Rectangle& r) { return r.rows.begin >= r.rows.end || r.columns.begin >= r.columns.end; }

void transposed(const ConvArgs& g) {
  const Buffers buffers = carve(g, g.scratch);
  const bf16* x = channels_last(g, buffers);
  const double inputs = static_cast<double>(g.n * g.in[0] * g.in[1] * g.in[2]);
  const double taps = static_cast<double>(g.kernel[0] * g.kernel[1] * g.kernel[2]);
  const int threads = threads_of(g, inputs * taps * static_cast<double>(g.c / g.groups * g.oc));
  const auto each_phase = [&](auto&& use) {
    bf16* weights = buffers.weights;
    for (int64_t index = 0; index < phase_count(g); ++index) {
      PlainPhase s = plain_phase(g, index);
      s.g.w_packed = weights;
      use(s, weights);
      weights += g.groups * s.p.panels * s.p.k * kPanel;
    }
  };
  parallel(threads, [&](int thread, int count) {
    each_phase([&](const PlainPhase& s, bf16* weights) {
      gather_weights(g, s, share(g.groups * s.p.panels, thread, count), weights);
    });
  });
  parallel(threads, [&](int thread, int count) {
    each_phase([&](const PlainPhase& s, bf16*) {
      if (s.p.pixels == 0) return;
      const Rectangle mine = share_of(s.g, s.p, thread, count);
      if (is_empty(mine)) return;
      part(s.g, s.p, x, buffers.copies + buffers.copies_each * thread, mine.rows, mine.columns, &g, &s,
           buffers.outputs + buffers.outputs_each * thread);
    });
  });
}

}  // namespace

void conv_bf16(const ConvArgs& g) {
  if (g.transposed) return transposed(g);
  if (takes_bf16_direct(g)) return conv_bf16_direct(g);
  const Buffers buffers = carve(g, g.scratch);
  if (buffers.tiles != nullptr) {
    ConvArgs tiles = g;
    tiles.x = channels_last(g, buffers);
    tiles.scratch = buffers.tiles;
    return conv_bf16_tiles(tiles);
  }
  const Plan p = plan(g);
  const int threads =
      threads_of(g, static_cast<double>(p.pixels) * static_cast<double>(g.oc) * static_cast<double>(p.k));
  const bf16* x = channels_last(g, buffers);
  parallel(threads, [&](int thread, int count) {
    const Rectangle mine = share_of(g, p, thread, count);
    if (!is_empty(mine)) part(g, p, x, buffers.copies + buffers.copies_each * thread, mine.rows, mine.columns);
  });
}

}  // namespace aotpack::kernels
