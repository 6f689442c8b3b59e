// Fields that several objects of the manifest have. All throw MALFORMED_ARCHIVE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "manifest/manifest.h"
#include "manifest/node.h"

namespace aotpack::runtime {

// Names that have to be unique; views of strings that stay where they are.
class Unique {
 public:
  void add(const Node& node, std::string_view name) {
    if (!seen_.insert(name).second) node.error("'" + std::string(name) + "' is there twice");
  }

 private:
  std::unordered_set<std::string_view> seen_;
};

const DType* read_dtype(const Node& node);

// The length of a list that has an item per dimension.
size_t read_rank(const Node& list);
std::vector<int64_t> read_sizes(const Node& list);

// An index into `files` of a file below `folder`.
uint32_t read_file_index(const Node& node, const Manifest& manifest, std::string_view folder);

// The range [offset, offset + nbytes) of a file.
void check_byte_range(const Node& node, const FileRecord& file, uint64_t offset, uint64_t nbytes);

// An index into `constants`.
uint32_t read_constant_index(const Node& node, const Manifest& manifest);

// An index into `devices`, or null: kHostDevice.
uint32_t read_device(const Node& node, const Manifest& manifest);

}  // namespace aotpack::runtime
