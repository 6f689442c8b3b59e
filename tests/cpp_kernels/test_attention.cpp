#include <limits>

#include "attention.h"
#include "exact.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  DType dtype;
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim, v_dim;
  bool causal = false;
  int mask_kind = 0;
  int mask_shape = 0;  // 0 whole, 1 [q, k], 2 [batch, 1, 1, k], 3 [q, 1]
  int layout = 0;      // 0 [b, h, l, d], 1 [b, l, h, d], 2 with room between rows
  float mask_rate = 0.3f;
  int threads = 2;
  int64_t offset = 0;
};

struct Strides {
  int64_t at[3], extent;
};
Strides strides(int layout, int64_t batch, int64_t heads, int64_t length, int64_t dim) {
  const int64_t row = layout == 2 ? dim + 3 : dim;
  Strides s = {{heads * length * row, length * row, row}, batch * heads * length * row};
  if (layout == 1) s = {{heads * length * row, row, heads * row}, batch * heads * length * row};
  return s;
}

void check(const Case& c) {
  const std::string what = std::to_string(c.batch) + " " + std::to_string(c.q_heads) + "/" +
                           std::to_string(c.kv_heads) + " " + std::to_string(c.q_len) + "x" + std::to_string(c.kv_len) +
                           " " + std::to_string(c.head_dim) + "," + std::to_string(c.v_dim) + " mask " +
                           std::to_string(c.mask_kind) + "/" + std::to_string(c.mask_shape) +
                           (c.causal ? " causal" : "") + dtype_name(c.dtype);
  CAPTURE(what);
  const Strides sq = strides(c.layout, c.batch, c.q_heads, c.q_len, c.head_dim);
  const Strides sk = strides(c.layout, c.batch, c.kv_heads, c.kv_len, c.head_dim);
  const Strides sv = strides(c.layout, c.batch, c.kv_heads, c.kv_len, c.v_dim);
  const Strides sy = strides(c.layout, c.batch, c.q_heads, c.q_len, c.v_dim);
  const Buffer q = Buffer::random(c.dtype, sq.extent, c.offset, -2, 2),
               k = Buffer::random(c.dtype, sk.extent, c.offset, -2, 2);
  const Buffer v = Buffer::random(c.dtype, sv.extent, c.offset);
  Buffer y = Buffer::filled(c.dtype, sy.extent, -77.0f, c.offset);
  int64_t sm[4] = {c.q_heads * c.q_len * c.kv_len, c.q_len * c.kv_len, c.kv_len, 1};
  int64_t mask_size = c.batch * sm[0];
  if (c.mask_shape == 1) sm[0] = sm[1] = 0, mask_size = c.q_len * c.kv_len;
  if (c.mask_shape == 2) sm[0] = c.kv_len, sm[1] = sm[2] = 0, mask_size = c.batch * c.kv_len;
  if (c.mask_shape == 3) sm[0] = sm[1] = sm[3] = 0, sm[2] = 1, mask_size = c.q_len;
  std::vector<uint8_t> bools(static_cast<size_t>(mask_size));
  Buffer added(c.mask_kind == 2 ? c.dtype : DType::f32, mask_size, c.offset);
  for (int64_t i = 0; i < mask_size; ++i) {
    const bool out = uniform(0, 1) < c.mask_rate;
    bools[static_cast<size_t>(i)] = !out;
    added.set(i, out ? -std::numeric_limits<float>::infinity() : uniform(-3, 3));
  }
  std::vector<float> lse(static_cast<size_t>(c.batch * c.q_heads * c.q_len), 5.0f);
  AttentionArgs a = {};
  a.dtype = c.dtype;
  a.batch = c.batch;
  a.q_heads = c.q_heads;
  a.kv_heads = c.kv_heads;
  a.q_len = c.q_len;
  a.kv_len = c.kv_len;
  a.head_dim = c.head_dim;
  a.v_dim = c.v_dim;
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  for (size_t d = 0; d < 3; ++d) {
    a.q_strides[d] = sq.at[d];
    a.k_strides[d] = sk.at[d];
    a.v_strides[d] = sv.at[d];
    a.y_strides[d] = sy.at[d];
  }
  a.mask = c.mask_kind == 0 ? nullptr : c.mask_kind == 1 ? static_cast<const void*>(bools.data()) : added.data();
  a.mask_kind = c.mask_kind;
  for (size_t d = 0; d < 4; ++d) a.mask_strides[d] = sm[d];
  a.causal = c.causal;
  a.scale = 0.37f;
  a.y = y.data();
  a.lse = lse.data();
  a.num_threads = c.threads;
  std::vector<unsigned char> scratch(attention_scratch_bytes(a), 0xff);
  a.scratch = scratch.data();
  attention(a);

  int64_t wrong = 0, wrong_lse = 0;
  const std::vector<double> queries = q.numbers(), keys = k.numbers(), values = v.numbers();
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.q_heads; ++h) {
      const int64_t kh = h / (c.q_heads / c.kv_heads);
      // The keys of this head as [head_dim][kv_len], its values as [kv_len][v_dim].
      std::vector<double> columns, rows;
      for (int64_t d = 0; d < c.head_dim; ++d)
        for (int64_t j = 0; j < c.kv_len; ++j)
          columns.push_back(keys[static_cast<size_t>(b * sk.at[0] + kh * sk.at[1] + j * sk.at[2] + d)]);
      for (int64_t j = 0; j < c.kv_len; ++j)
        for (int64_t d = 0; d < c.v_dim; ++d)
          rows.push_back(values[static_cast<size_t>(b * sv.at[0] + kh * sv.at[1] + j * sv.at[2] + d)]);
      for (int64_t i = 0; i < c.q_len; ++i) {
        std::vector<double> scores(static_cast<size_t>(c.kv_len)), sums(static_cast<size_t>(c.v_dim));
        add_product(scores.data(), queries.data() + b * sq.at[0] + h * sq.at[1] + i * sq.at[2], columns.data(), 1,
                    c.kv_len, c.head_dim);
        double top = -kInf, total = 0;
        for (int64_t j = 0; j < c.kv_len; ++j) {
          double s = scores[static_cast<size_t>(j)] * 0.37f;
          const int64_t at = b * sm[0] + h * sm[1] + i * sm[2] + j * sm[3];
          if (c.mask_kind == 1 && !bools[static_cast<size_t>(at)]) s = -kInf;
          if (c.mask_kind >= 2) s += added.get(at);
          if (c.causal && j > i) s = -kInf;
          scores[static_cast<size_t>(j)] = s;
          top = std::max(top, s);
        }
        for (double& s : scores) {
          s = s == -kInf ? 0 : std::exp(s - top);
          total += s;
        }
        const double expected_lse = total == 0 ? -kInf : top + std::log(total);
        wrong_lse += !close(lse[static_cast<size_t>((b * c.q_heads + h) * c.q_len + i)], expected_lse,
                            1e-5 * (1 + std::abs(expected_lse)));
        if (total != 0) add_product(sums.data(), scores.data(), rows.data(), 1, c.v_dim, c.kv_len);
        for (int64_t d = 0; d < c.v_dim; ++d) {
          const double sum = total == 0 ? 0 : sums[static_cast<size_t>(d)] / total;
          const double got = y.get(b * sy.at[0] + h * sy.at[1] + i * sy.at[2] + d);
          // Weights may be rounded to bf16, in sums of values up to 1 that cancel.
          const double rounding = c.dtype == DType::bf16 ? 2e-3 : 0;
          wrong += !close(got, sum, tolerance(c.dtype, sum, 20) + rounding);
        }
      }
    }
  CHECK(wrong == 0);
  CHECK(wrong_lse == 0);
}

TEST_CASE("attention: lengths around the blocks") {
  for (const DType dtype : kDTypes) {
    for (const int64_t q_len : {1, 2, 5, 13, 60, 230}) {
      for (const int64_t kv_len : {1, 31, 64, 255, 257, 600}) {
        check({dtype, 1, 2, 2, q_len, kv_len, 24, 40, false});
        check({dtype, 1, 2, 1, q_len, kv_len, 32, 32, true});
      }
    }
  }
}

TEST_CASE("attention: masks of every kind and shape") {
  for (const DType dtype : kDTypes) {
    for (int kind = 1; kind <= 3; ++kind) {
      for (int shape = 0; shape <= 3; ++shape) {
        for (const float rate : {0.0f, 0.4f, 0.98f, 1.0f}) {
          check({dtype, 2, 4, 2, 9, 37, 16, 16, false, kind, shape, shape % 3, rate});
          check({dtype, 2, 2, 2, 1, 300, 16, 32, false, kind, shape, 1, rate});
          check({dtype, 1, 2, 2, 40, 300, 16, 20, true, kind, shape, 2, rate});
        }
      }
    }
  }
}

TEST_CASE("attention: nothing to look at, nothing to do") {
  for (const DType dtype : kDTypes) {
    check({dtype, 0, 2, 2, 3, 3, 8, 8});
    check({dtype, 1, 2, 2, 0, 3, 8, 8});
    check({dtype, 1, 2, 2, 3, 0, 8, 8});
    check({dtype, 1, 2, 2, 30, 0, 8, 8, true});
    check({dtype, 1, 1, 1, 1, 1, 1, 1});
    check({dtype, 1, 2, 2, 7, 9, 0, 8});
  }
}

TEST_CASE("attention: random") {
  for (int i = 0; i < 120; ++i) {
    const int64_t kv_heads = pick_in(1, 3);
    check({random_dtype(), pick_in(1, 2), kv_heads * pick({1, 1, 2, 4}), kv_heads, pick({1, 1, 3, 4, 8, 17, 33}),
           pick({1, 7, 32, 90, 280}), pick({1, 8, 16, 33, 64}), pick({1, 8, 16, 33, 64}), coin(),
           static_cast<int>(pick_in(0, 3)), static_cast<int>(pick_in(0, 3)), static_cast<int>(pick_in(0, 2)), 0.3f,
           static_cast<int>(pick_in(1, 5)), pick({0, 1, 3})});
  }
}

TEST_CASE("attention: NaN in a query stays in its row; huge scores do not overflow") {
  const int64_t len = 20, dim = 16;
  Buffer q = Buffer::random(DType::f32, len * dim, 0, 50, 60), k = Buffer::random(DType::f32, len * dim, 0, 50, 60);
  const Buffer v = Buffer::random(DType::f32, len * dim);
  q.set(3 * dim, std::nanf(""));
  Buffer y(DType::f32, len * dim);
  AttentionArgs a = {};
  a.dtype = DType::f32;
  a.batch = a.q_heads = a.kv_heads = 1;
  a.q_len = a.kv_len = len;
  a.head_dim = a.v_dim = dim;
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  a.y = y.data();
  a.q_strides[2] = a.k_strides[2] = a.v_strides[2] = a.y_strides[2] = dim;
  a.scale = 1.0f;
  a.num_threads = 1;
  std::vector<unsigned char> scratch(attention_scratch_bytes(a));
  a.scratch = scratch.data();
  attention(a);
  for (int64_t i = 0; i < len * dim; ++i) CHECK(std::isnan(y.get(i)) == (i / dim == 3));
}

}  // namespace
}  // namespace aotpack::kernels::test
