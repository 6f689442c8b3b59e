// The sizes of a call: the values of its dims, and what follows from them.
#pragma once

#include <cstdint>
#include <vector>

#include "aotpack/dlpack.h"
#include "model/plan.h"

namespace aotpack::runtime {

// Of one entry in one context; reused from call to call. Belongs to one thread at a time.
class CallSizes {
 public:
  explicit CallSizes(const EntryPlan& plan) : plan_(&plan), sizes_(plan.initial_sizes()) {}

  // Finds the values of all dims out of inputs whose kinds are checked, and checks them; then computes the other sizes.
  // Throws INVALID_ARGUMENT in the user's names.
  void solve(const DLTensor* const* inputs);

  // The sizes of what steps hand to each other, in a call whose other sizes are there. Throws INVALID_ARGUMENT.
  void solve_values(const ValuesPlan& values) {
    for (const DerivedSize& derived : values.derived) compute(derived);
  }

  // By slot; the values of the dims come first. After solve().
  const int64_t* data() const noexcept { return sizes_.data(); }

 private:
  int64_t solve_special(const DimSource& source, const DLTensor& given) const;
  int64_t solve_affine(const DimSource& source, int64_t size) const;
  void compute(const DerivedSize& derived);
  [[noreturn]] void refuse_dim(const DimSource& source, const DLTensor& given, int64_t value) const;
  [[noreturn]] void refuse_number(const NumberUse& use, int64_t given, bool defined, int64_t expected) const;
  [[noreturn]] void refuse_derived(const DerivedSize& derived, bool defined, int64_t value) const;

  const EntryPlan* plan_;
  std::vector<int64_t> sizes_;
};

}  // namespace aotpack::runtime
