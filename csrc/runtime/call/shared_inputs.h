// Inputs of a call that share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aotpack/dlpack.h"
#include "model/plan.h"

namespace aotpack::runtime {

// Two inputs that share memory although the call writes to the first.
struct SharedInputs {
  size_t written;
  size_t other;
};

// Memory that a call writes to has no other user: otherwise the result would depend on the order in which a module
// reads and writes. Except for inputs that are one tensor for the variant. Throws INVALID_ARGUMENT where an input that
// is written to shares memory with itself.
std::optional<SharedInputs> find_shared(const EntryPlan& plan, const VariantRecord& variant,
                                        const DLTensor* const* inputs);

// "inputs 'a' and 'b' share memory, but the call writes to 'a'"
std::string describe_shared(const EntryRecord& entry, const SharedInputs& shared);

// Whether two inputs are one tensor for the variant.
bool are_same(const VariantRecord& variant, size_t first, size_t second) noexcept;
// What a group of inputs differs in that are not one tensor (base/dltensor.h); NULL: they are.
const char* difference_in(const std::vector<uint32_t>& group, const DLTensor* const* inputs) noexcept;

}  // namespace aotpack::runtime
