// Operands that span more than 2^31 elements, in memory that is reserved but for the few pages in use.
#include <sys/mman.h>

#include "attention.h"
#include "embedding_bag.h"
#include "gemm.h"
#include "gemm_int8.h"
#include "linear.h"
#include "transpose_copy.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

constexpr int64_t kFar = (int64_t{1} << 31) + 64;  // elements; 8 GiB of floats

class Reserved {
 public:
  explicit Reserved(int64_t floats) : bytes_(static_cast<size_t>(floats) * 4) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) data_ = static_cast<float*>(at);
  }
  ~Reserved() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  float* data() { return data_; }

 private:
  size_t bytes_;
  float* data_ = nullptr;
};

TEST_CASE("huge: rows, tables and batches far apart") {
  Reserved memory(2 * kFar + 4096);
  if (memory.data() == nullptr) {
    MESSAGE("no address space for 16 GiB: skipped");
    return;
  }
  float* x = memory.data();
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 8; ++i) x[row * kFar + i] = static_cast<float>(row * 10 + i);
  }
  std::vector<float> identity(8 * 32, 0.0f);
  for (size_t i = 0; i < 8; ++i) identity[i * 32 + i] = 1.0f;

  SUBCASE("linear") {
    std::vector<float> y(3 * 8);
    linear({DType::f32, 3, 8, 8, x, kFar, identity.data(), nullptr, nullptr, 0, Act::none, y.data(), 8, 2});
    for (int i = 0; i < 24; ++i) CHECK(y[static_cast<size_t>(i)] == static_cast<float>(i / 8 * 10 + i % 8));
    linear({DType::f32, 3, 8, 8, y.data(), 8, identity.data(), nullptr, x, kFar, Act::none, x, kFar, 2});
    for (int row = 0; row < 3; ++row) CHECK(x[row * kFar + 7] == static_cast<float>(2 * (row * 10 + 7)));
  }
  SUBCASE("gemm") {
    std::vector<float> y(3 * 8), b(64, 0.0f);
    for (size_t i = 0; i < 8; ++i) b[i * 9] = 1.0f;
    GemmArgs g = {DType::f32, 3, 1, 8, 8,    x,    kFar,     8, 1, b.data(), 0, 8,      1,
                  nullptr,    0, 0, 0, 1.0f, 0.0f, y.data(), 8, 8, 1,        2, nullptr};
    std::vector<char> scratch(gemm_scratch_bytes(g));
    g.scratch = scratch.data();
    gemm(g);
    for (int i = 0; i < 24; ++i) CHECK(y[static_cast<size_t>(i)] == static_cast<float>(i / 8 * 10 + i % 8));
  }
  SUBCASE("gemm_int8") {  // rows of a, columns of b and rows of y far apart; few rows and many
    auto* bytes = reinterpret_cast<int8_t*>(memory.data());
    auto* y = reinterpret_cast<int32_t*>(memory.data()) + 64;
    for (int row = 0; row < 2; ++row) {
      for (int i = 0; i < 8; ++i) bytes[row * 4 * kFar + i] = static_cast<int8_t>(row * 10 + i);
    }
    for (int64_t rows : {int64_t{2}, int64_t{64}}) {
      // With many rows all but the first two are the second one again.
      std::vector<int8_t> b(8 * 2, 1);
      Int8GemmArgs g = {2, 2, 8, bytes, 4 * kFar, 1, b.data(), 1, 8, y, kFar, 1, 2, nullptr};
      if (rows > 2) {
        g = {rows, 2, 8, bytes + 4 * kFar, 0, 1, bytes, 1, 4 * kFar, y, 2, 1, 2, nullptr};
      }
      std::vector<char> scratch(gemm_int8_scratch_bytes(g));
      g.scratch = scratch.data();
      gemm_int8(g);
      if (rows == 2) {
        CHECK(y[0] == 28);
        CHECK(y[kFar + 1] == 108);
      } else {
        CHECK(y[2 * (rows - 1)] == 420);
        CHECK(y[2 * (rows - 1) + 1] == 1500);
      }
    }
  }
  SUBCASE("attention") {  // equal keys: the mean of the values
    std::vector<float> q(8, 1.0f), y(8);
    AttentionArgs a = {};
    a.dtype = DType::f32;
    a.batch = a.q_heads = a.kv_heads = a.q_len = 1;
    a.kv_len = 3;
    a.head_dim = a.v_dim = 8;
    a.q = q.data();
    a.k = x + 1024;  // zeros
    a.v = x;
    a.k_strides[2] = a.v_strides[2] = kFar;
    a.scale = 1.0f;
    a.y = y.data();
    a.num_threads = 1;
    std::vector<char> scratch(attention_scratch_bytes(a));
    a.scratch = scratch.data();
    attention(a);
    for (size_t i = 0; i < 8; ++i) CHECK(y[i] == doctest::Approx(10.0 + static_cast<double>(i)));
  }
  SUBCASE("embedding_bag") {
    const int64_t indices[] = {2, 0};
    std::vector<float> y(8);
    CHECK(embedding_bag({DType::f32, BagMode::sum, x, 3, 8, kFar, true, indices, 2, nullptr, 0, false, 2, nullptr, -1,
                         y.data(), 8, 1}) == BagStatus::ok);
    for (size_t i = 0; i < 8; ++i) CHECK(y[i] == static_cast<float>(20 + 2 * i));
  }
  SUBCASE("transpose_copy") {
    std::vector<float> y(24);
    const int64_t sizes[] = {8, 3}, strides[] = {1, kFar};
    transpose_copy(y.data(), x, 2, sizes, strides, 4, 1);
    for (size_t i = 0; i < 24; ++i) CHECK(y[i] == static_cast<float>(i % 3 * 10 + i / 3));
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
