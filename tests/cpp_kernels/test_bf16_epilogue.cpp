// How tiles of bf16 products are rounded.
#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>

#include "bf16_epilogue.h"
#include "bf16_product.h"

using namespace aotpack::kernels;

TEST_CASE("linear: bf16 results are rounded as single numbers are, whatever is beside them") {
  if (!bf16_works()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,   -0.0f,     1e-39f,  -1e-39f,    1.1754944e-38f,
                           1e-45f, kInfinity, 3.4e38f, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 random(1);
  alignas(64) float sums[kPanel];
  for (int round = 0; round < 20000; ++round) {
    for (float& x : sums) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (round % 2 == 0) {  // ordinary numbers alone
      for (float& x : sums) x = static_cast<float>(static_cast<int32_t>(random())) * 1e-6f;
    }
    if (round % 4 == 2) sums[random() % kPanel] = special[random() % (sizeof special / sizeof special[0])];
    const int64_t columns = round % 3 == 0 ? 1 + static_cast<int64_t>(random() % kPanel) : int64_t{kPanel};
    bf16 y[kPanel] = {};
    finish_split(sums, 1, columns, nullptr, 0, Act::none, DType::bf16, y, kPanel);
    for (int64_t j = 0; j < columns; ++j) {
      bf16 wanted;
      from_float(sums[j % 2 * (kPanel / 2) + j / 2], &wanted);
      INFO("column " << j << " of " << columns << ", " << sums[j % 2 * (kPanel / 2) + j / 2]);
      REQUIRE(std::memcmp(&y[j], &wanted, sizeof wanted) == 0);
    }
  }
}
