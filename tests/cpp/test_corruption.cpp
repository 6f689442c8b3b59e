// Whole archives, damaged in every way that storage and transport can: each time a named error, never a crash.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Model;
using aotpack::Verify;

namespace {

bool is_archive_error(aotpack_code code) {
  return code == AOTPACK_FOREIGN_ARCHIVE || code == AOTPACK_TRUNCATED_ARCHIVE || code == AOTPACK_MALFORMED_ARCHIVE ||
         code == AOTPACK_TAMPERED_ARCHIVE || code == AOTPACK_UNSUPPORTED_VERSION;
}

// The code of loading; AOTPACK_OK when it loads.
aotpack_code load_code(const std::string& path, Verify verify) {
  try {
    Model::load(path, verify);
    return AOTPACK_OK;
  } catch (const aotpack::Error& error) {
    return error.code();
  }
}

}  // namespace

TEST_CASE("truncation anywhere is told as such") {
  const std::string bytes = affine_archive().build();
  TempFile file;
  for (size_t i = 0; i < 100; ++i) {
    const size_t length = bytes.size() * i / 100;
    CAPTURE(length);
    file.write(bytes.substr(0, length));
    CHECK(load_code(file.path(), Verify::kCode) == AOTPACK_TRUNCATED_ARCHIVE);
    CHECK(load_code(file.path(), Verify::kFull) == AOTPACK_TRUNCATED_ARCHIVE);
  }
  for (size_t missing = 1; missing <= 200; ++missing) {
    CAPTURE(missing);
    file.write(bytes.substr(0, bytes.size() - missing));
    CHECK(load_code(file.path(), Verify::kCode) == AOTPACK_TRUNCATED_ARCHIVE);
  }
}

// Sanitizers look at code, which is the same for neighbours.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStep = 7;
#else
constexpr size_t kStep = 1;
#endif

TEST_CASE("verify=full: no flipped bit passes, at any byte of the file") {
  const std::string bytes = affine_archive().build();
  const TempFile file(bytes);
  REQUIRE(load_code(file.path(), Verify::kFull) == AOTPACK_OK);
  for (size_t at = 0; at < bytes.size(); at += kStep) {
    file.poke(at, static_cast<char>(bytes[at] ^ (1 << at % 8)));
    const aotpack_code code = load_code(file.path(), Verify::kFull);
    if (!is_archive_error(code)) {
      CAPTURE(at);
      FAIL_CHECK("a flipped bit passed, code " << aotpack_code_name(code));
    }
    file.poke(at, bytes[at]);
  }
  CHECK(load_code(file.path(), Verify::kFull) == AOTPACK_OK);
}

TEST_CASE("verify=full: every bit of the headers and of the end") {
  Layout layout;
  const std::string bytes = affine_archive().build(&layout);
  const TempFile file(bytes);
  std::vector<uint64_t> places;
  for (const EntryLayout& entry : layout.entries) {
    for (uint64_t at = entry.header; at < entry.header + 80 && at < entry.data; ++at) places.push_back(at);
  }
  for (uint64_t at = layout.directory; at < layout.size; ++at) places.push_back(at);
  for (const uint64_t at : places) {
    for (int bit = 0; bit < 8; ++bit) {
      file.poke(at, static_cast<char>(bytes[at] ^ (1 << bit)));
      const aotpack_code code = load_code(file.path(), Verify::kFull);
      if (!is_archive_error(code)) {
        CAPTURE(at);
        FAIL_CHECK("a flipped bit passed, code " << aotpack_code_name(code));
      }
    }
    file.poke(at, bytes[at]);
  }
}

TEST_CASE("verify=code: what is executable or structure is always checked") {
  Layout layout;
  const std::string bytes = affine_archive().build(&layout);
  const TempFile file(bytes);
  const auto code_with = [&](uint64_t at, char byte) {
    file.poke(at, byte);
    const aotpack_code code = load_code(file.path(), Verify::kCode);
    file.poke(at, bytes[at]);
    return code;
  };
  const auto code_after_flip = [&](uint64_t at) { return code_with(at, static_cast<char>(bytes[at] ^ 1)); };
  const EntryLayout& manifest = layout.entries[0];
  const EntryLayout& weights = layout.entries[1];
  const EntryLayout& module = layout.entries[2];
  const EntryLayout& golden = layout.entries[3];
  CHECK(code_after_flip(manifest.data + manifest.size / 2) == AOTPACK_TAMPERED_ARCHIVE);
  // Another hex digit: what is none is malformed.
  CHECK(code_with(layout.size - 1, bytes.back() == '0' ? '1' : '0') == AOTPACK_TAMPERED_ARCHIVE);
  CHECK(code_after_flip(module.data + module.size / 2) == AOTPACK_TAMPERED_ARCHIVE);
  // Weights and goldens are read by those who ask for it.
  CHECK(code_after_flip(weights.data) == AOTPACK_OK);
  CHECK(code_after_flip(golden.data) == AOTPACK_OK);
}

TEST_CASE("verify=full: the constant's own hash and the CRCs count too") {
  ArchiveWriter writer = affine_archive();
  writer.manifest["constants"][0]["sha256"] = std::string(64, '0');
  const aotpack::Error error = load_error(writer, Verify::kFull);
  CHECK(error.code() == AOTPACK_TAMPERED_ARCHIVE);
  CHECK(message_of(error).find("constant 'w': its content does not match its SHA-256 in the manifest") !=
        std::string::npos);

  // The CRC of a file, changed in both of its places.
  Layout layout;
  std::string bytes = affine_archive().build(&layout);
  bytes[layout.entries[1].header + 14] ^= 1;
  bytes[layout.entries[1].central + 16] ^= 1;
  const aotpack::Error crc = load_error(bytes, Verify::kFull);
  CHECK(crc.code() == AOTPACK_TAMPERED_ARCHIVE);
  CHECK(message_of(crc).find("weights/0: its content does not match its CRC-32") != std::string::npos);
}

TEST_CASE("random damage never crashes") {
  const std::string bytes = affine_archive().build();
  std::mt19937 random(8);
  TempFile file;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = bytes;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % damaged.size();
      const size_t length = 1 + random() % 5000;
      switch (random() % 3) {
        case 0:
          damaged.erase(at, length);
          break;
        case 1:
          damaged.insert(at, length, static_cast<char>(random()));
          break;
        default:
          for (size_t i = at; i < std::min(at + length, damaged.size()); ++i) damaged[i] = static_cast<char>(random());
      }
      if (damaged.empty()) damaged.push_back('x');
    }
    if (damaged == bytes) continue;
    file.write(damaged);
    REQUIRE(is_archive_error(load_code(file.path(), Verify::kFull)));
  }
}

TEST_CASE("files that are not there, are folders or are foreign") {
  CHECK(load_code("/nonexistent/file.aotpack", Verify::kCode) == AOTPACK_NOT_FOUND);
  CHECK(load_code("/tmp", Verify::kCode) == AOTPACK_IO_ERROR);
  CHECK(load_code("/dev/null", Verify::kCode) == AOTPACK_IO_ERROR);
  const TempFile text(std::string("just some text, long enough to be anything"));
  CHECK(load_code(text.path(), Verify::kCode) == AOTPACK_FOREIGN_ARCHIVE);
  const TempFile elf(read_bytes(MODULE_affine));
  CHECK(load_code(elf.path(), Verify::kCode) == AOTPACK_FOREIGN_ARCHIVE);
  const aotpack::Error error = error_of([] { Model::load("/nonexistent/file.aotpack"); });
  CHECK(message_of(error) == "/nonexistent/file.aotpack: cannot open: No such file or directory");
}
