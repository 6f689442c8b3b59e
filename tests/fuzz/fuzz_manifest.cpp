// JSON and manifests: any text is parsed or refused as malformed. Half of the texts are bytes, half are manifests with
// changes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/status.h"
#include "choices.h"
#include "json_tree.h"
#include "manifest/json.h"
#include "manifest/manifest.h"
#include "seeds.h"

using namespace aotpack;

namespace {

// A text of pieces that JSON is made of.
std::string pieces() {
  static const char* const kPieces[] = {
      "{",       "}",      "[",       "]",    ",",          ":",           "\"",
      "\"a\"",   "\"b\":", "1",       "-",    "0",          "e",           ".",
      "5",       "true",   "false",   "null", "\\",         "\\u00e9",     "\\ud83d",
      "\\ude00", "\n",     " ",       "\x7f", "\"code\":[", "{\"float\":", "9223372036854775807",
      "1e400",   "-0.0",   "\xc3\xa9"};
  std::string text;
  const size_t count = fuzz::pick(60);
  for (size_t i = 0; i < count; ++i) {
    if (fuzz::chance(5)) {
      text += static_cast<char>(fuzz::pick(256));
    } else {
      const char* piece = fuzz::one_of(kPieces);
      text.append(piece, fuzz::chance(97) ? std::char_traits<char>::length(piece) : 1);
    }
  }
  if (fuzz::chance(3)) {
    text = std::string(fuzz::pick(300), fuzz::chance(50) ? '[' : '{') + text;
  }
  return text + "\n";
}

// Values of the tree, so that a view that reaches too far is read.
uint64_t sum(const runtime::json::Value& value) {
  uint64_t total = static_cast<uint64_t>(value.kind) + value.string.size();
  for (const char c : value.string) {
    total += static_cast<unsigned char>(c);
  }
  for (const std::string_view key : value.keys) {
    total += key.empty() ? 0 : static_cast<unsigned char>(key.back());
  }
  for (const runtime::json::Value& item : value.items) {
    total += sum(item);
  }
  return total;
}

void parse(const std::string& given) {
  // A copy without a byte to spare.
  const std::string_view text(given);
  char* exact = static_cast<char*>(malloc(text.size()));
  text.copy(exact, text.size());
  const std::string_view view(exact, text.size());
  try {
    const runtime::json::Document document(view);
    volatile uint64_t used = sum(document.root());
    (void)used;
  } catch (const runtime::Error& error) {
    if (error.code() != AOTPACK_MALFORMED_ARCHIVE) {
      abort();
    }
  }
  try {
    runtime::parse_manifest(view);
  } catch (const runtime::Error& error) {
    if (error.code() != AOTPACK_MALFORMED_ARCHIVE && error.code() != AOTPACK_UNSUPPORTED_VERSION) {
      abort();
    }
  }
  free(exact);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::start(data, size);
  if (fuzz::chance(40)) {
    parse(pieces());
    return 0;
  }
  static const std::vector<tests::ArchiveWriter> seeds = fuzz::seeds();
  fuzz::Json manifest = seeds[fuzz::pick(seeds.size())].manifest;
  manifest["files"] = fuzz::list({});
  for (int i = 0; i < 6; ++i) {
    manifest["files"].push(fuzz::object({{"path", "weights/" + std::to_string(i)},
                                         {"size", 1 << 20},
                                         {"sha256", std::string(64, static_cast<char>('0' + i))}}));
  }
  for (size_t changes = fuzz::pick(4); changes > 0; --changes) {
    fuzz::mutate(manifest);
  }
  std::string text = manifest.dump() + "\n";
  if (fuzz::chance(20)) {
    text[fuzz::pick(text.size())] = static_cast<char>(fuzz::pick(256));
  }
  if (fuzz::chance(5)) {
    text.resize(fuzz::pick(text.size()));
  }
  parse(text);
  return 0;
}
