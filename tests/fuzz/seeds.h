// Archives that fuzzers start from.
#ifndef AOTPACK_TESTS_FUZZ_SEEDS_H_
#define AOTPACK_TESTS_FUZZ_SEEDS_H_

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

#endif  // AOTPACK_TESTS_FUZZ_SEEDS_H_
