// Reads `weights` of the manifest: what an update brings and what is computed from it.
#pragma once

#include "manifest/manifest.h"
#include "manifest/node.h"

namespace aotpack::runtime {

// Throws MALFORMED_ARCHIVE. Files, constants and entries of `out` are already there; `constants` is the list in the
// manifest.
void read_weights(const Node& node, const Node& constants, Manifest* out);

}  // namespace aotpack::runtime
