// The entries of an archive.
#ifndef AOTPACK_RUNTIME_MANIFEST_ENTRY_H_
#define AOTPACK_RUNTIME_MANIFEST_ENTRY_H_

#include "manifest.h"
#include "manifest_node.h"

namespace aotpack::runtime {

// `manifest` has its files and constants. Throws MALFORMED_ARCHIVE.
void read_entry(const Node& node, const Manifest& manifest, EntryRecord* out);

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_MANIFEST_ENTRY_H_
