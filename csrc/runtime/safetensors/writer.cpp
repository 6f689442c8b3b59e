#include "safetensors/writer.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/status.h"
#include "base/utf8.h"
#include "host/new_file.h"

namespace aotpack::runtime {
namespace {

void add_string(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      *out += format("\\u%04x", static_cast<unsigned>(c));
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

void add_metadata(const Metadata& metadata, std::string* out) {
  add_string(kSafetensorsMetadata, out);
  *out += ":{";
  for (const auto& [name, text] : metadata) {
    if (out->back() != '{') out->push_back(',');
    add_string(name, out);
    out->push_back(':');
    add_string(text, out);
  }
  out->push_back('}');
}

uint64_t bytes_of(const TensorToStore& tensor) {
  uint64_t bytes = tensor.dtype->size;
  for (const int64_t size : *tensor.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

void add_tensor(const TensorToStore& tensor, uint64_t begin, uint64_t end, std::string* out) {
  add_string(*tensor.name, out);
  *out += std::string(":{\"dtype\":\"") + safetensors_name(*tensor.dtype) + "\",\"shape\":[";
  for (size_t i = 0; i < tensor.shape->size(); ++i) *out += (i > 0 ? "," : "") + std::to_string((*tensor.shape)[i]);
  *out += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

void check(const std::string& path, const TensorToStore& tensor) {
  if (safetensors_name(*tensor.dtype) == nullptr) {
    fail(AOTPACK_INVALID_ARGUMENT, "%s: '%s' is %s, which safetensors files cannot hold", path.c_str(),
         tensor.name->c_str(), tensor.dtype->name);
  }
  if (*tensor.name == kSafetensorsMetadata || invalid_utf8(*tensor.name) != tensor.name->size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "%s: '%s' cannot be the name of a tensor in a safetensors file", path.c_str(),
         tensor.name->c_str());
  }
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors, const Metadata& metadata,
                       const std::function<const void*(size_t index)>& value) {
  for (const TensorToStore& tensor : tensors) check(path, tensor);
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].dtype->size > tensors[b].dtype->size; });
  std::string header(sizeof(uint64_t), '\0');
  header.push_back('{');
  add_metadata(metadata, &header);
  uint64_t end = 0;
  for (const size_t i : order) {
    const uint64_t begin = end;
    end += bytes_of(tensors[i]);
    header.push_back(',');
    add_tensor(tensors[i], begin, end, &header);
  }
  header.push_back('}');
  header.append((8 - header.size() % 8) % 8, ' ');  // data begin at a multiple of 8
  const uint64_t length = header.size() - sizeof length;
  if (length > kMaxSafetensorsHeader) {
    fail(AOTPACK_INVALID_ARGUMENT, "%s: %zu tensors need a header of more than 100 MB", path.c_str(), tensors.size());
  }
  std::memcpy(header.data(), &length, sizeof length);
  NewFile file(path);
  file.write(header.data(), header.size());
  for (const size_t i : order) {
    const uint64_t bytes = bytes_of(tensors[i]);
    const void* data = value(i);
    if (bytes > 0) file.write(data, static_cast<size_t>(bytes));
  }
  file.commit();
}

}  // namespace aotpack::runtime
