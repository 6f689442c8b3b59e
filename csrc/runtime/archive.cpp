#include "archive.h"

#include <algorithm>

#include "bools.h"
#include "crc32.h"
#include "status.h"

namespace aotpack::runtime {
namespace {

template <typename Body>
auto with_path(const char* path, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), std::string(path) + ": " + error.message());
  }
}

// A mapping costs system calls and faults; below some pages a copy is cheaper.
bool is_worth_mapping(const ConstantRecord& record) { return record.mutated && record.nbytes >= size_t{64} << 10; }

[[noreturn]] void tampered(const std::string& name, const char* what) {
  throw Error(AOTPACK_TAMPERED_ARCHIVE, name + ": its content does not match its " + what);
}

}  // namespace

Archive::Archive(const char* path, aotpack_verify verify)
    : path_(path), map_(with_path(path, [&] { return FileMap(path); })) {
  with_path(path, [&] {
    container_ = read_container(map_.bytes());
    // A copy: zero-terminated for the C interface, and what is hashed is what is parsed even if the file changes.
    const Bytes text = container_.data(map_.bytes(), 0);
    manifest_text_.assign(reinterpret_cast<const char*>(text.data()), text.size());
    check_manifest_hash();
    manifest_ = parse_manifest(manifest_text_);
    check_files(verify);
    if (verify == AOTPACK_VERIFY_FULL) {
      check_padding(map_.bytes(), container_);
      check_constants();
    }
    check_bools();
    const auto& constants = manifest_.constants;
    if (std::none_of(constants.begin(), constants.end(), is_worth_mapping)) map_.close_descriptor();
  });
}

PrivateMap Archive::copy_on_write(size_t index) const noexcept {
  const ConstantRecord& record = manifest_.constants[index];
  if (!is_worth_mapping(record)) return {};
  const uint64_t start = container_.entries[record.file + 1].data_offset;
  return map_.map_private(start + record.offset, record.nbytes);
}

void Archive::check_manifest_hash() {
  const Bytes text(reinterpret_cast<const uint8_t*>(manifest_text_.data()), manifest_text_.size());
  if (sha256(text) != container_.manifest_digest) tampered("manifest.json", "SHA-256 in the archive's comment");
  if (crc32(text) != container_.entries[0].crc) tampered("manifest.json", "CRC-32");
}

void Archive::check_files(aotpack_verify verify) const {
  const auto& files = manifest_.files;
  if (files.size() != container_.entries.size() - 1) {
    fail(AOTPACK_MALFORMED_ARCHIVE, "the manifest names %zu files, the container has %zu", files.size(),
         container_.entries.size() - 1);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const ContainerEntry& entry = container_.entries[i + 1];
    if (files[i].path != entry.name) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "file %zu is '%s' in the manifest, '%s' in the container", i,
           files[i].path.c_str(), entry.name.c_str());
    }
    if (files[i].size != entry.size) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "%s: %llu bytes by the manifest, %llu in the container", entry.name.c_str(),
           static_cast<unsigned long long>(files[i].size), static_cast<unsigned long long>(entry.size));
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const bool executable = files[i].path.compare(0, 8, "modules/") == 0;
    if (executable || verify == AOTPACK_VERIFY_FULL) check_file(i);
  }
}

void Archive::check_file(size_t index) const {
  const FileRecord& record = manifest_.files[index];
  if (sha256(file(index)) != record.digest) tampered(record.path, "SHA-256 in the manifest");
  if (crc32(file(index)) != container_.entries[index + 1].crc) tampered(record.path, "CRC-32");
}

void Archive::check_constants() const {
  for (const ConstantRecord& constant : manifest_.constants) {
    if (sha256(file(constant.file).subspan(constant.offset, constant.nbytes)) != constant.digest) {
      tampered("constant '" + constant.name + "'", "SHA-256 in the manifest");
    }
  }
}

// Always: a module may read outside of its tensors by a bool that is neither 0 nor 1. It costs reading the constants
// that are bools, which are few.
void Archive::check_bools() const {
  for (const ConstantRecord& constant : manifest_.constants) {
    if (!constant.dtype->is_bool()) continue;
    if (!are_bools(file(constant.file).data() + constant.offset, constant.nbytes)) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "constant '%s' is bool, but has bytes other than 0 and 1", constant.name.c_str());
    }
  }
}

}  // namespace aotpack::runtime
