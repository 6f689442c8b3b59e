// What the signature of an entry is made of: dims, sizes, codes, inputs and outputs. All throw MALFORMED_ARCHIVE.
#pragma once

#include <vector>

#include "manifest/manifest.h"
#include "manifest/node.h"

namespace aotpack::runtime {

void read_dims(const Node& list, EntryRecord* out);

// Inputs or outputs, of an entry whose dims are read.
std::vector<ValueRecord> read_values(const Node& list, const Manifest& manifest, const EntryRecord& entry, bool output);
// What steps hand to each other.
std::vector<ValueRecord> read_intermediates(const Node& list, const Manifest& manifest, const EntryRecord& entry);

GuardRecord read_guard(const Node& node, const EntryRecord& entry);

CheckRecord read_check(const Node& node, const EntryRecord& entry);

// That every dim that anything depends on has a value in a call, by some input. For an entry that is read otherwise.
void check_determined(const Node& node, const EntryRecord& entry);

}  // namespace aotpack::runtime
