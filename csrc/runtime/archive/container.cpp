#include "archive/container.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/status.h"

namespace aotpack::runtime {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;

constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocator64Bytes = 20;

constexpr uint32_t kSaturated = 0xFFFFFFFF;
constexpr uint64_t kPage = 4096;
constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kCommentPrefix = "aotpack:";

// The fields of local and central headers that are alike: flags, method, time, date.
constexpr uint16_t kCommonWords[4] = {0, 0, 0, 0x0021};

using ull = unsigned long long;

[[noreturn]] void malformed(const std::string& what) { throw Error(AOTPACK_MALFORMED_ARCHIVE, what); }

uint32_t saturate(uint64_t value) noexcept { return value >= kSaturated ? kSaturated : static_cast<uint32_t>(value); }

struct EndRecord {
  uint64_t entries = 0;
  uint64_t directory_offset = 0;
  uint64_t directory_size = 0;
  uint64_t begin = 0;  // of the first of the end records
};

std::vector<uint8_t> read_bytes(const Source& file, uint64_t offset, uint64_t size) {
  std::vector<uint8_t> bytes(size);
  file.read(offset, bytes);
  return bytes;
}

// The end record is the last thing in the file: the signature whose comment reaches exactly to the file's end. `tail`
// is as much of that end as may matter.
bool find_end(Bytes tail, size_t* out) noexcept {
  if (tail.size() < kEndBytes) return false;
  const size_t last = tail.size() - kEndBytes;
  const size_t first = last > 0xFFFF ? last - 0xFFFF : 0;
  for (size_t at = last + 1; at-- > first;) {
    if (load<uint32_t>(&tail[at]) == kEndSignature && load<uint16_t>(&tail[at + 20]) == last - at) {
      *out = at;
      return true;
    }
  }
  return false;
}

// Tells a shortened archive from a file that never was one.
// Returns the file's first bytes.
std::vector<uint8_t> check_start(const Source& file) {
  static constexpr uint8_t kMagic[4] = {0x50, 0x4b, 0x03, 0x04};
  const uint64_t wanted = kLocalBytes + kManifest.size();
  std::vector<uint8_t> start = read_bytes(file, 0, std::min(file.size(), wanted));
  if (!std::equal(start.begin(), start.begin() + static_cast<ptrdiff_t>(std::min<size_t>(4, start.size())), kMagic)) {
    throw Error(AOTPACK_FOREIGN_ARCHIVE, "not an aotpack archive: it does not start with a ZIP local header");
  }
  if (start.size() < wanted) {
    fail(AOTPACK_TRUNCATED_ARCHIVE, "truncated: the file ends after %zu bytes", start.size());
  }
  return start;
}

bool starts_with_manifest(Bytes start) noexcept {
  return load<uint16_t>(&start[26]) == kManifest.size() &&
         std::string_view(reinterpret_cast<const char*>(&start[kLocalBytes]), kManifest.size()) == kManifest;
}

void check_comment(std::string_view comment, Digest* digest) {
  if (comment.substr(0, kCommentPrefix.size()) != kCommentPrefix) {
    throw Error(AOTPACK_FOREIGN_ARCHIVE, "not an aotpack archive: a ZIP file without aotpack's comment");
  }
  const std::string_view rest = comment.substr(kCommentPrefix.size());
  const size_t colon = rest.find(':');
  const std::string_view version = rest.substr(0, colon);
  const bool numeric =
      !version.empty() && std::all_of(version.begin(), version.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (colon == std::string_view::npos || !numeric || version.size() > 9) {
    malformed("the archive's comment is not 'aotpack:1:' and a hash");
  }
  if (version != "1") {
    fail(AOTPACK_UNSUPPORTED_VERSION, "archive format version %.*s; this runtime reads version 1",
         static_cast<int>(version.size()), version.data());
  }
  if (!from_hex(rest.substr(colon + 1), digest)) {
    malformed("the archive's comment does not end in 64 lowercase hex digits");
  }
}

EndRecord read_end(const Source& file, Digest* digest) {
  const std::vector<uint8_t> start = check_start(file);
  constexpr uint64_t kMostBytes = kEnd64Bytes + kLocator64Bytes + kEndBytes + 0xFFFF;
  const uint64_t tail_size = std::min(file.size(), kMostBytes);
  const uint64_t tail_begin = file.size() - tail_size;  // in the file; positions below are in the tail
  const std::vector<uint8_t> tail = read_bytes(file, tail_begin, tail_size);
  size_t at = 0;
  if (!find_end(tail, &at)) {
    if (!starts_with_manifest(start)) {
      throw Error(AOTPACK_FOREIGN_ARCHIVE, "not an aotpack archive: its first entry is not manifest.json");
    }
    fail(AOTPACK_TRUNCATED_ARCHIVE, "truncated: the file ends after %llu bytes without an end record",
         static_cast<ull>(file.size()));
  }
  const uint8_t* record = &tail[at];
  EndRecord end;
  check_comment({reinterpret_cast<const char*>(record + kEndBytes), load<uint16_t>(record + 20)}, digest);

  end.entries = load<uint16_t>(record + 10);
  if (load<uint16_t>(record + 4) != 0 || load<uint16_t>(record + 6) != 0) malformed("the end record names other disks");
  if (load<uint16_t>(record + 8) != end.entries) malformed("the end record gives two numbers of entries");
  if (end.entries == 0 || end.entries == 0xFFFF) malformed("the end record gives an impossible number of entries");
  end.directory_size = load<uint32_t>(record + 12);
  end.directory_offset = load<uint32_t>(record + 16);
  end.begin = tail_begin + at;
  if (end.directory_size != kSaturated && end.directory_offset != kSaturated) return end;

  if (at < kLocator64Bytes + kEnd64Bytes) malformed("no room for the ZIP64 end record");
  const size_t record64_at = at - kLocator64Bytes - kEnd64Bytes;
  const uint8_t* locator = &tail[at - kLocator64Bytes];
  const uint8_t* record64 = &tail[record64_at];
  if (load<uint32_t>(locator) != kLocator64Signature || load<uint32_t>(locator + 4) != 0 ||
      load<uint64_t>(locator + 8) != tail_begin + record64_at || load<uint32_t>(locator + 16) != 1) {
    malformed("the ZIP64 locator is wrong");
  }
  if (load<uint32_t>(record64) != kEnd64Signature || load<uint64_t>(record64 + 4) != 44 ||
      load<uint16_t>(record64 + 12) != 45 || load<uint16_t>(record64 + 14) != 45 ||
      load<uint32_t>(record64 + 16) != 0 || load<uint32_t>(record64 + 20) != 0 ||
      load<uint64_t>(record64 + 24) != end.entries || load<uint64_t>(record64 + 32) != end.entries) {
    malformed("the ZIP64 end record is wrong");
  }
  const uint64_t size = load<uint64_t>(record64 + 40);
  const uint64_t offset = load<uint64_t>(record64 + 48);
  if (saturate(size) != end.directory_size || saturate(offset) != end.directory_offset) {
    malformed("the end record and the ZIP64 end record disagree");
  }
  end.directory_size = size;
  end.directory_offset = offset;
  end.begin = tail_begin + record64_at;
  return end;
}

void check_name(std::string_view name, size_t index) {
  const auto bad = [&](const char* why) { malformed(format("the name of entry %zu %s", index, why)); };
  if (name.empty() || name.size() > 255) bad("is empty or longer than 255 bytes");
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '/' || c == '-';
  };
  if (!std::all_of(name.begin(), name.end(), allowed)) bad("has characters outside [A-Za-z0-9._/-]");
  for (size_t begin = 0; begin <= name.size();) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, slash - begin);
    if (part.empty() || part == "." || part == "..") bad("has an empty, '.' or '..' component");
    begin = slash + 1;
  }
}

// One central directory entry and the local header that it points to. `directory` is advanced past the entry,
// `next_offset` past the entry's data.
ContainerEntry read_entry(const Source& file, Bytes* directory, const EndRecord& end, size_t index,
                          uint64_t* next_offset) {
  if (directory->size() < kCentralBytes) malformed(format("the directory ends inside entry %zu", index));
  const uint8_t* central = directory->data();
  if (load<uint32_t>(central) != kCentralSignature)
    malformed(format("entry %zu of the directory has no signature", index));
  const size_t name_size = load<uint16_t>(central + 28);
  const size_t extra_size = load<uint16_t>(central + 30);
  if (directory->size() - kCentralBytes < name_size + extra_size) {
    malformed(format("the directory ends inside entry %zu", index));
  }
  ContainerEntry entry;
  entry.name.assign(reinterpret_cast<const char*>(central + kCentralBytes), name_size);
  check_name(entry.name, index);
  const char* name = entry.name.c_str();
  const auto bad = [&](const char* what) { malformed(format("entry '%s': %s", name, what)); };

  entry.crc = load<uint32_t>(central + 16);
  entry.size = load<uint32_t>(central + 20);
  uint64_t offset = load<uint32_t>(central + 42);
  const bool big_size = entry.size == kSaturated;
  const bool big_offset = offset == kSaturated;
  if (load<uint32_t>(central + 24) != entry.size) bad("compressed and uncompressed size differ");
  const size_t payload = (big_size ? 16u : 0u) + (big_offset ? 8u : 0u);
  if (extra_size != (payload > 0 ? payload + 4 : 0)) bad("wrong extra field in the directory");
  if (payload > 0) {
    const uint8_t* extra = central + kCentralBytes + name_size;
    if (load<uint16_t>(extra) != 1 || load<uint16_t>(extra + 2) != payload) bad("wrong ZIP64 field in the directory");
    extra += 4;
    if (big_size) {
      entry.size = load<uint64_t>(extra);
      if (load<uint64_t>(extra + 8) != entry.size) bad("compressed and uncompressed size differ");
      if (entry.size < kSaturated) bad("a ZIP64 size that does not need it");
      extra += 16;
    }
    if (big_offset) {
      offset = load<uint64_t>(extra);
      if (offset < kSaturated) bad("a ZIP64 offset that does not need it");
    }
  }
  if (load<uint16_t>(central + 4) != 45) bad("wrong 'version made by'");
  if (load<uint16_t>(central + 6) != (payload > 0 ? 45 : 10)) bad("wrong 'version needed' in the directory");
  for (size_t i = 0; i < 4; ++i) {
    if (load<uint16_t>(central + 8 + 2 * i) != kCommonWords[i]) bad("wrong flags, method or date in the directory");
  }
  for (size_t at = 32; at < 42; at += 2) {
    if (load<uint16_t>(central + at) != 0) bad("a comment, disk number or attributes in the directory");
  }
  *directory = directory->subspan(kCentralBytes + name_size + extra_size);

  if (offset != *next_offset) {
    malformed(
        format("entry '%s' is at offset %llu, not at %llu: entries must follow each other without holes or overlaps",
               name, static_cast<ull>(offset), static_cast<ull>(*next_offset)));
  }
  // All offsets are at most the file's size, and header sizes are small: these sums cannot overflow.
  const uint64_t zip64_bytes = big_size ? 20 : 0;
  entry.padding_offset = offset + kLocalBytes + name_size + zip64_bytes + 4;
  entry.data_offset = (entry.padding_offset + kPage - 1) / kPage * kPage;
  if (entry.data_offset > end.directory_offset || entry.size > end.directory_offset - entry.data_offset) {
    malformed(format("entry '%s' reaches into the directory", name));
  }
  const std::vector<uint8_t> header = read_bytes(file, offset, entry.padding_offset - offset);
  const uint8_t* local = header.data();
  if (load<uint32_t>(local) != kLocalSignature) bad("no local header where the directory says");
  if (load<uint16_t>(local + 4) != (big_size ? 45 : 10)) bad("wrong 'version needed' in the local header");
  for (size_t i = 0; i < 4; ++i) {
    if (load<uint16_t>(local + 6 + 2 * i) != kCommonWords[i]) bad("wrong flags, method or date in the local header");
  }
  if (load<uint32_t>(local + 14) != entry.crc) bad("the CRCs of the local header and the directory differ");
  if (load<uint32_t>(local + 18) != saturate(entry.size) || load<uint32_t>(local + 22) != saturate(entry.size)) {
    bad("the sizes of the local header and the directory differ");
  }
  const uint64_t padding = entry.data_offset - entry.padding_offset;
  if (load<uint16_t>(local + 26) != name_size || load<uint16_t>(local + 28) != zip64_bytes + 4 + padding) {
    bad("wrong name or extra field length in the local header");
  }
  if (std::string_view(reinterpret_cast<const char*>(local + kLocalBytes), name_size) != entry.name) {
    bad("the names of the local header and the directory differ");
  }
  const uint8_t* extra = local + kLocalBytes + name_size;
  if (big_size) {
    if (load<uint16_t>(extra) != 1 || load<uint16_t>(extra + 2) != 16 || load<uint64_t>(extra + 4) != entry.size ||
        load<uint64_t>(extra + 12) != entry.size) {
      bad("wrong ZIP64 field in the local header");
    }
    extra += zip64_bytes;
  }
  if (load<uint16_t>(extra) != 0x4150 || load<uint16_t>(extra + 2) != padding)
    bad("wrong AP field in the local header");
  *next_offset = entry.data_offset + entry.size;
  return entry;
}

}  // namespace

Container read_container(const Source& file) {
  Container container;
  const EndRecord end = read_end(file, &container.manifest_digest);
  uint64_t directory_end;
  if (!checked_add(end.directory_offset, end.directory_size, &directory_end) || directory_end > end.begin) {
    fail(AOTPACK_TRUNCATED_ARCHIVE,
         "truncated: the directory ought to lie at offset %llu and have %llu bytes, but the file has %llu",
         static_cast<ull>(end.directory_offset), static_cast<ull>(end.directory_size), static_cast<ull>(file.size()));
  }
  if (directory_end != end.begin) malformed("there is room between the directory and the end record");
  if (end.directory_size / kCentralBytes < end.entries) malformed("the directory is too small for its entries");

  // Names and extra fields are short, so the directory is too; it is read as a whole.
  constexpr uint64_t kMostCentralBytes = kCentralBytes + 255 + 28;
  if (end.directory_size / kMostCentralBytes > end.entries) malformed("the directory is too large for its entries");
  const std::vector<uint8_t> directory_bytes = read_bytes(file, end.directory_offset, end.directory_size);
  Bytes directory(directory_bytes);
  container.entries.reserve(end.entries);
  std::unordered_set<std::string_view> names;
  uint64_t next_offset = 0;
  for (size_t i = 0; i < end.entries; ++i) {
    container.entries.push_back(read_entry(file, &directory, end, i, &next_offset));
    const std::string& name = container.entries.back().name;  // never moves: the room was reserved
    if (!names.insert(name).second) malformed(format("two entries are named '%s'", name.c_str()));
  }
  if (!directory.empty()) malformed("the directory has bytes after its last entry");
  if (next_offset != end.directory_offset) malformed("there is room between the last entry and the directory");
  if (container.entries[0].name != kManifest) malformed("the first entry is not manifest.json");
  return container;
}

void check_padding(const Source& file, const Container& container) {
  for (const ContainerEntry& entry : container.entries) {
    const std::vector<uint8_t> padding =
        read_bytes(file, entry.padding_offset, entry.data_offset - entry.padding_offset);
    if (std::any_of(padding.begin(), padding.end(), [](uint8_t byte) { return byte != 0; })) {
      malformed(format("entry '%s': the padding before its data is not zero", entry.name.c_str()));
    }
  }
}

}  // namespace aotpack::runtime
