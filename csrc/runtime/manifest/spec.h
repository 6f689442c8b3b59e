// Checks the pytree specs of an entry. The runtime works on flat tensors and never reads them; those who do (the Python
// package) may then rely on their form.
#pragma once

#include "manifest/node.h"

namespace aotpack::runtime {

// Throws MALFORMED_ARCHIVE. `call_allowed`: at the root of in_spec.
void check_spec(const Node& spec, size_t num_tensors, bool call_allowed);

}  // namespace aotpack::runtime
