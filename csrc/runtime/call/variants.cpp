#include "call/variants.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/dltensor.h"
#include "base/dtype.h"
#include "base/status.h"
#include "call/shared_inputs.h"
#include "model/describe.h"

namespace aotpack::runtime {
namespace {

bool holds(const GuardRecord& guard, const int64_t* dims) noexcept {
  const int64_t value = dims[guard.dim];
  return value >= guard.min && value <= guard.max && (guard.multiple_of == 1 || value % guard.multiple_of == 0);
}

bool holds(const CheckRecord& check, const int64_t* dims, bool* defined) noexcept {
  CodeValue result;
  *defined = check.code.evaluate(dims, &result);
  return *defined && result.truth;
}

bool fits(const VariantRecord& variant, const int64_t* dims, const DLTensor* const* inputs) noexcept {
  bool defined;
  for (const GuardRecord& guard : variant.guards) {
    if (!holds(guard, dims)) return false;
  }
  for (const CheckRecord& check : variant.checks) {
    if (!holds(check, dims, &defined)) return false;
  }
  for (const std::vector<uint32_t>& group : variant.same) {
    if (difference_in(group, inputs) != nullptr) return false;
  }
  return true;
}

// What a variant that does not fit asks for, and what it got.
std::string describe_misfit(const EntryPlan& plan, const VariantRecord& variant, const int64_t* dims,
                            const DLTensor* const* inputs) {
  for (const GuardRecord& guard : variant.guards) {
    if (holds(guard, dims)) continue;
    return describe_guard(plan.record(), guard) + ", got " + describe_dim(plan, guard.dim, dims);
  }
  for (const CheckRecord& check : variant.checks) {
    bool defined;
    if (holds(check, dims, &defined)) continue;
    const std::string given = describe_dims(plan, check.code.dims(), dims);
    if (!defined) return check.text + ", which cannot be evaluated for " + given;
    return check.text + (given.empty() ? ", which is never true" : ", got " + given);
  }
  for (const std::vector<uint32_t>& group : variant.same) {
    const char* difference = difference_in(group, inputs);
    if (difference == nullptr) continue;
    return describe_same(plan.record(), group) + ", got tensors with different " + difference;
  }
  return "";
}

// All variants, with what each asks for.
[[noreturn]] void refuse(const EntryPlan& plan, const int64_t* dims, const DLTensor* const* inputs) {
  const EntryRecord& entry = plan.record();
  std::string message;
  if (entry.variants.size() == 1) {
    message = "the call must satisfy " + describe_misfit(plan, entry.variants.front(), dims, inputs);
  } else {
    message = "no variant of entry '" + entry.name + "' matches:";
    for (const VariantRecord& variant : entry.variants) {
      message += &variant == &entry.variants.front() ? " '" : "; '";
      message += variant.name + "' needs " + describe_misfit(plan, variant, dims, inputs);
    }
  }
  throw Error(AOTPACK_INVALID_ARGUMENT, message);
}

// Whether two inputs are one tensor that no variant knows to be one.
bool is_unknown_pair(const EntryRecord& entry, const SharedInputs& shared, const DLTensor* const* inputs) noexcept {
  const DLTensor& first = *inputs[shared.written];
  const DLTensor& second = *inputs[shared.other];
  if (!same_dtype(first.dtype, second.dtype) || first.ndim != second.ndim) return false;
  if (difference_of(first, second) != nullptr) return false;
  return std::none_of(entry.variants.begin(), entry.variants.end(),
                      [&](const VariantRecord& variant) { return are_same(variant, shared.written, shared.other); });
}

// Variants fit but for what `shared` says of the first of them. Those that are for inputs which are one tensor say why
// they do not fit.
[[noreturn]] void refuse_shared(const EntryPlan& plan, const SharedInputs& shared, const int64_t* dims,
                                const DLTensor* const* inputs) {
  const EntryRecord& entry = plan.record();
  std::string message = describe_shared(entry, shared);
  for (const VariantRecord& variant : entry.variants) {
    if (variant.same.empty()) continue;
    const std::string misfit = describe_misfit(plan, variant, dims, inputs);
    message += "; variant '" + variant.name + "' ";
    message += misfit.empty() ? "is for " + describe_same(entry, variant.same) + " only" : "needs " + misfit;
  }
  if (is_unknown_pair(entry, shared, inputs)) {
    const auto [first, second] =
        std::minmax({static_cast<uint32_t>(shared.written), static_cast<uint32_t>(shared.other)});
    message += "; no variant is for " + describe_same(entry, std::vector<uint32_t>{first, second});
  }
  throw Error(AOTPACK_INVALID_ARGUMENT, message);
}

}  // namespace

size_t choose_variant(const EntryPlan& plan, const int64_t* dims, const DLTensor* const* inputs) {
  const std::vector<VariantRecord>& variants = plan.record().variants;
  std::optional<SharedInputs> refused;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (!fits(variants[i], dims, inputs)) continue;
    if (!plan.has_mutated_inputs()) return i;
    const std::optional<SharedInputs> shared = find_shared(plan, variants[i], inputs);
    if (!shared) return i;
    if (!refused) refused = shared;
    // Other variants differ in nothing but sizes.
    if (!plan.has_same()) break;
  }
  if (refused) refuse_shared(plan, *refused, dims, inputs);
  refuse(plan, dims, inputs);
}

}  // namespace aotpack::runtime
