// Forwards and their backwards: pairs of entries that go together by name and signature (docs/autograd.md).
#pragma once

#include "manifest/manifest.h"
#include "manifest/node.h"

namespace aotpack::runtime {

// Fills in EntryRecord::backward. `entries` was read and checked. Entries that only look alike have none.
void find_backwards(const Node& entries, Manifest* manifest);

}  // namespace aotpack::runtime
