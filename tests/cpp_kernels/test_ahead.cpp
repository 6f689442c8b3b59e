#include <thread>
#include <vector>

#include "ahead.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

TEST_CASE("ahead: what followed weights the last time") {
  const std::vector<char> bytes(3 * 64);
  const char *const a = bytes.data(), *const b = a + 64, *const c = b + 64;
  weights_after(a, 10);
  weights_after(b, 20);
  const Weights after_a = weights_after(a, 10), after_b = weights_after(b, 20);
  CHECK(after_a.data == b);
  CHECK(after_a.bytes == 20);
  CHECK(after_b.data == a);
  CHECK(after_b.bytes == 10);
  // The order has changed.
  weights_after(a, 10);
  weights_after(c, 30);
  CHECK(weights_after(a, 10).data == c);
  // Another thread's operators are others.
  std::thread([&] { CHECK(weights_after(b, 20).data == a); }).join();
  CHECK(weights_after(c, 30).data == a);
}

TEST_CASE("ahead: threads share what is next, up to what stays near") {
  const std::vector<char> bytes(8 << 20);
  const Weights weights = {bytes.data(), static_cast<int64_t>(bytes.size())};
  for (const int threads : {1, 3, 16}) {
    for (int thread = 0; thread < threads; ++thread) {
      const Weights mine = share_ahead(weights, thread, threads);
      CHECK(mine.data >= weights.data);
      CHECK(mine.bytes > 0);
      CHECK(mine.bytes <= 1 << 20);
      CHECK(mine.data + mine.bytes <= weights.data + weights.bytes);
    }
  }
  CHECK(share_ahead({nullptr, 0}, 1, 2).bytes == 0);
}

}  // namespace
}  // namespace aotpack::kernels::test
