#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/sha256.h"

using namespace aotpack::runtime;

namespace {

Bytes as_bytes(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

// Bit by bit, as the definition says.
uint32_t slow_crc32(Bytes data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const uint8_t byte : data) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("SHA-256: the vectors of FIPS 180-4") {
  const auto both = [](const std::string& text) {
    const std::string fast = to_hex(sha256(as_bytes(text)));
    CHECK(fast == to_hex(sha256_portable(as_bytes(text))));
    return fast;
  };
  CHECK(both("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(both("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(both("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(both(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256: the processor's instructions agree with the portable code at every length") {
  std::mt19937 random(1);
  std::vector<uint8_t> data(300);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t length = 0; length <= data.size(); ++length) {
    const Bytes part = Bytes(data).first(length);
    REQUIRE(sha256(part) == sha256_portable(part));
  }
}

TEST_CASE("hex digits: exactly 64, lowercase") {
  Digest digest;
  const std::string hex = to_hex(sha256(as_bytes("abc")));
  REQUIRE(from_hex(hex, &digest));
  CHECK(to_hex(digest) == hex);
  CHECK_FALSE(from_hex(hex.substr(1), &digest));
  CHECK_FALSE(from_hex(hex + "0", &digest));
  CHECK_FALSE(from_hex("B" + hex.substr(1), &digest));
  CHECK_FALSE(from_hex("g" + hex.substr(1), &digest));
}

TEST_CASE("CRC-32: the check value, and the definition at every length and alignment") {
  CHECK(crc32(as_bytes("123456789")) == 0xCBF43926);
  CHECK(crc32({}) == 0);
  std::mt19937 random(2);
  std::vector<uint8_t> data(100);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t end = begin; end <= data.size(); ++end) {
      const Bytes part = Bytes(data).subspan(begin, end - begin);
      REQUIRE(crc32(part) == slow_crc32(part));
    }
  }
}
