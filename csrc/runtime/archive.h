// An archive that is mapped and verified.
#ifndef AOTPACK_RUNTIME_ARCHIVE_H_
#define AOTPACK_RUNTIME_ARCHIVE_H_

#include <string>

#include "aotpack/aotpack.h"
#include "container.h"
#include "file_map.h"
#include "manifest.h"

namespace aotpack::runtime {

// Immutable and thread-safe. Opening one runs nothing from it.
class Archive {
 public:
  // Throws what docs/format.md names under "Reading", or NOT_FOUND or IO_ERROR; every message starts with the path.
  Archive(const char* path, aotpack_verify verify);

  const std::string& path() const noexcept { return path_; }
  const std::string& manifest_text() const noexcept { return manifest_text_; }
  const Manifest& manifest() const noexcept { return manifest_; }
  // The bytes of files[index] of the manifest, at a multiple of 4096 bytes in memory.
  Bytes file(size_t index) const noexcept { return container_.data(map_.bytes(), index + 1); }
  // Where constants[index] of the manifest lies, read-only.
  const void* constant(size_t index) const noexcept {
    const ConstantRecord& record = manifest_.constants[index];
    return file(record.file).data() + record.offset;
  }
  // A copy of a constant of the model's state whose pages are the file's until they are written to. Empty for a small
  // one, which is better copied.
  PrivateMap copy_on_write(size_t index) const noexcept;

 private:
  void check_manifest_hash();
  void check_files(aotpack_verify verify) const;
  void check_file(size_t index) const;
  void check_constants() const;
  void check_bools() const;

  std::string path_;
  FileMap map_;
  Container container_;
  std::string manifest_text_;
  Manifest manifest_;
};

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_ARCHIVE_H_
