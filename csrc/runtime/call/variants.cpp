#include "call/variants.h"

#include "base/status.h"
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

bool fits(const VariantRecord& variant, const int64_t* dims) noexcept {
  bool defined;
  for (const GuardRecord& guard : variant.guards) {
    if (!holds(guard, dims)) return false;
  }
  for (const CheckRecord& check : variant.checks) {
    if (!holds(check, dims, &defined)) return false;
  }
  return true;
}

// What a variant that does not fit asks for, and what it got.
std::string describe_misfit(const EntryPlan& plan, const VariantRecord& variant, const int64_t* dims) {
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
  return "";
}

[[noreturn]] void refuse(const EntryPlan& plan, const int64_t* dims) {
  const EntryRecord& entry = plan.record();
  std::string message;
  if (entry.variants.size() == 1) {
    message = "the call must satisfy " + describe_misfit(plan, entry.variants.front(), dims);
  } else {
    message = "no variant of entry '" + entry.name + "' matches:";
    for (const VariantRecord& variant : entry.variants) {
      message += &variant == &entry.variants.front() ? " '" : "; '";
      message += variant.name + "' needs " + describe_misfit(plan, variant, dims);
    }
  }
  throw Error(AOTPACK_INVALID_ARGUMENT, message);
}

}  // namespace

size_t choose_variant(const EntryPlan& plan, const int64_t* dims) {
  const std::vector<VariantRecord>& variants = plan.record().variants;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (fits(variants[i], dims)) return i;
  }
  refuse(plan, dims);
}

}  // namespace aotpack::runtime
