#include "model/describe.h"

#include "base/status.h"

namespace aotpack::runtime {
namespace {

using ll = long long;

}  // namespace

std::string describe_size(const EntryRecord& entry, const SizeRecord& size) {
  if (size.kind == SizeRecord::Kind::kStatic) return format("%lld", static_cast<ll>(size.size));
  if (size.kind != SizeRecord::Kind::kDim) return size.text;
  std::string text = size.mul != 1 ? format("%lld*", static_cast<ll>(size.mul)) : "";
  text += entry.dims[size.dim].name;
  if (size.add > 0) text += format(" + %lld", static_cast<ll>(size.add));
  if (size.add < 0) text += format(" - %llu", -static_cast<unsigned long long>(size.add));
  return text;
}

std::string describe_shape(const EntryRecord& entry, const ValueRecord& value) {
  std::string text = "[";
  for (const SizeRecord& size : value.shape) text += (text.size() > 1 ? ", " : "") + describe_size(entry, size);
  return text + "]";
}

std::string describe_range(int64_t min, int64_t max) {
  if (min == max) return format("must be %lld", static_cast<ll>(min));
  if (max == INT64_MAX) return format("must be at least %lld", static_cast<ll>(min));
  return format("must be in [%lld, %lld]", static_cast<ll>(min), static_cast<ll>(max));
}

std::string describe_violation(int64_t value, int64_t min, int64_t max, int64_t multiple_of) {
  if (value < min || value > max) return describe_range(min, max);
  if (value % multiple_of != 0) return format("must be a multiple of %lld", static_cast<ll>(multiple_of));
  return "";
}

std::string describe_guard(const EntryRecord& entry, const GuardRecord& guard) {
  std::string text = "'" + entry.dims[guard.dim].name + "'";
  if (guard.min == guard.max) return text + format(" = %lld", static_cast<ll>(guard.min));
  if (guard.multiple_of != 1) text += format(" a multiple of %lld", static_cast<ll>(guard.multiple_of));
  if (guard.max == INT64_MAX) return text + format(" >= %lld", static_cast<ll>(guard.min));
  return text + format(" in [%lld, %lld]", static_cast<ll>(guard.min), static_cast<ll>(guard.max));
}

std::string describe_same(const EntryRecord& entry, const std::vector<uint32_t>& group) {
  std::string text;
  for (const uint32_t index : group) text += (text.empty() ? "'" : " is '") + entry.inputs[index].name + "'";
  return text;
}

std::string describe_same(const EntryRecord& entry, const std::vector<std::vector<uint32_t>>& groups) {
  std::string text;
  for (const std::vector<uint32_t>& group : groups) text += (text.empty() ? "" : ", ") + describe_same(entry, group);
  return text;
}

std::vector<uint32_t> dims_of(const SizeRecord& size) {
  if (size.kind == SizeRecord::Kind::kDim) return {size.dim};
  return size.code.dims();
}

std::string describe_dim(const EntryPlan& plan, uint32_t dim, const int64_t* dims) {
  const EntryRecord& entry = plan.record();
  const std::string text = format("'%s' = %lld", entry.dims[dim].name.c_str(), static_cast<ll>(dims[dim]));
  for (const DimSource& source : plan.dim_sources()) {
    if (source.dim == dim) return text + " by input '" + entry.inputs[source.input].name + "'";
  }
  return text;
}

std::string describe_dims(const EntryPlan& plan, const std::vector<uint32_t>& which, const int64_t* dims) {
  std::string text;
  for (const uint32_t dim : which) text += (text.empty() ? "" : ", ") + describe_dim(plan, dim, dims);
  return text;
}

}  // namespace aotpack::runtime
