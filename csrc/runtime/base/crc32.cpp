// Slicing-by-8: M. E. Kounavis, F. L. Berry, "A Systematic Approach to Building High Performance Software-based CRC
// Generators", 2005.
#include "base/crc32.h"

#include <array>

namespace aotpack::runtime {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][i] = value;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t slice = 1; slice < 8; ++slice) {
      const uint32_t before = tables[slice - 1][i];
      tables[slice][i] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(Bytes data, uint32_t crc) noexcept {
  crc = ~crc;
  const uint8_t* at = data.data();
  size_t left = data.size();
  for (; left >= 8; at += 8, left -= 8) {
    const uint32_t low = load<uint32_t>(at) ^ crc;
    const uint32_t high = load<uint32_t>(at + 4);
    crc = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^ kTables[5][(low >> 16) & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFF] ^ kTables[2][(high >> 8) & 0xFF] ^
          kTables[1][(high >> 16) & 0xFF] ^ kTables[0][high >> 24];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

}  // namespace aotpack::runtime
