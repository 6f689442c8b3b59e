// Which variant of an entry a call takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/plan.h"

namespace aotpack::runtime {

// The first variant whose guards and checks all hold for these values of the dims. A check that cannot be evaluated
// does not hold; checks are looked at only where all guards hold. Throws INVALID_ARGUMENT when no variant fits: the
// message says for each one why.
size_t choose_variant(const EntryPlan& plan, const int64_t* dims);

}  // namespace aotpack::runtime
