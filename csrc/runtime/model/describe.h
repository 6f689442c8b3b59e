// Sizes, dims and conditions in the user's words, for messages.
#pragma once

#include <string>
#include <vector>

#include "model/plan.h"

namespace aotpack::runtime {

// "2*batch + 1"
std::string describe_size(const EntryRecord& entry, const SizeRecord& size);
// "[batch, 3, 2*length + 1]"
std::string describe_shape(const EntryRecord& entry, const ValueRecord& value);
// "must be at least 2", "must be in [1, 64]", "must be 4"
std::string describe_range(int64_t min, int64_t max);
// What a value violates: its range, as above, or "must be a multiple of 8". "" when it violates neither.
std::string describe_violation(int64_t value, int64_t min, int64_t max, int64_t multiple_of);
// "'batch' in [1, 8]", "'batch' a multiple of 8 in [8, 64]"
std::string describe_guard(const EntryRecord& entry, const GuardRecord& guard);
// "'a' is 'b'": inputs that must be one tensor
std::string describe_same(const EntryRecord& entry, const std::vector<uint32_t>& group);
// The same of several, with commas.
std::string describe_same(const EntryRecord& entry, const std::vector<std::vector<uint32_t>>& groups);

// The dims that a size depends on.
std::vector<uint32_t> dims_of(const SizeRecord& size);

// "'batch' = 4 by input 'ids'". `dims` are the values of all dims.
std::string describe_dim(const EntryPlan& plan, uint32_t dim, const int64_t* dims);
// The same of several, with commas.
std::string describe_dims(const EntryPlan& plan, const std::vector<uint32_t>& which, const int64_t* dims);

}  // namespace aotpack::runtime
