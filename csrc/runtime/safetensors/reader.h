// Reads `.safetensors` files, strictly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "host/file_map.h"
#include "manifest/json.h"
#include "safetensors/format.h"

namespace aotpack::runtime {

// A tensor of a file, row-major.
struct StoredTensor {
  const DType* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of its bytes, counted from the start of the data
  uint64_t end = 0;
};

// One file, open for reading. The whole header is validated before a tensor can be had: every byte of the data belongs
// to exactly one tensor. Immutable.
class SafetensorsReader {
 public:
  // Throws NOT_FOUND, IO_ERROR, or INVALID_ARGUMENT for a malformed file; every message starts with the path.
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const noexcept { return tensors_; }
  const Metadata& metadata() const noexcept { return metadata_; }
  // The bytes of a tensor. No page of the file becomes part of the process: a file that is written to meanwhile is an
  // error or a mixture, and never a fault. Throws as the constructor.
  void read(const StoredTensor& tensor, void* out) const;

 private:
  [[noreturn]] void malformed(const std::string& what) const;
  void read_bytes(uint64_t offset, void* out, uint64_t bytes) const;
  std::string read_header();
  void parse(const std::string& text);
  void add_metadata(const json::Value& value);
  void add_tensor(std::string_view name, const json::Value& value);
  void check_data() const;

  std::string path_;
  FileMap file_;
  uint64_t start_ = 0;  // of the data
  std::map<std::string, StoredTensor> tensors_;
  Metadata metadata_;
};

}  // namespace aotpack::runtime
