// A reader of JSON (RFC 8259), of which the manifest's is the canonical form that docs/format.md asks for: ASCII only,
// no white space between tokens, the keys of an object in strictly ascending order (so none twice), one newline at the
// end.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace aotpack::runtime::json {

// kCanonical: that form and nothing else. kAny: any JSON text in UTF-8, but for a key twice in an object.
enum class Form : uint8_t { kCanonical, kAny };

enum class Kind : uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

struct Value {
  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;                 // kInt
  double number = 0;                   // kDouble, also an integer that does not fit int64_t
  std::string_view string;             // kString; UTF-8
  std::vector<Value> items;            // of an array, or the values of an object
  std::vector<std::string_view> keys;  // of an object, beside `items`; in ascending order

  // NULL when an object has no such key. Of a canonical document.
  const Value* find(std::string_view key) const noexcept;
};

// "null", "a string", ...: for messages.
const char* kind_name(Kind kind) noexcept;

// The tree views the text that it was parsed from, which must outlive it.
class Document {
 public:
  static constexpr int kMaxDepth = 128;
  // A value takes a hundred bytes in memory and may take two in the text.
  static constexpr size_t kMaxValues = size_t{1} << 21;

  // Throws MALFORMED_ARCHIVE with the byte at which the text goes wrong.
  explicit Document(std::string_view text, Form form = Form::kCanonical);
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  const Value& root() const noexcept { return root_; }

 private:
  friend class Parser;
  Value root_;
  std::deque<std::string> unescaped_;  // strings that had escapes
};

}  // namespace aotpack::runtime::json
