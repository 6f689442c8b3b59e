// What kernels know of the processor's caches.
#include "caches.h"
#include "util.h"

namespace aotpack::kernels::test {

TEST_CASE("caches: sizes are a processor's, or not told") {
  const int64_t second = second_cache_bytes(), last = last_cache_bytes();
  CHECK((second == 0 || (second >= 128 << 10 && second <= 64 << 20)));
  CHECK((last == 0 || last >= 1 << 20));
  CHECK(second_cache_bytes() == second);
}

TEST_CASE("caches: what stays near is smaller where the cache is, never larger") {
  const int64_t second = second_cache_bytes();
  for (const int64_t bytes : {int64_t{64} << 10, int64_t{384} << 10, int64_t{1280} << 10}) {
    const int64_t near = near_bytes(bytes);
    CHECK(near >= bytes / 4);
    CHECK(near <= bytes);
    if (second == 0 || second >= 1 << 20) CHECK(near == bytes);
    if (second == 512 << 10) CHECK(near == bytes / 2);
  }
}

}  // namespace aotpack::kernels::test
