// Facts about the process and the machine.
#pragma once

#include <cstdint>

namespace aotpack::runtime {

// Cores that this process may use, by its affinity and the quotas of its control groups, which are read once; at
// least 1.
int32_t usable_cores();

uint64_t random_seed() noexcept;

}  // namespace aotpack::runtime
