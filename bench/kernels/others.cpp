// Attention, recurrent layers and what moves memory.
#include <string>
#include <vector>

#include "attention.h"
#include "benchmarks.h"
#include "embedding_bag.h"
#include "max_pool.h"
#include "measure.h"
#include "rnn.h"
#include "transpose_copy.h"

namespace aotpack::kernels::bench {
namespace {

void bench_attention(DType dtype, int64_t batch, int64_t heads, int64_t kv_heads, int64_t q_len, int64_t kv_len,
                     int64_t dim, bool causal) {
  const std::string name = "attention " + std::string(dtype_name(dtype)) + " " + std::to_string(batch) + "x" +
                           std::to_string(heads) + "/" + std::to_string(kv_heads) + "x" + std::to_string(q_len) + "x" +
                           std::to_string(kv_len) + "x" + std::to_string(dim) + (causal ? " causal" : "");
  if (name.find(filter) == std::string::npos) return;
  const auto q = floats(batch * heads * q_len * dim), k = floats(batch * kv_heads * kv_len * dim);
  Floats y(q.size());
  AttentionArgs a = {};
  a.dtype = dtype;
  a.batch = batch;
  a.q_heads = heads;
  a.kv_heads = kv_heads;
  a.q_len = q_len;
  a.kv_len = kv_len;
  a.head_dim = a.v_dim = dim;
  a.q = q.data();
  a.k = a.v = k.data();
  a.y = y.data();
  const auto strides = [&](int64_t h, int64_t len, int64_t* to) {
    to[0] = h * len * dim;
    to[1] = dim;
    to[2] = h * dim;
  };
  strides(heads, q_len, a.q_strides);
  strides(heads, q_len, a.y_strides);
  strides(kv_heads, kv_len, a.k_strides);
  strides(kv_heads, kv_len, a.v_strides);
  a.causal = causal;
  a.scale = 0.125f;
  a.num_threads = threads;
  std::vector<char> scratch(attention_scratch_bytes(a));
  a.scratch = scratch.data();
  const double pairs = double(batch * heads) * double(q_len) * double(kv_len) * (causal ? 0.5 : 1.0);
  report(name, 4.0 * pairs * double(dim), double(dtype_size(dtype)) * 2.0 * double(k.size()), [&] { attention(a); });
}

void bench_rnn(DType dtype, bool gru, int64_t steps, int64_t batch, int64_t input, int64_t hidden) {
  const std::string name = std::string(gru ? "gru" : "lstm") + " " + dtype_name(dtype) + " " + std::to_string(steps) +
                           "x" + std::to_string(batch) + "x" + std::to_string(input) + "x" + std::to_string(hidden);
  if (name.find(filter) == std::string::npos) return;
  const int64_t columns = (gru ? 3 : 4) * hidden;
  const auto x = numbers(dtype, steps * batch * input), w_ih = numbers(dtype, input * round_up(columns, 32)),
             w_hh = numbers(dtype, hidden * round_up(columns, 32));
  Floats y(static_cast<size_t>(steps * batch * hidden));
  RnnArgs a = {dtype,       gru,         steps,   batch,   input,   hidden,  x.data(), batch * input, input,
               w_ih.data(), w_hh.data(), nullptr, nullptr, nullptr, nullptr, false,    y.data(),      batch * hidden,
               hidden,      nullptr,     nullptr, threads, nullptr};
  std::vector<char> scratch(rnn_scratch_bytes(a));
  a.scratch = scratch.data();
  report(name, 2.0 * double(steps * batch * columns) * double(input + hidden),
         double(dtype_size(dtype)) * double(steps) * double(hidden * columns), [&] { rnn(a); });
}

void bench_transpose(int64_t c, int64_t size, bool to_last, int64_t elem) {
  const std::string name = "transpose " + std::to_string(c) + "x" + std::to_string(size) + " e" + std::to_string(elem) +
                           (to_last ? " to nhwc" : " to nchw");
  if (name.find(filter) == std::string::npos) return;
  const auto x = floats(c * size * size);
  Floats y(x.size());
  const int64_t area = size * size;
  const int64_t last_sizes[3] = {size, size, c}, last_strides[3] = {size, 1, area};
  const int64_t first_sizes[3] = {c, size, size}, first_strides[3] = {1, size * c, c};
  report(name, 0, 2.0 * double(elem) * double(x.size()), [&] {
    transpose_copy(y.data(), x.data(), 3, to_last ? last_sizes : first_sizes, to_last ? last_strides : first_strides,
                   elem, threads);
  });
}

void bench_bag(int64_t rows, int64_t dim, int64_t bags, int64_t length) {
  const std::string name = "bag f32 " + std::to_string(rows) + "x" + std::to_string(dim) + " " + std::to_string(bags) +
                           "x" + std::to_string(length);
  if (name.find(filter) == std::string::npos) return;
  const auto table = floats(rows * dim);
  std::vector<int64_t> indices(static_cast<size_t>(bags * length));
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<int64_t>(i * 2654435761u % static_cast<size_t>(rows));
  Floats y(static_cast<size_t>(bags * dim));
  report(name, double(bags * length * dim), 4.0 * double(bags * length * dim), [&] {
    embedding_bag({DType::f32, BagMode::sum, table.data(), rows, dim, dim, true, indices.data(), bags * length, nullptr,
                   0, false, length, nullptr, -1, y.data(), dim, threads});
  });
}

// Square images and windows.
void bench_max_pool(PoolType type, int64_t c, int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  const char* const types[] = {"f32", "bf16", "f16", "u8", "s8"};
  const int64_t bytes = type == PoolType::f32 ? 4 : type == PoolType::u8 ? 1 : 2;
  const std::string name = "max_pool " + std::string(types[static_cast<int>(type)]) + " " + std::to_string(c) + "x" +
                           std::to_string(size) + " k" + std::to_string(kernel) + " s" + std::to_string(stride);
  const int64_t out = (size + 2 * padding - kernel) / stride + 1;
  const auto x = floats(c * size * size);
  Floats y(static_cast<size_t>(c * out * out));
  const MaxPoolArgs a = {
      type,   1,        c, {size, size}, {out, out}, {kernel, kernel}, {stride, stride}, {padding, padding},
      {1, 1}, x.data(), c, y.data(),     false,      threads};
  report(name, double(c * out * out) * double(kernel * kernel), double(bytes) * double(x.size() + y.size()),
         [&] { max_pool(a); });
}

}  // namespace

void run_attention() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    bench_attention(dtype, 1, 12, 12, 128, 128, 64, false);
    bench_attention(dtype, 1, 12, 12, 1024, 1024, 64, true);
    bench_attention(dtype, 1, 12, 12, 197, 197, 64, false);
    bench_attention(dtype, 1, 6, 6, 1500, 1500, 64, false);
    bench_attention(dtype, 1, 12, 12, 1, 1024, 64, false);
    bench_attention(dtype, 1, 32, 8, 1, 4096, 128, false);
  }
}

void run_recurrent_layers() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    bench_rnn(dtype, false, 100, 1, 256, 256);
    bench_rnn(dtype, false, 100, 16, 256, 256);
    bench_rnn(dtype, false, 50, 1, 512, 512);
    bench_rnn(dtype, false, 50, 64, 512, 512);
    bench_rnn(dtype, true, 100, 1, 256, 256);
  }
}

void run_pools() {
  for (const PoolType type : {PoolType::f32, PoolType::bf16, PoolType::u8}) {
    bench_max_pool(type, 64, 112, 3, 2, 1);
    bench_max_pool(type, 64, 224, 2, 2, 0);
    bench_max_pool(type, 24, 112, 3, 2, 1);
    bench_max_pool(type, 256, 20, 5, 1, 2);
  }
}

void run_copies() {
  bench_transpose(3, 224, true, 4);
  bench_transpose(256, 56, true, 4);
  bench_transpose(256, 56, false, 4);
  bench_transpose(256, 56, true, 2);
  bench_bag(1000000, 64, 64, 32);
}

}  // namespace aotpack::kernels::bench
