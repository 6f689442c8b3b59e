#include "exact.h"
#include "rnn.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Case {
  DType dtype;
  bool gru;
  int64_t steps, batch, input, hidden;
  bool bias = true, state = true, reverse = false, batch_first = false;
  int threads = 2;
  int64_t pad = 0;
};

// Torch's [n, k] as [k, n].
std::vector<double> turned(const Buffer& w, int64_t n, int64_t k) {
  std::vector<double> all;
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) all.push_back(w.get(j * k + i));
  }
  return all;
}

Buffer pack(const Buffer& w, int64_t n, int64_t k) {  // w is torch's [n, k]
  Buffer packed = Buffer::filled(w.dtype(), ceil_div(n, kPanel) * k * kPanel, 0.0f);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < k; ++i) packed.set(((j / kPanel) * k + i) * kPanel + j % kPanel, w.get(j * k + i));
  }
  return packed;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void check(const Case& c) {
  const std::string what = std::string(c.gru ? "gru " : "lstm ") + std::to_string(c.steps) + " steps, batch " +
                           std::to_string(c.batch) + ", " + std::to_string(c.input) + " to " +
                           std::to_string(c.hidden) + (c.batch_first ? " batch first" : "") +
                           (c.reverse ? " reverse" : "");
  CAPTURE(what);
  const int64_t gates = c.gru ? 3 : 4, columns = gates * c.hidden, H = c.hidden;
  const int64_t x_row = c.input + c.pad, y_row = H + c.pad;
  const int64_t x_step = c.batch_first ? x_row : c.batch * x_row, x_batch = c.batch_first ? c.steps * x_row : x_row;
  const int64_t y_step = c.batch_first ? y_row : c.batch * y_row, y_batch = c.batch_first ? c.steps * y_row : y_row;
  const Buffer x = Buffer::random(c.dtype, c.steps * c.batch * x_row);
  const Buffer w_ih = Buffer::random(c.dtype, columns * c.input, 0, -0.3f, 0.3f);
  const Buffer w_hh = Buffer::random(c.dtype, columns * H, 0, -0.3f, 0.3f);
  const Buffer b_ih = Buffer::random(c.dtype, columns, 1), b_hh = Buffer::random(c.dtype, columns, 1);
  const Buffer h0 = Buffer::random(c.dtype, c.batch * H), c0 = Buffer::random(c.dtype, c.batch * H);
  const Buffer p_ih = pack(w_ih, columns, c.input), p_hh = pack(w_hh, columns, H);
  Buffer y = Buffer::filled(c.dtype, c.steps * c.batch * y_row, -77.0f);
  Buffer h_n = Buffer::filled(c.dtype, c.batch * H, -77.0f), c_n = Buffer::filled(c.dtype, c.batch * H, -77.0f);
  RnnArgs a = {c.dtype,
               c.gru,
               c.steps,
               c.batch,
               c.input,
               H,
               x.data(),
               x_step,
               x_batch,
               p_ih.data(),
               p_hh.data(),
               c.bias ? b_ih.data() : nullptr,
               c.bias ? b_hh.data() : nullptr,
               c.state ? h0.data() : nullptr,
               c.state && !c.gru ? c0.data() : nullptr,
               c.reverse,
               y.data(),
               y_step,
               y_batch,
               h_n.data(),
               c.gru ? nullptr : c_n.data(),
               c.threads,
               nullptr};
  std::vector<unsigned char> scratch(rnn_scratch_bytes(a), 0xff);
  a.scratch = scratch.data();
  rnn(a);

  // What the state is rounded to in one step, the next one multiplies by its weights: the more units, the more of it.
  const double units = static_cast<double>(max64(H, 256)) / 256.0;
  const double allowed = c.dtype == DType::f32 ? 2e-5 : (c.dtype == DType::bf16 ? 0.02 : 0.003) * units;
  int64_t wrong = 0;
  const std::vector<double> given = x.numbers();
  const std::vector<double> t_ih = turned(w_ih, columns, c.input), t_hh = turned(w_hh, columns, H);
  for (int64_t b = 0; b < c.batch; ++b) {
    std::vector<double> h(static_cast<size_t>(H)), cell(static_cast<size_t>(H));
    for (int64_t u = 0; u < H; ++u) {
      h[static_cast<size_t>(u)] = c.state ? h0.get(b * H + u) : 0.0;
      cell[static_cast<size_t>(u)] = c.state ? c0.get(b * H + u) : 0.0;
    }
    for (int64_t s = 0; s < c.steps; ++s) {
      const int64_t t = c.reverse ? c.steps - 1 - s : s;
      std::vector<double> in(static_cast<size_t>(columns)), rec(static_cast<size_t>(columns));
      for (int64_t j = 0; c.bias && j < columns; ++j) {
        in[static_cast<size_t>(j)] = b_ih.get(j);
        rec[static_cast<size_t>(j)] = b_hh.get(j);
      }
      add_product(in.data(), given.data() + t * x_step + b * x_batch, t_ih.data(), 1, columns, c.input);
      add_product(rec.data(), h.data(), t_hh.data(), 1, columns, H);
      for (int64_t u = 0; u < H; ++u) {
        const auto gate_in = [&](int64_t g) { return in[static_cast<size_t>(g * H + u)]; };
        const auto gate_h = [&](int64_t g) { return rec[static_cast<size_t>(g * H + u)]; };
        double& state = h[static_cast<size_t>(u)];
        if (c.gru) {
          const double r = sigmoid(gate_in(0) + gate_h(0)), z = sigmoid(gate_in(1) + gate_h(1));
          state = (1 - z) * std::tanh(gate_in(2) + r * gate_h(2)) + z * state;
        } else {
          double& memory = cell[static_cast<size_t>(u)];
          memory = sigmoid(gate_in(1) + gate_h(1)) * memory +
                   sigmoid(gate_in(0) + gate_h(0)) * std::tanh(gate_in(2) + gate_h(2));
          state = sigmoid(gate_in(3) + gate_h(3)) * std::tanh(memory);
        }
        wrong += !close(y.get(t * y_step + b * y_batch + u), state, allowed);
      }
    }
    for (int64_t u = 0; u < H; ++u) {
      wrong += !close(h_n.get(b * H + u), h[static_cast<size_t>(u)], allowed);
      if (!c.gru) wrong += !close(c_n.get(b * H + u), cell[static_cast<size_t>(u)], 2 * allowed);
    }
  }
  for (int64_t row = 0; row < c.steps * c.batch; ++row) {
    for (int64_t i = H; i < y_row; ++i) wrong += y.get(row * y_row + i) != -77.0f;
  }
  CHECK(wrong == 0);
}

TEST_CASE("rnn: sizes on and off the panels, both cells, both directions") {
  for (const DType dtype : kDTypes) {
    for (const bool gru : {false, true}) {
      for (const int64_t hidden : {1, 5, 16, 20, 32, 33, 50, 64, 100}) {
        check({dtype, gru, 5, 3, 7, hidden, true, true, hidden % 2 == 0, hidden % 4 == 0});
      }
      check({dtype, gru, 4, 1, 6, 40});
      check({dtype, gru, 6, 37, 6, 45});
      check({dtype, gru, 5, 9, 6, 550});
      check({dtype, gru, 5, 3, 6, 550, true, true, true});
      check({dtype, gru, 2, 5, 6, 33, true, true, false, false, 3});
      check({dtype, gru, 4, 20, 6, 40, true, false, true, true, 1, 3});
      check({dtype, gru, 4, 3, 6, 8, false, false, false, true, 1, 2});
      check({dtype, gru, 1, 3, 6, 8, true, true, false, true});
      check({dtype, gru, 0, 3, 6, 8});
      check({dtype, gru, 3, 0, 6, 8});
      check({dtype, gru, 3, 2, 0, 8});
    }
  }
}

// Both directions at once against one after the other: the same sums.
void check_both(DType dtype, bool gru, int64_t steps, int64_t batch, int64_t input, int64_t hidden, int threads) {
  CAPTURE(gru);
  CAPTURE(hidden);
  CAPTURE(threads);
  const int64_t columns = (gru ? 3 : 4) * hidden;
  const Buffer x = Buffer::random(dtype, steps * batch * input), state = Buffer::random(dtype, 2 * batch * hidden);
  const Buffer bias = Buffer::random(dtype, columns);
  std::vector<Buffer> weights;
  for (const int64_t k : {input, hidden, input, hidden}) {
    weights.push_back(pack(Buffer::random(dtype, columns * k, 0, -0.3f, 0.3f), columns, k));
  }
  Buffer y[2], h_n[2], c_n[2];
  for (const bool together : {false, true}) {
    Buffer& all = y[together ? 1 : 0] = Buffer::filled(dtype, steps * batch * 2 * hidden, -77.0f);
    Buffer& h = h_n[together ? 1 : 0] = Buffer::filled(dtype, 2 * batch * hidden, -77.0f);
    Buffer& c = c_n[together ? 1 : 0] = Buffer::filled(dtype, 2 * batch * hidden, -77.0f);
    RnnArgs args[2] = {};
    std::vector<unsigned char> scratch[2];
    for (const int d : {0, 1}) {
      RnnArgs& a = args[d];
      a.dtype = dtype;
      a.gru = gru;
      a.steps = steps;
      a.batch = batch;
      a.input = input;
      a.hidden = hidden;
      a.x = x.data();
      a.x_step = batch * input;
      a.x_batch = input;
      a.w_ih = weights[static_cast<size_t>(2 * d)].data();
      a.w_hh = weights[static_cast<size_t>(2 * d + 1)].data();
      a.b_ih = bias.data();
      a.h0 = advance(state.data(), d * batch * hidden, dtype);
      a.c0 = gru ? nullptr : advance(state.data(), (1 - d) * batch * hidden, dtype);
      a.reverse = d == 1;
      a.y = advance(all.data(), d * hidden, dtype);
      a.y_step = batch * 2 * hidden;
      a.y_batch = 2 * hidden;
      a.h_n = advance(h.data(), d * batch * hidden, dtype);
      a.c_n = gru ? nullptr : advance(c.data(), d * batch * hidden, dtype);
      a.num_threads = threads;
      scratch[d].assign(rnn_scratch_bytes(a), 0xff);
      a.scratch = scratch[d].data();
      if (!together) rnn(a);
    }
    if (together) rnn_both(args[0], args[1]);
  }
  int64_t wrong = 0;
  for (int64_t i = 0; i < steps * batch * 2 * hidden; ++i) wrong += y[0].get(i) != y[1].get(i);
  for (int64_t i = 0; i < 2 * batch * hidden; ++i) {
    wrong += h_n[0].get(i) != h_n[1].get(i);
    wrong += c_n[0].get(i) != c_n[1].get(i);
  }
  CHECK(wrong == 0);
}

TEST_CASE("rnn: both directions at once") {
  for (const DType dtype : kDTypes) {
    for (const bool gru : {false, true}) {
      for (const int threads : {1, 2, 3, 4, 7}) {
        check_both(dtype, gru, 5, 3, 7, 33, threads);
        check_both(dtype, gru, 40, 2, 30, 300, threads);
      }
      check_both(dtype, gru, 0, 3, 6, 8, 4);
      check_both(dtype, gru, 3, 0, 6, 8, 4);
      check_both(dtype, gru, 1, 1, 0, 40, 4);
    }
  }
  check_both(DType::f32, true, 700, 90, 2, 24, 4);
}

TEST_CASE("rnn: many threads, sizes that do not divide") {
  for (const bool gru : {false, true}) {
    check({DType::f32, gru, 6, 2, 30, 300, true, true, false, false, 3});
    check({DType::f32, gru, 6, 17, 30, 290, true, true, true, true, 4});
    check({DType::bf16, gru, 6, 1, 64, 256, true, true, false, false, 2});
    check({DType::f16, gru, 6, 1, 64, 256, true, true, false, false, 2});
  }
}

TEST_CASE("rnn: more steps than are projected at once") {
  for (const bool batch_first : {false, true}) {
    for (const bool reverse : {false, true}) {
      check({DType::f32, true, 700, 90, 2, 24, true, true, reverse, batch_first, 2});
    }
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
