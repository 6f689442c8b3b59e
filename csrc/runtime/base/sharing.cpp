#include "base/sharing.h"

#include <algorithm>

#include "aotpack/module_abi.h"
#include "base/bytes.h"
#include "base/strided.h"

namespace aotpack::runtime {
namespace {

__extension__ using Wide = __int128;

Wide gcd(Wide a, Wide b) noexcept {
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// sum(coefficient * x) == target in whole numbers x in [0, bound], one for each term.
class BoundedEquation {
 public:
  // `x` in [0, bound] with a coefficient of any sign. Terms of one coefficient become one.
  void add(int64_t coefficient, int64_t bound) noexcept {
    if (coefficient == 0 || bound == 0) return;
    // Products of 64-bit numbers, so everything below fits: there are few terms.
    Wide magnitude = coefficient;
    if (coefficient < 0) {  // x is counted from the other end
      target_ -= magnitude * bound;
      magnitude = -magnitude;
    }
    for (int i = 0; i < count_; ++i) {
      if (terms_[i].coefficient != magnitude) continue;
      terms_[i].bound += bound;
      return;
    }
    terms_[count_++] = {magnitude, bound, 0, 0};
  }
  void add_to_target(Wide amount) noexcept { target_ += amount; }

  // False when there is none; true when there is one, or the search was given up.
  bool may_have_solution() noexcept {
    if (count_ == 0) return target_ == 0;
    std::sort(terms_, terms_ + count_, [](const Term& a, const Term& b) { return a.coefficient > b.coefficient; });
    Wide reach = 0;
    Wide divisor = 0;
    for (int i = count_; i-- > 0;) {
      terms_[i].reach = reach += terms_[i].coefficient * terms_[i].bound;
      terms_[i].divisor = divisor = gcd(terms_[i].coefficient, divisor);
    }
    return search(0, target_);
  }

 private:
  struct Term {
    Wide coefficient;
    Wide bound;
    Wide reach;    // the greatest sum of this term and those after it
    Wide divisor;  // of all those sums
  };

  bool search(int at, Wide target) noexcept {
    const Term& term = terms_[at];
    if (target < 0 || target > term.reach || target % term.divisor != 0) return false;
    if (at + 1 == count_) return true;
    const Wide rest = terms_[at + 1].reach;
    const Wide least = target > rest ? (target - rest + term.coefficient - 1) / term.coefficient : 0;
    const Wide most = std::min(term.bound, target / term.coefficient);
    for (Wide x = most; x >= least; --x) {
      if (--budget_ <= 0 || search(at + 1, target - x * term.coefficient)) return true;
    }
    return false;
  }

  // Steps; about a millisecond.
  static constexpr int kBudget = 10000;

  Term terms_[2 * AOTPACK_MAX_RANK + 2];
  int count_ = 0;
  Wide target_ = 0;
  int budget_ = kBudget;
};

// In bytes. False when a view cannot lie in memory: what its strides reach does not fit 64 bits.
bool add_axes(const MemoryView& view, bool negate, BoundedEquation* equation) noexcept {
  for (int32_t i = 0; i < view.rank; ++i) {
    int64_t step;
    int64_t reach;
    if (view.sizes[i] == 1) continue;
    if (!checked_mul(view.strides[i], static_cast<int64_t>(view.item), &step) ||
        !checked_mul(step, view.sizes[i] - 1, &reach) || step == INT64_MIN) {
      return false;
    }
    equation->add(negate ? -step : step, view.sizes[i] - 1);
  }
  return true;
}

// Whether what an axis of more than one element spans fits 64 bits. It does in all views of memory; then no sum below
// comes near the end of 128 bits.
bool reaches_in_memory(const MemoryView& view, int32_t axis) noexcept {
  int64_t reach;
  return view.sizes[axis] <= INT64_MAX / 2 && view.strides[axis] != INT64_MIN &&
         checked_mul(view.strides[axis], view.sizes[axis] - 1, &reach);
}

}  // namespace

AddressRange addresses(const MemoryView& view) noexcept {
  const auto start = reinterpret_cast<uintptr_t>(view.data);
  AddressRange range = {start, start + view.item};
  for (int32_t i = 0; i < view.rank; ++i) {
    if (view.sizes[i] == 0) return {start, start};
    if (view.sizes[i] == 1) continue;
    // Modulo 2^64, as addresses are.
    const uintptr_t reach =
        static_cast<uintptr_t>(view.sizes[i] - 1) * static_cast<uintptr_t>(view.strides[i]) * view.item;
    (view.strides[i] < 0 ? range.first : range.last) += reach;
  }
  return range;
}

bool may_share(const MemoryView& a, const MemoryView& b) noexcept {
  if (!intersect(addresses(a), addresses(b))) return false;
  BoundedEquation equation;
  const Wide distance =
      static_cast<Wide>(reinterpret_cast<uintptr_t>(b.data)) - static_cast<Wide>(reinterpret_cast<uintptr_t>(a.data));
  equation.add_to_target(distance);
  if (!add_axes(a, false, &equation) || !add_axes(b, true, &equation)) return true;
  if (a.item != b.item || distance % static_cast<Wide>(a.item) != 0) {
    // Elements may meet in part of their bytes.
    equation.add(1, static_cast<int64_t>(a.item) - 1);
    equation.add(-1, static_cast<int64_t>(b.item) - 1);
  }
  return equation.may_have_solution();
}

bool may_overlap_itself(const MemoryView& view) noexcept {
  if (is_non_overlapping(view.sizes, view.strides, view.rank)) return false;
  // Two indices of one place differ first in some axis, there by 1 at least (or the other way round).
  for (int32_t first = 0; first < view.rank; ++first) {
    if (view.sizes[first] < 2) continue;
    if (!reaches_in_memory(view, first)) return true;
    BoundedEquation equation;
    equation.add_to_target(-static_cast<Wide>(view.strides[first]));
    equation.add(view.strides[first], view.sizes[first] - 2);
    for (int32_t i = first + 1; i < view.rank; ++i) {
      const int64_t bound = view.sizes[i] - 1;
      if (bound == 0) continue;
      if (!reaches_in_memory(view, i)) return true;
      // A difference in [-bound, bound], counted from its lower end.
      equation.add(view.strides[i], 2 * bound);
      equation.add_to_target(static_cast<Wide>(view.strides[i]) * bound);
    }
    if (equation.may_have_solution()) return true;
  }
  return false;
}

}  // namespace aotpack::runtime
