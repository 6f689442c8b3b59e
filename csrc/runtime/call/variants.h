// Which variant of an entry a call takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aotpack/dlpack.h"
#include "model/plan.h"

namespace aotpack::runtime {

// The first variant whose guards and checks all hold for these values of the dims, whose inputs that must be one tensor
// are, and for which an input that the call writes to shares memory with no other one. A check that cannot be evaluated
// does not hold; checks are looked at only where all guards hold. Throws INVALID_ARGUMENT when no variant fits: the
// message says for each one why.
size_t choose_variant(const EntryPlan& plan, const int64_t* dims, const DLTensor* const* inputs);

}  // namespace aotpack::runtime
