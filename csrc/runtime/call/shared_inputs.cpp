#include "call/shared_inputs.h"

#include <algorithm>

#include "base/dltensor.h"
#include "base/sharing.h"
#include "base/status.h"

namespace aotpack::runtime {

bool are_same(const VariantRecord& variant, size_t first, size_t second) noexcept {
  for (const std::vector<uint32_t>& group : variant.same) {
    if (std::binary_search(group.begin(), group.end(), first)) {
      return std::binary_search(group.begin(), group.end(), second);  // an input is in one group
    }
  }
  return false;
}

std::optional<SharedInputs> find_shared(const EntryPlan& plan, const VariantRecord& variant,
                                        const DLTensor* const* inputs) {
  const std::vector<ValueRecord>& values = plan.record().inputs;
  int64_t compact[2][AOTPACK_MAX_RANK];
  const auto view = [&](size_t i, int64_t* buffer) {
    const DLTensor& given = *inputs[i];
    const int64_t* strides = nullptr;
    if (!strides_of(given, buffer, &strides)) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "input '" + values[i].name + "' is larger than the address space");
    }
    return MemoryView{data_of(given), given.shape, strides, given.ndim, plan.inputs()[i].item};
  };
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].mutated) continue;
    const MemoryView written = view(i, compact[0]);
    if (may_overlap_itself(written)) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "input '" + values[i].name + "' is written to, but its strides overlap");
    }
    for (size_t j = 0; j < values.size(); ++j) {
      if (i == j || (values[j].mutated && j < i)) continue;
      if (may_share(written, view(j, compact[1])) && !are_same(variant, i, j)) return SharedInputs{i, j};
    }
  }
  return std::nullopt;
}

std::string describe_shared(const EntryRecord& entry, const SharedInputs& shared) {
  const auto [first, second] = std::minmax(shared.written, shared.other);
  return "inputs '" + entry.inputs[first].name + "' and '" + entry.inputs[second].name +
         "' share memory, but the call writes to '" + entry.inputs[shared.written].name + "'";
}

const char* difference_in(const std::vector<uint32_t>& group, const DLTensor* const* inputs) noexcept {
  for (const uint32_t index : group) {
    if (const char* difference = difference_of(*inputs[group.front()], *inputs[index])) return difference;
  }
  return nullptr;
}

}  // namespace aotpack::runtime
