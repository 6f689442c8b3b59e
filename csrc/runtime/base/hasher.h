// The two hashes of a file of an archive, at once and piece by piece.
#pragma once

#include "base/crc32.h"
#include "base/sha256.h"

namespace aotpack::runtime {

struct Hashes {
  Digest sha256;
  uint32_t crc = 0;
};

class Hasher {
 public:
  void add(Bytes bytes) noexcept {
    sha256_.add(bytes);
    crc_ = crc32(bytes, crc_);
  }
  Hashes finish() noexcept { return {sha256_.finish(), crc_}; }

 private:
  Sha256 sha256_;
  uint32_t crc_ = 0;
};

}  // namespace aotpack::runtime
