// What computes an entry, by target: steps and their modules. All throw MALFORMED_ARCHIVE.
#pragma once

#include <vector>

#include "manifest/manifest.h"
#include "manifest/node.h"

namespace aotpack::runtime {

// The `targets` of a variant, or the `modules` of an earlier format; of an entry whose inputs and outputs are read.
std::vector<ImplementationRecord> read_implementations(const Node& list, const Manifest& manifest,
                                                       const EntryRecord& entry);

// That all steps which read a mutated constant run on one device: it is one tensor in a context. For entries that are
// read.
void check_state(const Node& entries, const Manifest& manifest);

}  // namespace aotpack::runtime
