#include <algorithm>
#include <array>

#include "pack_weight.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Case {
  int64_t groups, outputs, inputs;
  std::array<int64_t, 3> kernel;
  // How output, input and the kernel dims (0 to 4) lie in w, from the outermost to the innermost; groups lie outside.
  std::array<size_t, 5> order = {0, 1, 2, 3, 4};
  int64_t gap = 0;  // unused elements after each of the dims
  int threads = 2;
};

template <class T>
void check(const Case& c) {
  const std::array<int64_t, 6> sizes = {c.groups, c.outputs, c.inputs, c.kernel[0], c.kernel[1], c.kernel[2]};
  std::array<int64_t, 6> strides = {};
  int64_t step = 1;
  for (size_t i = 5; i-- > 0;) {
    strides[1 + c.order[i]] = step;
    step = step * sizes[1 + c.order[i]] + c.gap;
  }
  strides[0] = step;
  int64_t extent = 0;
  if (*std::min_element(sizes.begin(), sizes.end()) > 0) {
    extent = 1;
    for (size_t d = 0; d < 6; ++d) extent += (sizes[d] - 1) * strides[d];
  }
  std::vector<T> w(static_cast<size_t>(extent));
  for (T& x : w) x = static_cast<T>(rng()() | 1u);
  PackWeightArgs a = {};
  a.elem_size = sizeof(T);
  a.groups = c.groups;
  a.outputs = c.outputs;
  a.inputs = c.inputs;
  a.w = w.data();
  a.group_stride = strides[0];
  a.output_stride = strides[1];
  a.input_stride = strides[2];
  for (size_t d = 0; d < 3; ++d) {
    a.kernel[d] = c.kernel[d];
    a.kernel_strides[d] = strides[3 + d];
  }
  a.num_threads = c.threads;
  std::vector<T> packed(static_cast<size_t>(packed_weight_size(a)), static_cast<T>(77));
  a.packed = packed.data();
  pack_weight(a);
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], panels = ceil_div(c.outputs, kPanel);
  int64_t wrong = 0;
  for (int64_t g = 0; g < c.groups; ++g) {
    for (int64_t o = 0; o < panels * kPanel; ++o) {
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t i = 0; i < c.inputs; ++i) {
          const int64_t k2 = t % c.kernel[2], k1 = t / c.kernel[2] % c.kernel[1], k0 = t / c.kernel[2] / c.kernel[1];
          const int64_t from =
              g * strides[0] + o * strides[1] + i * strides[2] + k0 * strides[3] + k1 * strides[4] + k2 * strides[5];
          const T expected = o < c.outputs ? w[static_cast<size_t>(from)] : T(0);
          const int64_t at = (((g * panels + o / kPanel) * taps + t) * c.inputs + i) * kPanel + o % kPanel;
          wrong += packed[static_cast<size_t>(at)] != expected;
        }
      }
    }
  }
  CAPTURE(c.groups);
  CAPTURE(c.outputs);
  CAPTURE(c.inputs);
  CAPTURE(taps);
  CAPTURE(sizeof(T));
  CHECK(wrong == 0);
}

template <class T>
void check_all() {
  for (const int64_t n : {1, 7, 31, 32, 33, 64, 70}) {  // linears: as they are, and transposed
    for (const int64_t k : {1, 3, 8, 31, 130, 600}) {
      check<T>({1, n, k, {1, 1, 1}});
      check<T>({1, n, k, {1, 1, 1}, {1, 0, 2, 3, 4}});
    }
  }
  check<T>({1, 5000, 40, {1, 1, 1}, {0, 1, 2, 3, 4}, 0, 3});
  check<T>({1, 0, 5, {1, 1, 1}});
  check<T>({1, 5, 0, {1, 1, 1}});
  check<T>({0, 5, 3, {1, 1, 1}});
  check<T>({2, 5, 3, {1, 0, 1}});
  check<T>({2, 40, 16, {1, 3, 3}});
  check<T>({1, 64, 37, {1, 3, 3}, {0, 2, 3, 4, 1}});  // channels-last
  check<T>({1, 64, 37, {1, 2, 3}, {1, 0, 2, 3, 4}});  // transposed
  check<T>({3, 33, 20, {2, 3, 5}, {1, 2, 3, 4, 0}, 1});
  for (int i = 0; i < 60; ++i) {
    Case c = {pick_in(1, 3), pick_in(1, 70), pick_in(1, 40), {pick_in(1, 3), pick_in(1, 4), pick_in(1, 3)}};
    std::shuffle(c.order.begin(), c.order.end(), rng());
    c.gap = pick({0, 0, 0, 1, 5});
    c.threads = static_cast<int>(pick_in(1, 4));
    check<T>(c);
  }
}

TEST_CASE("pack_weight: elements of every size, all orders, remainders, nothing") {
  check_all<uint8_t>();
  check_all<uint16_t>();
  check_all<uint32_t>();
  check_all<uint64_t>();
}

TEST_CASE("pack_weight: a repeated dim") {
  const float w[3] = {1, 2, 3};
  std::vector<float> packed(3 * 32, -1.0f);
  pack_weight({4, 1, 5, 3, {1, 1, 1}, w, 0, 0, 1, {}, packed.data(), 1});
  for (size_t i = 0; i < packed.size(); ++i) CHECK(packed[i] == (i % 32 < 5 ? w[i / 32] : 0.0f));
}

}  // namespace
}  // namespace aotpack::kernels::test
