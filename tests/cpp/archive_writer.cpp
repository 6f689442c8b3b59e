#include "archive_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "base/crc32.h"
#include "base/sha256.h"

namespace aotpack::tests {
namespace {

runtime::Bytes as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class Packer {
 public:
  Packer& u16(uint64_t value) { return put(value, 2); }
  Packer& u32(uint64_t value) { return put(value, 4); }
  Packer& u64(uint64_t value) { return put(value, 8); }
  Packer& text(const std::string& value) {
    bytes_ += value;
    return *this;
  }
  Packer& zeros(uint64_t count) {
    bytes_.append(count, '\0');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Packer& put(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

constexpr uint64_t kMax32 = 0xFFFFFFFF;

uint64_t saturate(uint64_t value) { return value >= kMax32 ? kMax32 : value; }

// Pieces of the file by offset.
using Pieces = std::vector<std::pair<uint64_t, std::string>>;

struct Source {
  std::string name;
  const std::string* bytes;
  uint64_t size;
};

Pieces layout_archive(const std::vector<Source>& sources, const std::string& comment, Layout* layout) {
  Pieces pieces;
  uint64_t at = 0;
  std::vector<uint32_t> crcs;
  for (const Source& source : sources) {
    const bool big = source.size >= kMax32;
    const uint64_t fixed = at + 30 + source.name.size() + (big ? 20 : 0) + 4;
    const uint64_t data = (fixed + 4095) / 4096 * 4096;
    const uint32_t crc = source.bytes != nullptr ? runtime::crc32(as_bytes(*source.bytes)) : 0;
    Packer header;
    header.text("PK\x03\x04").u16(big ? 45 : 10).u16(0).u16(0).u16(0).u16(0x21).u32(crc);
    header.u32(saturate(source.size)).u32(saturate(source.size)).u16(source.name.size());
    header.u16((big ? 20 : 0) + 4 + (data - fixed)).text(source.name);
    if (big) header.u16(1).u16(16).u64(source.size).u64(source.size);
    header.u16(0x4150).u16(data - fixed).zeros(data - fixed);
    pieces.emplace_back(at, header.bytes());
    if (source.bytes != nullptr) pieces.emplace_back(data, *source.bytes);
    layout->entries.push_back({at, data, source.size, 0});
    crcs.push_back(crc);
    at = data + source.size;
  }
  layout->directory = at;
  Packer tail;
  for (size_t i = 0; i < sources.size(); ++i) {
    EntryLayout& entry = layout->entries[i];
    const bool big = entry.size >= kMax32;
    const bool far = entry.header >= kMax32;
    const uint64_t payload = (big ? 16 : 0) + (far ? 8 : 0);
    entry.central = at + tail.bytes().size();
    tail.text("PK\x01\x02").u16(45).u16(payload > 0 ? 45 : 10).u16(0).u16(0).u16(0).u16(0x21).u32(crcs[i]);
    tail.u32(saturate(entry.size)).u32(saturate(entry.size)).u16(sources[i].name.size());
    tail.u16(payload > 0 ? payload + 4 : 0).u16(0).u16(0).u16(0).u32(0).u32(saturate(entry.header));
    tail.text(sources[i].name);
    if (payload > 0) tail.u16(1).u16(payload);
    if (big) tail.u64(entry.size).u64(entry.size);
    if (far) tail.u64(entry.header);
  }
  const uint64_t directory_size = tail.bytes().size();
  if (layout->directory >= kMax32 || directory_size >= kMax32) {
    const uint64_t record = at + tail.bytes().size();
    tail.text("PK\x06\x06").u64(44).u16(45).u16(45).u32(0).u32(0).u64(sources.size()).u64(sources.size());
    tail.u64(directory_size).u64(layout->directory);
    tail.text("PK\x06\x07").u32(0).u64(record).u32(1);
  }
  layout->end = at + tail.bytes().size();
  tail.text("PK\x05\x06").u16(0).u16(0).u16(sources.size()).u16(sources.size());
  tail.u32(saturate(directory_size)).u32(saturate(layout->directory)).u16(comment.size()).text(comment);
  pieces.emplace_back(at, tail.bytes());
  layout->size = at + tail.bytes().size();
  return pieces;
}

Pieces pieces_of(const ArchiveWriter& writer, Layout* layout) {
  Json manifest = writer.manifest;
  if (manifest.members().count("files") == 0) {
    Json list = Json::array({});
    for (const ArchiveFile& file : writer.files) {
      list.push(Json::object({{"path", file.path},
                              {"size", file.hole > 0 ? file.hole : static_cast<uint64_t>(file.bytes.size())},
                              {"sha256", runtime::to_hex(runtime::sha256(as_bytes(file.bytes)))}}));
    }
    manifest["files"] = list;
  }
  const std::string text = writer.manifest_text.empty() ? manifest.dump() + "\n" : writer.manifest_text;
  std::vector<Source> sources = {{"manifest.json", &text, text.size()}};
  for (const ArchiveFile& file : writer.files) {
    sources.push_back({file.path, file.hole > 0 ? nullptr : &file.bytes,
                       file.hole > 0 ? file.hole : static_cast<uint64_t>(file.bytes.size())});
  }
  return layout_archive(sources, writer.comment_prefix + runtime::to_hex(runtime::sha256(as_bytes(text))), layout);
}

}  // namespace

std::string Json::quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

std::string Json::dump() const {
  if (kind_ == Kind::kScalar) return token_;
  std::string out(1, kind_ == Kind::kArray ? '[' : '{');
  for (const Json& item : items_) out += (out.size() > 1 ? "," : "") + item.dump();
  for (const auto& [key, value] : members_) out += (out.size() > 1 ? "," : "") + quote(key) + ":" + value.dump();
  return out + (kind_ == Kind::kArray ? "]" : "}");
}

std::string ArchiveWriter::build(Layout* layout) const {
  Layout own;
  Layout& result = layout != nullptr ? *layout : own;
  result = {};
  const Pieces pieces = pieces_of(*this, &result);
  std::string bytes(result.size, '\0');
  for (const auto& [offset, piece] : pieces) std::memcpy(&bytes[offset], piece.data(), piece.size());
  return bytes;
}

void ArchiveWriter::write(const std::string& path, Layout* layout) const {
  Layout own;
  Layout& result = layout != nullptr ? *layout : own;
  result = {};
  const Pieces pieces = pieces_of(*this, &result);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) throw std::runtime_error("cannot write " + path);
  bool good = ::ftruncate(fd, static_cast<off_t>(result.size)) == 0;
  for (const auto& [offset, piece] : pieces) {
    good = good &&
           ::pwrite(fd, piece.data(), piece.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(piece.size());
  }
  ::close(fd);
  if (!good) throw std::runtime_error("cannot write " + path);
}

}  // namespace aotpack::tests
