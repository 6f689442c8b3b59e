// Writes archives as docs/format.md says, independently of the packager, and keeps track of where everything is so that
// tests can break any part.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace aotpack::tests {

// A JSON tree that can be changed in place; dumped in the canonical form.
class Json {
 public:
  Json() : token_("null") {}
  Json(int value) : Json(static_cast<int64_t>(value)) {}
  Json(int64_t value) : token_(std::to_string(value)) {}
  Json(uint64_t value) : token_(std::to_string(value)) {}
  Json(bool value) : token_(value ? "true" : "false") {}
  Json(const char* text) : Json(std::string(text)) {}
  Json(const std::string& text) : token_(quote(text)) {}

  using Members = std::map<std::string, Json>;
  static Json object(Members members) {
    Json json;
    json.kind_ = Kind::kObject;
    json.members_ = std::move(members);
    return json;
  }
  static Json array(std::vector<Json> items) {
    Json json;
    json.kind_ = Kind::kArray;
    json.items_ = std::move(items);
    return json;
  }
  // Any text in the place of a value.
  static Json raw(std::string text) {
    Json json;
    json.token_ = std::move(text);
    return json;
  }

  Json& operator[](const std::string& key) { return members_[key]; }
  Json& operator[](const char* key) { return members_[key]; }
  Json& operator[](size_t index) { return items_.at(index); }
  Json& operator[](int index) { return items_.at(static_cast<size_t>(index)); }
  void erase(const std::string& key) { members_.erase(key); }
  void push(Json item) { items_.push_back(std::move(item)); }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_array() const { return kind_ == Kind::kArray; }
  Members& members() { return members_; }
  std::vector<Json>& items() { return items_; }

  std::string dump() const;

 private:
  enum class Kind { kScalar, kArray, kObject };
  static std::string quote(const std::string& text);

  Kind kind_ = Kind::kScalar;
  std::string token_;
  Members members_;
  std::vector<Json> items_;
};

struct ArchiveFile {
  std::string path;
  std::string bytes;
  uint64_t hole = 0;  // instead of bytes: that many zeros, never written, hashes not computed
};

// Where the parts of an entry lie in the file.
struct EntryLayout {
  uint64_t header = 0;
  uint64_t data = 0;
  uint64_t size = 0;
  uint64_t central = 0;
};

struct Layout {
  std::vector<EntryLayout> entries;  // the first is the manifest
  uint64_t directory = 0;
  uint64_t end = 0;  // the end record (not the ZIP64 one)
  uint64_t size = 0;
};

class ArchiveWriter {
 public:
  Json manifest;                   // "files" is filled in, unless it is already there
  std::vector<ArchiveFile> files;  // in archive order, without the manifest
  std::string comment_prefix = "aotpack:1:";
  std::string manifest_text;  // instead of the manifest's dump, when not empty

  // The whole archive; `layout` may be null. Without holes only.
  std::string build(Layout* layout = nullptr) const;
  // To a file; holes stay holes.
  void write(const std::string& path, Layout* layout = nullptr) const;
};

}  // namespace aotpack::tests
