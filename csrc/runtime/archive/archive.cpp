#include "archive/archive.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/crc32.h"
#include "base/status.h"

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

// Far above what models need: a large one has some megabytes.
constexpr uint64_t kMaxManifest = uint64_t{64} << 20;

// How often the file's bytes are read at most for the sake of constants.
constexpr uint64_t kMaxReads = 4;

[[noreturn]] void malformed(const std::string& what) { throw Error(AOTPACK_MALFORMED_ARCHIVE, what); }

[[noreturn]] void tampered(const std::string& name, const char* what) {
  throw Error(AOTPACK_TAMPERED_ARCHIVE, name + ": its content does not match its " + what);
}

}  // namespace

Archive::Archive(const char* path, aotpack_verify verify, FileMap::Mode mode)
    : path_(path), verify_(verify), map_(with_path(path, [&] { return FileMap(path, mode); })) {
  with_path(path, [&] {
    container_ = read_container(map_);
    // A copy: zero-terminated for the C interface, and what is hashed is what is parsed even if the file changes.
    const ContainerEntry& entry = container_.entries[0];
    if (entry.size > kMaxManifest) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "manifest.json has %llu bytes; at most %llu are allowed",
           static_cast<unsigned long long>(entry.size), static_cast<unsigned long long>(kMaxManifest));
    }
    manifest_text_.resize(entry.size);
    map_.read(entry.data_offset, {reinterpret_cast<uint8_t*>(manifest_text_.data()), manifest_text_.size()});
    check_manifest_hash();
    manifest_ = parse_manifest(manifest_text_);
    check_files();
    check_ranges();
    if (verify == AOTPACK_VERIFY_FULL) {
      for (size_t i = 0; i < manifest_.files.size(); ++i) check_file(i);
      check_padding(map_, container_);
      check_constants();
    }
    check_bools();
  });
}

SealedFile Archive::code(size_t index) const {
  return with_path(path_.c_str(), [&] {
    const ContainerEntry& entry = container_.entries[index + 1];
    SealedFile code = map_.code(entry.data_offset, entry.size);
    check_hashes(index, code.hashes());
    return code;
  });
}

std::string Archive::text(size_t index) const {
  return with_path(path_.c_str(), [&] {
    const ContainerEntry& entry = container_.entries[index + 1];
    if (entry.size > kMaxManifest) malformed(entry.name + " is too large");
    std::string text(entry.size, 0);
    map_.read(entry.data_offset, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
    // Of the copy, which stays what it is if the file changes.
    const Bytes bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    check_hashes(index, {sha256(bytes), crc32(bytes)});
    return text;
  });
}

void Archive::check_code(const std::vector<bool>& verified) const {
  if (verify_ == AOTPACK_VERIFY_FULL) return;  // with all other files
  with_path(path_.c_str(), [&] {
    for (size_t i = 0; i < manifest_.files.size(); ++i) {
      if (!verified[i] && manifest_.files[i].path.compare(0, 8, "modules/") == 0) check_file(i);
    }
  });
}

void Archive::end_loading() noexcept {
  const auto& constants = manifest_.constants;
  if (std::none_of(constants.begin(), constants.end(), is_worth_mapping)) map_.close_descriptor();
}

Mapping Archive::copy_on_write(size_t index) const noexcept {
  const ConstantRecord& record = manifest_.constants[index];
  if (!is_worth_mapping(record)) return {};
  return map_.map_private(offset_of(record), record.nbytes);
}

void Archive::check_manifest_hash() {
  const Bytes text(reinterpret_cast<const uint8_t*>(manifest_text_.data()), manifest_text_.size());
  if (sha256(text) != container_.manifest_digest) tampered("manifest.json", "SHA-256 in the archive's comment");
  if (crc32(text) != container_.entries[0].crc) tampered("manifest.json", "CRC-32");
}

void Archive::check_files() const {
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
}

void Archive::check_file(size_t index) const {
  const ContainerEntry& entry = container_.entries[index + 1];
  check_hashes(index, map_.hashes(entry.data_offset, entry.size));
}

void Archive::check_hashes(size_t index, const Hashes& hashes) const {
  const FileRecord& record = manifest_.files[index];
  if (hashes.sha256 != record.digest) tampered(record.path, "SHA-256 in the manifest");
  if (hashes.crc != container_.entries[index + 1].crc) tampered(record.path, "CRC-32");
}

// Constants may share bytes, but not so that reading each of them would take longer than reading the file some times.
void Archive::check_ranges() const {
  std::set<std::pair<uint64_t, uint64_t>> ranges;
  uint64_t total = 0;
  for (const ConstantRecord& constant : manifest_.constants) {
    if (constant.absent || !ranges.emplace(offset_of(constant), constant.nbytes).second) continue;
    if (!checked_add(total, constant.nbytes, &total) || total / kMaxReads > map_.size()) {
      malformed("the constants overlap each other more than " + std::to_string(kMaxReads) + " times");
    }
  }
}

void Archive::check_constants() const {
  std::map<std::pair<uint64_t, uint64_t>, Digest> digests;
  for (const ConstantRecord& constant : manifest_.constants) {
    if (constant.absent) continue;
    const auto [found, is_new] = digests.try_emplace({offset_of(constant), constant.nbytes});
    if (is_new) found->second = map_.sha256(offset_of(constant), constant.nbytes);
    if (found->second != constant.digest) {
      tampered("constant '" + constant.name + "'", "SHA-256 in the manifest");
    }
  }
}

// Always: a module may read outside of its tensors by a bool that is neither 0 nor 1. It costs reading the constants
// that are bools, which are few.
void Archive::check_bools() const {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (const ConstantRecord& constant : manifest_.constants) {
    if (constant.absent || !constant.dtype->is_bool() || !seen.emplace(offset_of(constant), constant.nbytes).second)
      continue;
    if (!map_.are_bools(offset_of(constant), constant.nbytes)) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "constant '%s' is bool, but has bytes other than 0 and 1", constant.name.c_str());
    }
  }
}

}  // namespace aotpack::runtime
