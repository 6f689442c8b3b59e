#include "rnn.h"

#include <array>
#include <cstring>

#include "epilogue.h"
#include "linear.h"
#include "parallel.h"
#include "rnn_bf16.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kProjected = 4 << 20;  // floats of x @ w_ih that are kept at a time
// Weights of so many bytes come out of the second-level cache, or mostly so, and need not be asked for long before.
constexpr int64_t kNearBytes = 3 << 19;
constexpr int64_t kNearAhead = 16;  // rows of a packed panel

int64_t gates_of(const RnnArgs& g) { return g.gru ? 3 : 4; }
// Rows of the state; the odd stride keeps them in different cache sets.
int64_t state_stride(const RnnArgs& g) { return round_up(g.hidden, kPanel) + 16; }
int64_t steps_at_once(const RnnArgs& g) {
  return max64(1, min64(g.steps, kProjected / max64(1, g.batch * gates_of(g) * g.hidden)));
}
// Columns that a thread computes of each gate: whole panels, which may reach beyond the gate's ends.
int64_t gate_width(const RnnArgs& g) { return round_up(g.hidden, kPanel) + kPanel; }

// Rows of the state in bf16.
int64_t rounded_stride(const RnnArgs& g) { return round_up(rnn_bf16_depth(g.hidden), kPanel) + kPanel; }

struct Buffers {
  float* projected;  // [steps_at_once * batch, gates * hidden]
  float* bias;       // b_hh, whole panels
  float* h[2];       // the state before and after a step
  float* c;
  bf16* paired;      // w_hh for the processor's products of bf16, or null; then also:
  bf16* rounded[2];  // the state in bf16, before and after a step
  float* gates;      // per thread [gates][batch][gate_width]
  int64_t gates_each;
  size_t bytes;
};
Buffers carve(const RnnArgs& g, void* scratch) {
  const int64_t columns = gates_of(g) * g.hidden;
  Scratch from(scratch);
  Buffers b;
  b.projected = from.take<float>(steps_at_once(g) * g.batch * columns);
  b.bias = from.take<float>(round_up(columns, kPanel));
  for (float*& h : b.h) h = from.take<float>(g.batch * state_stride(g));
  b.c = from.take<float>(g.gru ? 0 : g.batch * state_stride(g));
  b.paired = nullptr;
  if (rnn_takes_bf16(g)) {
    b.paired = from.take<bf16>(ceil_div(columns, kPanel) * rnn_bf16_depth(g.hidden) * kPanel);
    for (bf16*& rows : b.rounded) rows = from.take<bf16>(g.batch * rounded_stride(g));
  }
  b.gates_each = round_up(gates_of(g) * g.batch * gate_width(g), 16);
  b.gates = from.take<float>(b.gates_each * max64(g.num_threads, 1));
  b.bytes = from.bytes();
  return b;
}

// projected = x @ w_ih + b_ih for steps [begin, begin + count), row `step * by_step + item * by_batch` of it each.
struct Projection {
  int64_t by_step, by_batch;
};
Projection project(const RnnArgs& g, const Buffers& b, int64_t begin, int64_t count) {
  const int64_t columns = gates_of(g) * g.hidden;
  LinearArgs l = {g.dtype,   count * g.batch, columns, g.input,      advance(g.x, begin * g.x_step, g.dtype),
                  g.x_batch, g.w_ih,          g.b_ih,  nullptr,      0,
                  Act::none, b.projected,     columns, g.num_threads};
  if (g.x_step == g.batch * g.x_batch || count == 1) {
    linear_to_float(l);
    return {g.batch, 1};
  }
  l.x_stride = g.x_step;
  if (g.batch == 1 || g.x_batch == count * g.x_step) {
    linear_to_float(l);
  } else {
    l.m = count;
    for (int64_t item = 0; item < g.batch; ++item) {
      l.x = advance(g.x, begin * g.x_step + item * g.x_batch, g.dtype);
      l.y = b.projected + item * count * columns;
      linear_to_float(l);
    }
  }
  return {1, count};
}

// The hidden units [begin, end) that a thread keeps up to date.
struct Slice {
  const RnnArgs& g;
  const Buffers& b;
  Range units;
  float* gates;
  Bf16Unit* unit;

  // gates[gate][item][column - first column of the gate's panels] = b_hh + h @ w_hh, of the state `before`.
  void multiply(int before) const {
    const float* h = b.h[before];
    const int64_t gates_count = gates_of(g);
    const bool is_near =
        gates_count * g.hidden * (units.end - units.begin) * static_cast<int64_t>(dtype_size(g.dtype)) <= kNearBytes;
    // Every other step goes backward: it begins with what is still in the cache, where a cache that is a little too
    // small would otherwise have just dropped what comes next.
    for (int64_t turn = 0; turn < gates_count; ++turn) {
      const int64_t gate = before != 0 ? gates_count - 1 - turn : turn;
      const int64_t first = (gate * g.hidden + units.begin) / kPanel;
      const int64_t last = ceil_div(gate * g.hidden + units.end, kPanel);
      const int64_t tiles = row_tiles(g.batch);
      for (int64_t at = first; at < last; ++at) {
        const int64_t panel = before != 0 ? first + last - 1 - at : at;
        if (b.paired != nullptr) {
          rnn_bf16_multiply(unit, g, b.rounded[before], rounded_stride(g),
                            b.paired + panel * rnn_bf16_depth(g.hidden) * kPanel, b.bias + panel * kPanel,
                            gates + gate * g.batch * gate_width(g) + (panel - first) * kPanel, gate_width(g));
          continue;
        }
        for (int64_t t = 0; t < tiles; ++t) {
          const Range rows = share(g.batch, t, tiles);
          const float* pointers[kMaxRows];
          for (int64_t r = rows.begin; r < rows.end; ++r) pointers[r - rows.begin] = h + r * state_stride(g);
          MicroArgs m = {};
          m.rows = pointers;
          m.row_step = state_stride(g);
          m.taps = 1;
          m.k = g.hidden;
          m.b = advance(g.w_hh, panel * g.hidden * kPanel, g.dtype);
          m.b_stride = kPanel;
          m.b_ahead = is_near ? kNearAhead * kPanel : 0;
          m.init = b.bias + panel * kPanel;
          m.y = gates + (gate * g.batch + rows.begin) * gate_width(g) + (panel - first) * kPanel;
          m.y_stride = gate_width(g);
          m.columns = static_cast<int>(kPanel);
          micro(g.dtype, static_cast<int>(rows.end - rows.begin), m);
        }
      }
    }
  }

  // Where the gate's values for units.begin lie.
  const float* gate_row(int64_t gate, int64_t item) const {
    return gates + (gate * g.batch + item) * gate_width(g) + (gate * g.hidden + units.begin) % kPanel;
  }

  // kWidth units from units.begin + u on; `lanes` of them exist.
  void cell(int64_t item, const float* projected, int64_t u, int lanes, const float* h, float* next) const {
    const auto fetch = [&](const float* p) { return lanes == kWidth ? load(p) : load_partial(p, lanes); };
    const auto hidden_part = [&](int64_t gate) { return fetch(gate_row(gate, item) + u); };
    const auto input_part = [&](int64_t gate) { return fetch(projected + gate * g.hidden + units.begin + u); };
    const int64_t at = item * state_stride(g) + units.begin + u;  // the state's rows are padded to whole vectors
    vf h_new;
    if (g.gru) {
      const vf r = vsigmoid(input_part(0) + hidden_part(0)), z = vsigmoid(input_part(1) + hidden_part(1));
      const vf n = vtanh(input_part(2) + r * hidden_part(2));
      h_new = n + z * (load(h + at) - n);
    } else {
      const vf i = vsigmoid(input_part(0) + hidden_part(0)), f = vsigmoid(input_part(1) + hidden_part(1));
      const vf c_tilde = vtanh(input_part(2) + hidden_part(2)), o = vsigmoid(input_part(3) + hidden_part(3));
      const vf c = f * load(b.c + at) + i * c_tilde;
      store(b.c + at, c);
      h_new = o * vtanh(c);
    }
    store(next + at, h_new);
  }

  void step(int64_t t, const float* projected, Projection rows, int before) const {
    if (units.begin == units.end) return;
    multiply(before);
    const float* h = b.h[before];
    float* next = b.h[1 - before];
    const int64_t columns = gates_of(g) * g.hidden, count = units.end - units.begin;
    for (int64_t item = 0; item < g.batch; ++item) {
      const float* mine = projected + item * rows.by_batch * columns;
      for (int64_t u = 0; u < count; u += kWidth) {
        cell(item, mine, u, static_cast<int>(min64(kWidth, count - u)), h, next);
      }
      void* y = advance(g.y, t * g.y_step + item * g.y_batch + units.begin, g.dtype);
      finish(next + item * state_stride(g) + units.begin, 0, 1, count, g.dtype, nullptr, 0, Act::none, y, 0);
      if (b.paired != nullptr) {
        bf16* rounded = b.rounded[1 - before] + item * rounded_stride(g) + units.begin;
        std::memcpy(rounded, y, static_cast<size_t>(count) * sizeof(bf16));
      }
    }
  }
};

void begin_state(const RnnArgs& g, const void* from, float* to) {
  for (int64_t item = 0; item < g.batch; ++item, to += state_stride(g)) {
    for (int64_t i = 0; i < state_stride(g); ++i) to[i] = 0.0f;
    if (from != nullptr) widen(advance(from, item * g.hidden, g.dtype), g.dtype, g.hidden, to);
  }
}

void end_state(const RnnArgs& g, const float* from, void* to) {
  if (to == nullptr) return;
  finish(from, state_stride(g), g.batch, g.hidden, g.dtype, nullptr, 0, Act::none, to, g.hidden);
}

// One direction between its steps.
struct Direction {
  const RnnArgs& g;
  Buffers b;
  int64_t begin = 0;  // of the steps whose inputs are projected
  Projection rows{};

  explicit Direction(const RnnArgs& args) : g(args), b(carve(args, args.scratch)) {
    const int64_t columns = gates_of(g) * g.hidden;
    begin_state(g, g.h0, b.h[0]);
    begin_state(g, nullptr, b.h[1]);
    if (!g.gru) begin_state(g, g.c0, b.c);
    if (b.paired != nullptr) {
      for (bf16* rows : b.rounded) {
        std::memset(rows, 0, static_cast<size_t>(g.batch * rounded_stride(g)) * sizeof(bf16));
        for (int64_t item = 0; item < g.batch && g.h0 != nullptr; ++item) {
          std::memcpy(rows + item * rounded_stride(g), advance(g.h0, item * g.hidden, g.dtype),
                      static_cast<size_t>(g.hidden) * sizeof(bf16));
        }
      }
    }
    for (int64_t i = 0; i < round_up(columns, kPanel); ++i) b.bias[i] = 0.0f;
    if (g.b_hh != nullptr) widen(g.b_hh, g.dtype, columns, b.bias);
  }

  // The inputs of `count` steps, of which `done` come before.
  void project_steps(int64_t done, int64_t count) {
    begin = g.reverse ? g.steps - done - count : done;
    rows = project(g, b, begin, count);
  }

  // Step `s` of `count`; `before` is where the state lies.
  void step(const Slice& slice, int64_t s, int64_t count, int before) const {
    const int64_t at = g.reverse ? count - 1 - s : s;
    slice.step(begin + at, b.projected + at * rows.by_step * gates_of(g) * g.hidden, rows, before);
  }

  void end(int at) const {
    end_state(g, b.h[at], g.h_n);
    if (!g.gru) end_state(g, b.c, g.c_n);
  }
};

// About what a step of one direction takes.
double step_microseconds(const RnnArgs& g) {
  return static_cast<double>(gates_of(g) * g.hidden) * static_cast<double>(g.hidden) *
         (static_cast<double>(g.batch) / 100e3 + static_cast<double>(dtype_size(g.dtype)) / 80e3);
}

// How many threads a direction deserves of those that it can have. They meet after every step, so a step must be worth
// it.
int threads_of(const RnnArgs& g, int available) {
  const double step_us = step_microseconds(g);
  const int worth = step_us < 4.0 ? 1 : static_cast<int>(min64(static_cast<int64_t>(step_us / 2.0), available));
  return static_cast<int>(min64(max64(worth, 1), ceil_div(g.hidden, kPanel)));
}

// Whether two directions side by side, each on half of the threads, are done before one after the other on all.
bool pays_together(const RnnArgs& g) {
  if (worth_threads(2.0 * static_cast<double>(g.steps) * step_microseconds(g), g.num_threads) < 2) return false;
  const int all = threads_of(g, g.num_threads), half = threads_of(g, g.num_threads / 2);
  if (2 * half != all) return 2 * half > all;
  // They meet less often, but what each thread reads in every step must stay in its second-level cache.
  const double weights =
      static_cast<double>(gates_of(g) * g.hidden * g.hidden) * static_cast<double>(dtype_size(g.dtype));
  return weights <= half * 512e3;
}

// Directions of the same sizes, each with its part of the threads.
template <size_t kCount>
void run(std::array<Direction, kCount> all) {
  const RnnArgs& g = all[0].g;
  constexpr int kDirections = static_cast<int>(kCount);
  const int wanted = kDirections * threads_of(g, g.num_threads / kDirections);
  const int64_t blocks = ceil_div(g.hidden, kPanel), at_once = steps_at_once(g);
  if (all[0].b.paired != nullptr) {
    const int64_t panels = ceil_div(gates_of(g) * g.hidden, kPanel);
    parallel(wanted, [&](int thread, int team) {
      for (const Direction& direction : all)
        rnn_bf16_pair(direction.g, share(panels, thread, team), direction.b.paired);
    });
  }
  int current = 0;
  for (int64_t done = 0; done < g.steps; done += at_once) {
    const int64_t count = min64(at_once, g.steps - done);
    for (Direction& direction : all) direction.project_steps(done, count);
    const int start = current;
    parallel(wanted, [&](int thread, int team) {
      // Of each direction. Where the system has no more threads, one computes both, and one too many has none.
      const int each = team > kDirections ? team / kDirections : 1;
      const auto meet = [&] {
        if (each > 1) team_barrier(team);
      };
      Bf16Unit unit;
      for (int64_t s = 0; s < count && thread / each >= kDirections; ++s) meet();
      for (int d = thread / each; d < kDirections; d += team) {
        const Direction& direction = all[static_cast<size_t>(d)];
        const Range mine = share(blocks, thread % each, each);
        const Slice slice = {direction.g,
                             direction.b,
                             {min64(mine.begin * kPanel, g.hidden), min64(mine.end * kPanel, g.hidden)},
                             direction.b.gates + thread % each * direction.b.gates_each,
                             &unit};
        for (int64_t s = 0; s < count; ++s) {
          direction.step(slice, s, count, static_cast<int>((start + s) & 1));
          meet();
        }
      }
    });
    current = static_cast<int>((start + count) & 1);
  }
  for (const Direction& direction : all) direction.end(current);
}

}  // namespace

size_t rnn_scratch_bytes(const RnnArgs& g) { return carve(g, reinterpret_cast<void*>(uintptr_t{64})).bytes; }

void rnn(const RnnArgs& g) {
  if (g.batch <= 0 || g.hidden <= 0) return;
  run<1>({Direction(g)});
}

void rnn_both(const RnnArgs& one, const RnnArgs& other) {
  if (one.batch <= 0 || one.hidden <= 0) return;
  if (pays_together(one)) return run<2>({Direction(one), Direction(other)});
  rnn(one);
  rnn(other);
}

}  // namespace aotpack::kernels
