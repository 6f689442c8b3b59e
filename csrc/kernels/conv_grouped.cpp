// A vector holds outputs of several groups, and each lane multiplies an input of its own group: those inputs come into
// their lanes by a permutation of a vector of x, or a blend of two inputs, and a vector so made serves all taps of a
// kernel row. So no lane multiplies padding, however few channels a group has.
#include "conv_grouped.h"

#include <limits>

#include "conv_strip.h"
#include "element_types.h"
#include "epilogue.h"
#include "parallel.h"
#include "simd.h"
#include "squares.h"

namespace aotpack::kernels {
namespace {

// Output pixels of a row that there is code for. Their sums, the weights of a kernel row, a permutation and an input
// fill the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kOutputCounts[] = {1, 2, 4, 7, 8, 14};
#else
constexpr int kOutputCounts[] = {1, 2, 4, 7, 8};
#endif
constexpr int kMaxOutputs = kOutputCounts[sizeof kOutputCounts / sizeof kOutputCounts[0] - 1];

// Of the weights of the panels that one row of a strip is computed for, before it is the turn of the next row: they
// stay in the nearest cache, and x is read in long pieces.
constexpr int64_t kWeightBytes = 20 << 10;

constexpr int64_t kVectors = kPanel / kWidth;  // of a panel

// How the lanes of a vector of outputs get input i of their groups.
enum class Read {
  broadcast,  // all lanes are of one group
  blended,    // of two groups at most
  permuted,   // their groups' inputs lie in one vector of x
  arranged,   // permuted, from a copy of x in which the groups' inputs i lie next to each other
};

Read read_of(int64_t cg, int64_t og) {
  if (og % kWidth == 0) return Read::broadcast;
  if (og > kWidth) return Read::blended;
  return kWidth % og == 0 && cg <= og ? Read::permuted : Read::arranged;
}

struct Plan {
  ConvArgs g;   // with as few dims as can be
  bool halves;  // x and the weights are brought into scratch as floats
  bool copy;    // x is
  Read read;
  int outputs, columns;
};

int64_t spatial(const int64_t size[3]) { return size[0] * size[1] * size[2]; }

// A size that there is code for, such that little is computed beyond the end of a row.
int outputs_at_once(int64_t width) {
  int best = 1;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (const int count : kOutputCounts) {
    // Few sums at a time wait for each other: less than 4 take as long as 4.
    const int64_t cost = ceil_div(width, count) * (max64(count, 4) + 1);
    if (cost <= best_cost) {
      best = count;
      best_cost = cost;
    }
  }
  return best;
}

Plan plan(const ConvArgs& args) {
  Plan p = {args, !is_f32(args.dtype), false, Read::broadcast, 0, 0};
  ConvArgs& g = p.g;
  bool pointwise = true;
  for (int d = 0; d < 3; ++d) {
    pointwise = pointwise && g.kernel[d] == 1 && g.stride[d] == 1 && g.padding[d] == 0 && g.in[d] == g.out[d];
  }
  if (pointwise) {  // one long row of pixels
    g.in[2] = g.out[2] = g.n * spatial(g.in);
    g.n = g.in[0] = g.in[1] = g.out[0] = g.out[1] = 1;
  }
  p.read = read_of(g.c / g.groups, g.oc / g.groups);
  // With less than a vector of channels, loads would leave x.
  p.copy = p.halves || p.read == Read::arranged || (p.read == Read::permuted && g.c < kWidth);
  p.outputs = outputs_at_once(g.out[2]);
  p.columns = columns_under(g, p.outputs);
  return p;
}

// Input i of a vector's groups lies, for lane j, index[j] + i * index_step elements past `at` + i * step; blended, cg
// elements further where index[j] is not 0.
struct Lanes {
  int64_t at;
  int32_t index[kWidth];
  bool alone;  // all of one group
};

struct Buffers {
  float* source;
  float* weights;
  float* zeros;
  float* bias;
  Lanes* lanes;  // per vector of outputs
  float* lines;  // per thread, one pixel; null where none is arranged from halves
  const float** pointers;
  int64_t pointers_each;
  size_t bytes;
};

Buffers carve(const Plan& p, void* scratch) {
  const ConvArgs& g = p.g;
  const int64_t threads = max64(g.num_threads, 1), panels = ceil_div(g.oc, kPanel);
  Scratch from(scratch);
  Buffers b = {};
  // A vector's load may reach beyond the last channel.
  if (p.copy) b.source = from.take<float>(g.n * spatial(g.in) * g.c + kWidth);
  if (p.halves) b.weights = from.take<float>(panels * spatial(g.kernel) * (g.c / g.groups) * kPanel);
  b.zeros = from.take<float>(g.c + kWidth);
  b.bias = from.take<float>(panels * kPanel);
  b.lanes = from.take<Lanes>(panels * kVectors);
  if (p.read == Read::arranged && p.halves) b.lines = from.take<float>(threads * g.c);
  b.pointers_each = strip_pointers(g, band_rows(g, 4), p.columns);
  b.pointers = from.take<const float*>(b.pointers_each * threads);
  b.bytes = from.bytes();
  return b;
}

void fill_lanes(const Plan& p, Lanes* to) {
  const ConvArgs& g = p.g;
  const int64_t cg = g.c / g.groups, og = g.oc / g.groups;
  int64_t group = 0, group_end = og;
  for (int64_t o = 0; o < g.oc; o += kWidth, ++to) {
    const int64_t first = group;
    const bool scaled = p.read == Read::permuted;
    to->at = p.read == Read::arranged ? first : first * cg;
    int64_t shift = 0;
    if (scaled && !p.copy) {  // the last vector of x rather than one that ends beyond it
      shift = max64(0, to->at + kWidth - g.c);
      to->at -= shift;
    }
    for (int64_t j = 0; j < kWidth; ++j) {
      const int64_t groups = group - first;
      to->alone = groups == 0;
      to->index[j] = static_cast<int32_t>(scaled ? groups * cg + shift : groups);
      // Lanes past the end repeat the last group; what they sum is never stored.
      if (o + j + 1 == group_end && group + 1 < g.groups) {
        ++group;
        group_end += og;
      }
    }
  }
}

// to[i][group] = from[group][i]
void arrange(const float* from, int64_t groups, int64_t cg, float* to) {
  using Square = detail::Square<uint32_t>;
  constexpr int64_t kSide = Square::side;
  const int64_t square_groups = groups / kSide * kSide, square_inputs = cg / kSide * kSide;
  for (int64_t group = 0; group < square_groups; group += kSide) {
    for (int64_t i = 0; i < square_inputs; i += kSide) {
      float* const corner = to + i * groups + group;
      Square::move(reinterpret_cast<const uint32_t*>(from + group * cg + i), cg,
                   [&](int64_t row) { return reinterpret_cast<uint32_t*>(corner + row * groups); });
    }
  }
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = group < square_groups ? square_inputs : 0;
    for (int64_t i = first; i < cg; ++i) to[i * groups + group] = from[group * cg + i];
  }
}

void copy_source(const Plan& p, const Buffers& b, int thread, int threads) {
  const ConvArgs& g = p.g;
  const Range mine = share(g.n * spatial(g.in), thread, threads);
  if (p.read != Read::arranged) {
    widen(advance(g.x, mine.begin * g.c, g.dtype), g.dtype, (mine.end - mine.begin) * g.c, b.source + mine.begin * g.c);
    return;
  }
  float* const line = p.halves ? b.lines + thread * g.c : nullptr;
  for (int64_t pixel = mine.begin; pixel < mine.end; ++pixel) {
    const float* from = line;
    if (p.halves) {
      widen(advance(g.x, pixel * g.c, g.dtype), g.dtype, g.c, line);
    } else {
      from = static_cast<const float*>(g.x) + pixel * g.c;
    }
    arrange(from, g.groups, g.c / g.groups, b.source + pixel * g.c);
  }
}

void copy_weights(const Plan& p, const Buffers& b, int thread, int threads) {
  const ConvArgs& g = p.g;
  const int64_t rows = ceil_div(g.oc, kPanel) * spatial(g.kernel) * (g.c / g.groups);
  const Range mine = share(rows, thread, threads);
  widen(advance(g.w_packed, mine.begin * kPanel, g.dtype), g.dtype, (mine.end - mine.begin) * kPanel,
        b.weights + mine.begin * kPanel);
}

// One vector of outputs, for `valid` pixels next to each other in a row.
struct Strip {
  const float* const* inputs;  // [kernel_rows][columns]
  int64_t row_step;            // pointers from one kernel row to the next
  int64_t kernel_rows;
  int64_t kernel, stride, dilation;  // along the row
  int64_t cg;
  const Lanes* lanes;
  int64_t step;
  int32_t index_step;
  const float* weights;  // [kernel_rows][kernel][cg][kPanel]
  const float* bias;
  DType dtype;
  Act act;
  const void* residual;
  void* y;
  int64_t y_step;  // elements from one pixel to the next
  int valid, channels;
};

// Element index[j] of the vector at p for each lane j; only the bits that count to kWidth are looked at.
AOTPACK_INLINE vf permute(const float* p, vi index) {
#if defined(__AVX512F__)
  return reinterpret_cast<vf>(
      _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(index), reinterpret_cast<__m512>(load(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<vf>(
      _mm256_permutevar8x32_ps(reinterpret_cast<__m256>(load(p)), reinterpret_cast<__m256i>(index)));
#elif defined(AOTPACK_SVE256)
  return svtbl_f32(load(p), reinterpret_cast<vu>(index & (kWidth - 1)));
#else
  vf x;
  AOTPACK_UNROLL
  for (int j = 0; j < kWidth; ++j) x[j] = p[index[j] & (kWidth - 1)];
  return x;
#endif
}

template <Read kRead>
AOTPACK_INLINE vf read(const float* p, [[maybe_unused]] vi index, [[maybe_unused]] int64_t cg) {
  if constexpr (kRead == Read::permuted) return permute(p, index);
  if constexpr (kRead == Read::blended) return index != 0 ? vset(p[cg]) : vset(p[0]);
  return vset(*p);
}

template <int kOutputs>
AOTPACK_INLINE void emit(const Strip& s, const vf* acc) {
  const bool clamp = s.act == Act::relu || s.act == Act::relu6;
  if (!is_f32(s.dtype) || s.channels < kWidth || !(clamp || s.act == Act::none)) {
    alignas(64) float sums[kOutputs * kWidth];
    AOTPACK_UNROLL
    for (int o = 0; o < kOutputs; ++o) store(sums + o * kWidth, acc[o]);
    finish(sums, kWidth, s.valid, s.channels, s.dtype, s.residual, s.y_step, s.act, s.y, s.y_step);
    return;
  }
  const vf low = vset(clamp ? 0.0f : -std::numeric_limits<float>::infinity());
  const vf high = vset(s.act == Act::relu6 ? 6.0f : std::numeric_limits<float>::infinity());
  const float* const residual = static_cast<const float*>(s.residual);
  float* const y = static_cast<float*>(s.y);
  AOTPACK_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    if (o < s.valid) {
      vf x = acc[o];
      if (residual != nullptr) x += load(residual + o * s.y_step);
      store(y + o * s.y_step, at_most(at_least(x, low), high));
    }
  }
}

// Known kernel width and stride, no dilation.
template <Read kRead, int kKernel, int kStride, int kOutputs>
void strip_fixed(const Strip& s) {
  constexpr int kColumns = (kOutputs - 1) * kStride + kKernel;
  vf acc[kOutputs];
  const vf bias = load(s.bias);
  AOTPACK_UNROLL
  for (int o = 0; o < kOutputs; ++o) acc[o] = bias;
  const float* weights = s.weights;
  const int64_t tap = s.cg * kPanel;
  const float* const* inputs = s.inputs;
  vi first;
  std::memcpy(&first, s.lanes->index, sizeof first);
  for (int64_t row = 0; row < s.kernel_rows; ++row, inputs += s.row_step, weights += (kKernel - 1) * tap) {
    int64_t at = s.lanes->at;
    vi index = first;
    for (int64_t i = 0; i < s.cg; ++i, at += s.step, index += s.index_step, weights += kPanel) {
      vf w[kKernel];
      AOTPACK_UNROLL
      for (int k = 0; k < kKernel; ++k) w[k] = load(weights + k * tap);
      AOTPACK_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        const vf x = read<kRead>(inputs[column] + at, index, s.cg);
        AOTPACK_UNROLL
        for (int o = 0; o < kOutputs; ++o) {
          const int k = column - o * kStride;
          if (k >= 0 && k < kKernel) acc[o] += x * w[k];
        }
      }
    }
  }
  emit<kOutputs>(s, acc);
}

template <Read kRead, int kOutputs>
void strip_any(const Strip& s) {
  vf acc[kOutputs];
  const vf bias = load(s.bias);
  AOTPACK_UNROLL
  for (int o = 0; o < kOutputs; ++o) acc[o] = bias;
  const float* weights = s.weights;
  vi first;
  std::memcpy(&first, s.lanes->index, sizeof first);
  for (int64_t row = 0; row < s.kernel_rows; ++row) {
    for (int64_t k = 0; k < s.kernel; ++k) {
      const float* const* inputs = s.inputs + row * s.row_step + k * s.dilation;
      const float* x[kOutputs];
      AOTPACK_UNROLL
      for (int o = 0; o < kOutputs; ++o) x[o] = inputs[o * s.stride] + s.lanes->at;
      int64_t at = 0;
      vi index = first;
      for (int64_t i = 0; i < s.cg; ++i, at += s.step, index += s.index_step, weights += kPanel) {
        const vf w = load(weights);
        AOTPACK_UNROLL
        for (int o = 0; o < kOutputs; ++o) acc[o] += read<kRead>(x[o] + at, index, s.cg) * w;
      }
    }
  }
  emit<kOutputs>(s, acc);
}

using Code = void (*)(const Strip&);

template <Read kRead, int kOutputs>
Code code_for(const ConvArgs& g) {
  if constexpr (kOutputs >= 4) {  // below, inputs are hardly shared
    const bool three = g.kernel[2] == 3 && g.dilation[2] == 1;
    if (three && g.stride[2] == 1) return strip_fixed<kRead, 3, 1, kOutputs>;
    if (three && g.stride[2] == 2) return strip_fixed<kRead, 3, 2, kOutputs>;
  }
  return strip_any<kRead, kOutputs>;
}

template <Read kRead, size_t kAt = 0>
Code code_for(const Plan& p) {
  constexpr int kOutputs = kOutputCounts[kAt];
  if constexpr (kOutputs < kMaxOutputs) {
    if (p.outputs != kOutputs) return code_for<kRead, kAt + 1>(p);
  }
  return code_for<kRead, kOutputs>(p.g);
}

struct Runner {
  const Plan& p;
  const Buffers& b;
  const float* source;
  const float* weights;
  Code code, code_alone;  // for vectors of several groups, and of one
  const float** pointers;

  // Output rows [oh, oh + rows) of one image, strips [strips), panels [panels).
  void band(int64_t image, int64_t od, int64_t oh, int64_t rows, Range strips, Range panels) const {
    const ConvArgs& g = p.g;
    const bool flat = is_flat(g);
    const int64_t panel_size = spatial(g.kernel) * (g.c / g.groups) * kPanel;
    const int64_t at_once = max64(1, kWeightBytes / max64(1, panel_size * 4));
    const int64_t row_pointers = g.stride[1] * p.columns;
    Strip s = {};
    s.row_step = flat ? g.dilation[1] * p.columns : p.columns;
    s.kernel_rows = g.kernel[0] * g.kernel[1];
    s.kernel = g.kernel[2];
    s.stride = g.stride[2];
    s.dilation = g.dilation[2];
    s.cg = g.c / g.groups;
    s.step = p.read == Read::permuted ? 0 : p.read == Read::arranged ? g.groups : 1;
    s.index_step = p.read == Read::permuted ? 1 : 0;
    s.dtype = g.dtype;
    s.act = g.act;
    s.y_step = g.oc;
    for (int64_t strip = strips.begin; strip < strips.end; ++strip) {
      const int64_t ow = strip * p.outputs;
      s.valid = static_cast<int>(min64(p.outputs, g.out[2] - ow));
      if (flat) {
        point_band(g, source, b.zeros, image, od, oh, rows, ow, p.columns, pointers);
      } else {
        point_deep(g, source, b.zeros, image, od, oh, ow, p.columns, pointers);
      }
      for (int64_t panel = panels.begin; panel < panels.end; panel += at_once) {
        const int64_t begin = panel * kPanel, end = min64(min64(panel + at_once, panels.end) * kPanel, g.oc);
        for (int64_t row = 0; row < rows; ++row) {
          s.inputs = pointers + row * row_pointers;
          const int64_t y_at = (((image * g.out[0] + od) * g.out[1] + oh + row) * g.out[2] + ow) * g.oc;
          for (int64_t o = begin; o < end; o += kWidth) {
            s.lanes = b.lanes + o / kWidth;
            s.weights = weights + o / kPanel * panel_size + o % kPanel;
            s.bias = b.bias + o;
            s.residual = advance(g.residual, y_at + o, g.dtype);
            s.y = advance(g.y, y_at + o, g.dtype);
            s.channels = static_cast<int>(min64(kWidth, g.oc - o));
            (s.lanes->alone ? code_alone : code)(s);
          }
        }
      }
    }
  }
};

void run(const Plan& p, const Buffers& b, int thread, int threads) {
  const ConvArgs& g = p.g;
  Code code = code_for<Read::permuted>(p), code_alone = code;
  if (p.read == Read::broadcast || p.read == Read::blended) {
    code = code_for<Read::blended>(p);
    code_alone = code_for<Read::broadcast>(p);
  }
  const Runner runner = {p,
                         b,
                         p.copy ? b.source : static_cast<const float*>(g.x),
                         p.halves ? b.weights : static_cast<const float*>(g.w_packed),
                         code,
                         code_alone,
                         b.pointers + thread * b.pointers_each};
  // Rows are cut into pieces where there are too few to share.
  const int64_t rows = g.n * g.out[0] * g.out[1], strips = ceil_div(g.out[2], p.outputs);
  const int64_t pieces = threads == 1 ? 1 : min64(strips, ceil_div(4 * threads, rows));
  const int64_t panels = ceil_div(g.oc, kPanel), most = is_flat(g) ? band_rows(g, 4) : 1;
  const double piece = 4.0 / static_cast<double>(pieces);
  const Rectangle mine =
      share_grid(pieces * rows, panels, piece * static_cast<double>(g.in[2] * g.c * g.stride[1]),
                 4.0 * static_cast<double>(spatial(g.kernel) * (g.c / g.groups) * kPanel), thread, threads);
  if (mine.columns.begin >= mine.columns.end) return;
  for (int64_t line = mine.rows.begin; line < mine.rows.end;) {
    const int64_t row = line % rows;
    const int64_t oh = row % g.out[1], od = row / g.out[1] % g.out[0], image = row / g.out[1] / g.out[0];
    const int64_t count = min64(min64(most, g.out[1] - oh), mine.rows.end - line);
    runner.band(image, od, oh, count, share(strips, line / rows, pieces), mine.columns);
    line += count;
  }
}

}  // namespace

size_t conv_grouped_scratch_bytes(const ConvArgs& g) {
  return carve(plan(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;  // counted from any address
}

void conv_grouped(const ConvArgs& args) {
  const Plan p = plan(args);
  const ConvArgs& g = p.g;
  const Buffers b = carve(p, g.scratch);
  const int64_t panels = ceil_div(g.oc, kPanel);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t o = panel * kPanel;
    panel_bias(advance(g.bias, o, g.dtype), g.dtype, g.oc - o, b.bias + o);
  }
  for (int64_t i = 0; i < g.c + kWidth; ++i) b.zeros[i] = 0.0f;
  fill_lanes(p, b.lanes);
  const double sums = static_cast<double>(g.n * spatial(g.out)) * static_cast<double>(g.oc);
  const double terms = static_cast<double>(spatial(g.kernel)) * static_cast<double>(g.c / g.groups);
  const int threads = worth_threads(sums * (terms * 2.0 / 100e3 + 4.0 / 20e3), g.num_threads);
  parallel(threads, [&](int thread, int count) {
    if (p.copy) copy_source(p, b, thread, count);
    if (p.halves) copy_weights(p, b, thread, count);
    if (p.copy || p.halves) team_barrier(count);
    run(p, b, thread, count);
  });
}

}  // namespace aotpack::kernels
