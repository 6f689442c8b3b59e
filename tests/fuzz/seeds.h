// Archives that fuzzers start from.
#pragma once

#include <string>
#include <vector>

#include "archive_writer.h"
#include "json_tree.h"

namespace aotpack::fuzz {

// Together they have every feature of the format: dims, derived sizes, numbers, checks, variants, state, updatable
// weights, nested structures, goldens. Their modules are `modules/module.c`.
std::vector<tests::ArchiveWriter> seeds();

// Changes bytes of headers, or the length.
void damage(std::string& bytes, const tests::Layout& layout);

}  // namespace aotpack::fuzz
