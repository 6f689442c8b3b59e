#include "manifest/fields.h"

#include "aotpack/module_abi.h"
#include "base/bytes.h"
#include "base/status.h"

namespace aotpack::runtime {

const DType* read_dtype(const Node& node) {
  const DType* type = find_dtype(node.string());
  if (type == nullptr) node.error("unknown dtype '" + std::string(node.string()) + "'");
  return type;
}

size_t read_rank(const Node& list) {
  const size_t rank = list.size();
  if (rank > AOTPACK_MAX_RANK) list.error(format("%zu dimensions; at most %d", rank, AOTPACK_MAX_RANK));
  return rank;
}

std::vector<int64_t> read_sizes(const Node& list) {
  std::vector<int64_t> sizes(read_rank(list));
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = list.at(i).integer(0);
  return sizes;
}

uint32_t read_file_index(const Node& node, const Manifest& manifest, std::string_view folder) {
  const int64_t index = node.integer(0);
  if (static_cast<uint64_t>(index) >= manifest.files.size()) node.error("there is no such file");
  const std::string& path = manifest.files[static_cast<size_t>(index)].path;
  if (path.compare(0, folder.size(), folder) != 0) {
    node.error("file '" + path + "' is not below " + std::string(folder));
  }
  return static_cast<uint32_t>(index);
}

void check_byte_range(const Node& node, const FileRecord& file, uint64_t offset, uint64_t nbytes) {
  uint64_t end;
  if (!checked_add(offset, nbytes, &end) || end > file.size) {
    node.error(format("bytes %llu and the %llu that follow are not all in '%s', which has %llu",
                      static_cast<unsigned long long>(offset), static_cast<unsigned long long>(nbytes),
                      file.path.c_str(), static_cast<unsigned long long>(file.size)));
  }
}

uint32_t read_constant_index(const Node& node, const Manifest& manifest) {
  const int64_t index = node.integer(0);
  if (static_cast<uint64_t>(index) >= manifest.constants.size()) node.error("there is no such constant");
  return static_cast<uint32_t>(index);
}

uint32_t read_device(const Node& node, const Manifest& manifest) {
  if (node.kind() == json::Kind::kNull) return kHostDevice;
  const int64_t index = node.integer(0);
  if (static_cast<uint64_t>(index) >= manifest.devices.size()) node.error("there is no such device");
  return static_cast<uint32_t>(index);
}

}  // namespace aotpack::runtime
