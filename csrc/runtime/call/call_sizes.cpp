#include "call/call_sizes.h"

#include <cstring>

#include "base/bytes.h"
#include "base/dltensor.h"
#include "base/status.h"
#include "model/describe.h"

namespace aotpack::runtime {
namespace {

using ll = long long;

[[noreturn]] void invalid(const std::string& message) { throw Error(AOTPACK_INVALID_ARGUMENT, message); }

// Of an int64 tensor of rank 0.
int64_t number_in(const DLTensor& given, const ValueRecord& value) {
  const char* data = data_of(given);
  if (data == nullptr) invalid("input '" + value.name + "' has no data");
  int64_t number;
  std::memcpy(&number, data, sizeof number);  // may be misaligned
  return number;
}

}  // namespace

void CallSizes::solve(const DLTensor* const* inputs) {
  for (const DimSource& source : plan_->dim_sources()) {
    const DLTensor& given = *inputs[source.input];
    const int64_t value = source.is_special ? solve_special(source, given) : given.shape[source.axis];
    if (value < source.min || value > source.max) [[unlikely]]
      refuse_dim(source, given, value);
    sizes_[source.dim] = value;
  }
  for (const NumberUse& use : plan_->number_uses()) {
    const int64_t given = number_in(*inputs[use.input], plan_->record().inputs[use.input]);
    CodeValue expected;
    bool defined = true;
    if (use.formula == nullptr) {
      expected.integer = sizes_[use.dim];
    } else if (use.formula->kind == SizeRecord::Kind::kCode) {
      defined = use.formula->code.evaluate(sizes_.data(), &expected);
    } else {
      defined = checked_mul(use.formula->mul, sizes_[use.dim], &expected.integer) &&
                checked_add(expected.integer, use.formula->add, &expected.integer);
    }
    if (!defined || given != expected.integer) refuse_number(use, given, defined, expected.integer);
  }
  for (const DerivedSize& derived : plan_->derived_sizes()) compute(derived);
}

int64_t CallSizes::solve_special(const DimSource& source, const DLTensor& given) const {
  int64_t value;
  if (source.axis == DimSource::kNumber) {
    value = number_in(given, plan_->record().inputs[source.input]);
  } else {
    value = given.shape[source.axis];
    if (!source.is_plain()) value = solve_affine(source, value);
  }
  if (value % source.multiple_of != 0) refuse_dim(source, given, value);
  return value;
}

int64_t CallSizes::solve_affine(const DimSource& source, int64_t size) const {
  int64_t value;
  if (size >= 0 && checked_add(size, -source.add, &value) && value % source.mul == 0) return value / source.mul;
  const EntryRecord& entry = plan_->record();
  const ValueRecord& input = entry.inputs[source.input];
  invalid(format("input '%s': dim %u must be %s with a whole '%s', got %lld", input.name.c_str(), source.axis,
                 describe_size(entry, input.shape[source.axis]).c_str(), entry.dims[source.dim].name.c_str(),
                 static_cast<ll>(size)));
}

void CallSizes::compute(const DerivedSize& derived) {
  CodeValue result;
  const bool defined = derived.code != nullptr ? derived.code->evaluate(sizes_.data(), &result)
                                               : checked_mul(derived.mul, sizes_[derived.dim], &result.integer) &&
                                                     checked_add(result.integer, derived.add, &result.integer);
  if (!defined || result.integer < 0) refuse_derived(derived, defined, defined ? result.integer : 0);
  sizes_[derived.slot] = result.integer;
}

void CallSizes::refuse_dim(const DimSource& source, const DLTensor& given, int64_t value) const {
  const EntryRecord& entry = plan_->record();
  const ValueRecord& input = entry.inputs[source.input];
  const std::string& name = entry.dims[source.dim].name;
  const std::string violation = describe_violation(value, source.min, source.max, source.multiple_of);
  std::string where = "input '" + input.name + "'";
  if (source.axis == DimSource::kNumber) {
    if (name != input.name) where += " ('" + name + "')";
    invalid(format("%s %s, got %lld", where.c_str(), violation.c_str(), static_cast<ll>(value)));
  }
  where += format(": dim %u", source.axis);
  if (source.is_plain()) {
    invalid(format("%s ('%s') %s, got %lld", where.c_str(), name.c_str(), violation.c_str(), static_cast<ll>(value)));
  }
  invalid(format("%s is %s = %lld, so '%s' is %lld, but it %s", where.c_str(),
                 describe_size(entry, input.shape[source.axis]).c_str(), static_cast<ll>(given.shape[source.axis]),
                 name.c_str(), static_cast<ll>(value), violation.c_str()));
}

void CallSizes::refuse_number(const NumberUse& use, int64_t given, bool defined, int64_t expected) const {
  const std::string where = "input '" + plan_->record().inputs[use.input].name + "'";
  if (use.formula == nullptr) {
    invalid(format("%s is %s, got %lld", where.c_str(), describe_dim(*plan_, use.dim, data()).c_str(),
                   static_cast<ll>(given)));
  }
  const std::string formula = describe_size(plan_->record(), *use.formula);
  const std::string dims = describe_dims(*plan_, dims_of(*use.formula), data());
  if (!defined) invalid(where + " must be " + formula + ", which cannot be evaluated for " + dims);
  invalid(format("%s must be %s = %lld (%s), got %lld", where.c_str(), formula.c_str(), static_cast<ll>(expected),
                 dims.c_str(), static_cast<ll>(given)));
}

void CallSizes::refuse_derived(const DerivedSize& derived, bool defined, int64_t value) const {
  const SizeRecord& size = derived.value->shape[derived.axis];
  const std::string where = format("%s '%s': dim %u is %s", derived.role, derived.value->name.c_str(), derived.axis,
                                   describe_size(plan_->record(), size).c_str());
  const std::string dims = describe_dims(*plan_, dims_of(size), data());
  if (!defined) invalid(where + ", which cannot be evaluated for " + dims);
  invalid(where + format(" = %lld, which is not a valid size (%s)", static_cast<ll>(value), dims.c_str()));
}

}  // namespace aotpack::runtime
