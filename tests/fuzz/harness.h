// Modules that the fuzzer plays itself: what they answer about themselves, and what they do with a call.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "aotpack/aotpack.h"
#include "json_tree.h"

namespace aotpack::fuzz {

// The call that a module is to answer, so that its outputs mostly have the sizes that the manifest promises.
struct CallInProgress {
  aotpack_model* model = nullptr;
  size_t entry = 0;
  std::map<std::string, int64_t> dims;
};
extern CallInProgress call_in_progress;

// Makes the modules' tables fit a manifest.
void set_tables(Json& manifest);

// Reads all bytes of a tensor, as a user would.
void read_all(const DLTensor& tensor);

}  // namespace aotpack::fuzz
