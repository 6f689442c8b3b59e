#include "base/utf8.h"

#include <cstdint>

namespace aotpack::runtime {

size_t invalid_utf8(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    const auto first = static_cast<uint8_t>(text[at]);
    if (first < 0x80) {
      ++at;
      continue;
    }
    const size_t more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (first < 0xC2 || first > 0xF4 || text.size() - at <= more) return at;
    // What the second byte may be keeps overlong forms, surrogates and points beyond the last one out.
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    const auto second = static_cast<uint8_t>(text[at + 1]);
    if (second < low || second > high) return at;
    for (size_t i = 2; i <= more; ++i) {
      if ((static_cast<uint8_t>(text[at + i]) & 0xC0) != 0x80) return at;
    }
    at += more + 1;
  }
  return at;
}

}  // namespace aotpack::runtime
