// The entries of an archive.
#pragma once

#include "manifest/manifest.h"
#include "manifest/node.h"

namespace aotpack::runtime {

// `manifest` has its files and constants. Throws MALFORMED_ARCHIVE.
void read_entry(const Node& node, const Manifest& manifest, EntryRecord* out);

}  // namespace aotpack::runtime
