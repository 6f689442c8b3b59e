// The ZIP container of an archive: its structure, checked byte by byte against docs/format.md.
#pragma once

#include <string>
#include <vector>

#include "base/sha256.h"
#include "host/source.h"

namespace aotpack::runtime {

struct ContainerEntry {
  std::string name;
  uint64_t padding_offset = 0;  // zero bytes up to the data
  uint64_t data_offset = 0;     // a multiple of 4096
  uint64_t size = 0;
  uint32_t crc = 0;
};

struct Container {
  std::vector<ContainerEntry> entries;  // the first is manifest.json
  Digest manifest_digest{};

  // Of a file whose structure was checked.
  Bytes data(Bytes file, size_t entry) const noexcept {
    return file.subspan(entries[entry].data_offset, entries[entry].size);
  }
};

// Checks every byte of every header but the padding, and that the CRCs agree with each other; no data is read, and
// nothing twice. Throws FOREIGN_, TRUNCATED_, MALFORMED_ARCHIVE or UNSUPPORTED_VERSION, or what the source throws.
Container read_container(const Source& file);
inline Container read_container(Bytes file) { return read_container(MemorySource(file)); }

// Throws MALFORMED_ARCHIVE unless all padding is zero.
void check_padding(const Source& file, const Container& container);
inline void check_padding(Bytes file, const Container& container) { check_padding(MemorySource(file), container); }

}  // namespace aotpack::runtime
