// Reads `weights` of the manifest: what an update brings and what is computed from it.
#ifndef AOTPACK_RUNTIME_MANIFEST_WEIGHTS_H_
#define AOTPACK_RUNTIME_MANIFEST_WEIGHTS_H_

#include "manifest.h"
#include "manifest_node.h"

namespace aotpack::runtime {

// Throws MALFORMED_ARCHIVE. Files, constants and entries of `out` are already there.
void read_weights(const Node& node, Manifest* out);

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_MANIFEST_WEIGHTS_H_
