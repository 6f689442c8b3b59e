// An archive that is mapped and verified.
#pragma once

#include <string>
#include <vector>

#include "aotpack/aotpack.h"
#include "archive/container.h"
#include "host/file_map.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// Immutable and thread-safe. Opening one runs nothing from it.
class Archive {
 public:
  // Throws what docs/format.md names under "Reading", or NOT_FOUND, IO_ERROR or OUT_OF_MEMORY; every message starts
  // with the path. Executable files are checked except for their hashes, which code() and check_code() check.
  Archive(const char* path, aotpack_verify verify, FileMap::Mode mode);

  // The bytes of files[index] of the manifest, below modules/, in memory that cannot change, verified there. Throws
  // TAMPERED_ARCHIVE or what reading throws.
  SealedFile code(size_t index) const;
  // A copy of files[index], verified. Throws TAMPERED_ARCHIVE, what reading throws, or MALFORMED_ARCHIVE for a file
  // that is larger than any manifest.
  std::string text(size_t index) const;
  // That the files below modules/ are what the manifest says, but for those that code() has verified.
  void check_code(const std::vector<bool>& verified) const;
  // After the last of these.
  void end_loading() noexcept;

  const std::string& path() const noexcept { return path_; }
  const std::string& manifest_text() const noexcept { return manifest_text_; }
  const Manifest& manifest() const noexcept { return manifest_; }
  // The bytes of files[index] of the manifest, at a multiple of 4096 bytes in memory.
  Bytes file(size_t index) const noexcept { return container_.data(map_.bytes(), index + 1); }
  // Where constants[index] of the manifest lies, read-only. Not of one that is absent, nor is there a copy of that.
  const void* constant(size_t index) const noexcept {
    const ConstantRecord& record = manifest_.constants[index];
    return file(record.file).data() + record.offset;
  }
  // A copy of a constant of the model's state whose pages are the file's until they are written to. Empty for a small
  // one, which is better copied.
  Mapping copy_on_write(size_t index) const noexcept;

 private:
  // In the file.
  uint64_t offset_of(const ConstantRecord& record) const noexcept {
    return container_.entries[record.file + 1].data_offset + record.offset;
  }
  void check_manifest_hash();
  void check_files() const;
  void check_file(size_t index) const;
  void check_hashes(size_t index, const Hashes& hashes) const;
  void check_ranges() const;
  void check_constants() const;
  void check_bools() const;

  std::string path_;
  aotpack_verify verify_;
  FileMap map_;
  Container container_;
  std::string manifest_text_;
  Manifest manifest_;
};

}  // namespace aotpack::runtime
