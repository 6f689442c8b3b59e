#include <doctest/doctest.h>

#include <functional>

#include "archive/container.h"
#include "base/status.h"
#include "fixtures.h"

using namespace aotpack::tests;
namespace runtime = aotpack::runtime;

namespace {

runtime::Bytes as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void put(std::string* bytes, uint64_t at, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) (*bytes)[at + static_cast<uint64_t>(i)] = static_cast<char>(value >> (8 * i));
}

// Reads an archive after a change to its bytes.
runtime::Error error_after(const std::function<void(std::string*, const Layout&)>& change) {
  Layout layout;
  std::string bytes = affine_archive().build(&layout);
  change(&bytes, layout);
  try {
    runtime::read_container(as_bytes(bytes));
  } catch (const runtime::Error& error) {
    return error;
  }
  FAIL("no error");
  throw std::logic_error("unreachable");
}

void expect(aotpack_code code, const std::string& message,
            const std::function<void(std::string*, const Layout&)>& change) {
  CAPTURE(message);
  const runtime::Error error = error_after(change);
  CHECK(error.code() == code);
  CHECK(error.message().find(message) != std::string::npos);
  CAPTURE(error.message());
}

}  // namespace

TEST_CASE("a right container is read") {
  const ArchiveWriter writer = affine_archive();
  Layout layout;
  const std::string bytes = writer.build(&layout);
  const runtime::Container container = runtime::read_container(as_bytes(bytes));
  REQUIRE(container.entries.size() == 4);
  CHECK(container.entries[0].name == "manifest.json");
  for (size_t i = 0; i < 4; ++i) {
    CHECK(container.entries[i].data_offset == layout.entries[i].data);
    CHECK(container.entries[i].data_offset % 4096 == 0);
    CHECK(container.entries[i].size == layout.entries[i].size);
  }
  CHECK_NOTHROW(runtime::check_padding(as_bytes(bytes), container));
}

TEST_CASE("foreign files") {
  const auto code = [](const std::string& bytes) {
    try {
      runtime::read_container(as_bytes(bytes));
    } catch (const runtime::Error& error) {
      return error.code();
    }
    return AOTPACK_OK;
  };
  CHECK(code("\x7f"
             "ELF and so on") == AOTPACK_FOREIGN_ARCHIVE);
  CHECK(code(std::string(100000, '\0')) == AOTPACK_FOREIGN_ARCHIVE);
  CHECK(code("PKZIP") == AOTPACK_FOREIGN_ARCHIVE);
  CHECK(code("PK\x05\x06" + std::string(18, '\0')) == AOTPACK_FOREIGN_ARCHIVE);  // an empty ZIP
  expect(AOTPACK_FOREIGN_ARCHIVE, "does not start with", [](std::string* bytes, const Layout&) { (*bytes)[2] = 'x'; });
  expect(AOTPACK_FOREIGN_ARCHIVE, "without aotpack's comment",
         [](std::string* bytes, const Layout& layout) { (*bytes)[layout.end + 22] = 'x'; });
  // Some other ZIP, cut off.
  expect(AOTPACK_FOREIGN_ARCHIVE, "first entry is not manifest.json", [](std::string* bytes, const Layout& layout) {
    (*bytes)[30] = 'x';
    bytes->resize(layout.end);
  });
}

TEST_CASE("versions of the comment") {
  ArchiveWriter writer = affine_archive();
  writer.comment_prefix = "aotpack:2:";
  CHECK(load_error(writer).code() == AOTPACK_UNSUPPORTED_VERSION);
  writer.comment_prefix = "aotpack:17:more:";  // a later version may have a longer comment
  CHECK(load_error(writer).code() == AOTPACK_UNSUPPORTED_VERSION);
  writer.comment_prefix = "aotpack:x:";
  CHECK(load_error(writer).code() == AOTPACK_MALFORMED_ARCHIVE);
  writer.comment_prefix = "aotpack:1:0";
  CHECK(load_error(writer).code() == AOTPACK_MALFORMED_ARCHIVE);
  writer.comment_prefix = "something";
  CHECK(load_error(writer).code() == AOTPACK_FOREIGN_ARCHIVE);
}

TEST_CASE("the end record") {
  const auto at = [](uint64_t offset, uint64_t value, int count) {
    return [=](std::string* bytes, const Layout& layout) { put(bytes, layout.end + offset, value, count); };
  };
  expect(AOTPACK_TRUNCATED_ARCHIVE, "without an end record", at(0, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "other disks", at(4, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "two numbers of entries", at(8, 3, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "impossible number of entries", at(8, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "impossible number of entries", at(8, 0xFFFFFFFF, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "too small for its entries", at(8, 0x00FF00FF, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "bytes after its last entry", at(8, 0x00030003, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "room between the directory and the end", at(12, 10, 4));
  expect(AOTPACK_TRUNCATED_ARCHIVE, "directory ought to lie at", at(12, 0x10000000, 4));
  expect(AOTPACK_TRUNCATED_ARCHIVE, "directory ought to lie at", at(16, 0xFFFFFFFE, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "room between the directory and the end", at(16, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "ZIP64 locator", at(16, 0xFFFFFFFF, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "64 lowercase hex digits", at(22 + 10, 'G', 1));
  expect(AOTPACK_TRUNCATED_ARCHIVE, "without an end record",
         [](std::string* bytes, const Layout&) { *bytes += "trailing"; });
}

TEST_CASE("directory entries") {
  const auto at = [](uint64_t offset, uint64_t value, int count) {
    return
        [=](std::string* bytes, const Layout& layout) { put(bytes, layout.entries[1].central + offset, value, count); };
  };
  expect(AOTPACK_MALFORMED_ARCHIVE, "no signature", at(0, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "version made by", at(4, 20, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "version needed", at(6, 45, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(8, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(10, 8, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(12, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(14, 0, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "CRCs", at(16, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "sizes", at(20, 0x0000001100000011, 8));
  expect(AOTPACK_MALFORMED_ARCHIVE, "compressed and uncompressed size", at(20, 15, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "reaches into the directory", at(20, 0x7000000070000000, 8));
  expect(AOTPACK_MALFORMED_ARCHIVE, "extra field", at(20, 0xFFFFFFFFFFFFFFFF, 8));
  expect(AOTPACK_MALFORMED_ARCHIVE, "name", at(28, 8, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "ends inside entry", at(28, 0xFFFF, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "extra field", at(30, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "comment, disk number or attributes", at(32, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "comment, disk number or attributes", at(34, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "comment, disk number or attributes", at(36, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "comment, disk number or attributes", at(38, 1, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "comment, disk number or attributes", at(40, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "without holes or overlaps", at(42, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "extra field", at(42, 0xFFFFFFFF, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "names of the local header and the directory differ", at(46, 'v', 1));
}

TEST_CASE("overlapping entries, and holes") {
  // The second entry claims to lie where the first does; then a page further on than it ought to.
  expect(AOTPACK_MALFORMED_ARCHIVE, "without holes or overlaps", [](std::string* bytes, const Layout& layout) {
    put(bytes, layout.entries[1].central + 42, layout.entries[0].header, 4);
  });
  expect(AOTPACK_MALFORMED_ARCHIVE, "without holes or overlaps", [](std::string* bytes, const Layout& layout) {
    put(bytes, layout.entries[2].central + 42, layout.entries[2].header + 4096, 4);
  });
  // An entry that is longer than the room up to the next.
  expect(AOTPACK_MALFORMED_ARCHIVE, "without holes or overlaps", [](std::string* bytes, const Layout& layout) {
    for (const uint64_t field : {layout.entries[1].central + 20, layout.entries[1].header + 18}) {
      put(bytes, field, layout.entries[1].size + 5000, 4);
      put(bytes, field + 4, layout.entries[1].size + 5000, 4);
    }
  });
  // The last entry ends before the directory begins.
  expect(AOTPACK_MALFORMED_ARCHIVE, "room between the last entry and the directory",
         [](std::string* bytes, const Layout& layout) {
           for (const uint64_t field : {layout.entries[3].central + 20, layout.entries[3].header + 18}) {
             put(bytes, field, layout.entries[3].size - 1, 4);
             put(bytes, field + 4, layout.entries[3].size - 1, 4);
           }
         });
}

TEST_CASE("local headers") {
  const auto at = [](uint64_t offset, uint64_t value, int count) {
    return
        [=](std::string* bytes, const Layout& layout) { put(bytes, layout.entries[1].header + offset, value, count); };
  };
  expect(AOTPACK_MALFORMED_ARCHIVE, "no local header", at(0, 0, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "version needed", at(4, 20, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(6, 8, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(8, 8, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(10, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "flags, method or date", at(12, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "CRCs", at(14, 1, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "sizes", at(18, 1, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "sizes", at(22, 1, 4));
  expect(AOTPACK_MALFORMED_ARCHIVE, "name or extra field length", at(26, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "name or extra field length", at(28, 4, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "names of the local header", at(30, 'v', 1));
  expect(AOTPACK_MALFORMED_ARCHIVE, "AP field", at(39, 1, 2));
  expect(AOTPACK_MALFORMED_ARCHIVE, "AP field", at(41, 1, 2));
}

TEST_CASE("names") {
  const auto error_with = [](const std::string& name) {
    ArchiveWriter writer = affine_archive();
    writer.files[2].path = name;
    return message_of(load_error(writer));
  };
  CHECK(error_with("").find("is empty") != std::string::npos);
  CHECK(error_with(std::string(256, 'a')).find("longer than 255") != std::string::npos);
  CHECK(error_with("goldens/\xC3\xA9").find("characters outside") != std::string::npos);
  CHECK(error_with("goldens\\0").find("characters outside") != std::string::npos);
  for (const char* name : {"/goldens", "goldens/", "goldens//0", "./goldens", "goldens/../0", ".."}) {
    CHECK(error_with(name).find("component") != std::string::npos);
  }
  CHECK(error_with("weights/0").find("two entries are named 'weights/0'") != std::string::npos);
  CHECK(error_with("manifest.json").find("two entries are named") != std::string::npos);
}

TEST_CASE("the first entry is the manifest") {
  expect(AOTPACK_MALFORMED_ARCHIVE, "the first entry is not manifest.json",
         [](std::string* bytes, const Layout& layout) {
           (*bytes)[30] = 'M';
           (*bytes)[layout.entries[0].central + 46] = 'M';
         });
}

TEST_CASE("padding is checked when asked for") {
  Layout layout;
  std::string bytes = affine_archive().build(&layout);
  bytes[layout.entries[2].data - 1] = 1;
  const runtime::Container container = runtime::read_container(as_bytes(bytes));
  CHECK_THROWS_WITH_AS(runtime::check_padding(as_bytes(bytes), container),
                       "entry 'modules/x86-64/forward': the padding before its data is not zero", runtime::Error);
  const TempFile file(bytes);
  CHECK_NOTHROW(aotpack::Model::load(file.path()));
  CHECK(load_error(bytes, aotpack::Verify::kFull).code() == AOTPACK_MALFORMED_ARCHIVE);
}

TEST_CASE("ZIP64: entries of more than 4 GiB, in sparse files") {
  constexpr uint64_t kBig = 0x100000040;
  ArchiveWriter writer = affine_archive();
  const std::string weights = writer.files[0].bytes;
  // A huge file first, so that everything after it lies at a large offset too.
  writer.files.insert(writer.files.begin(), ArchiveFile{"weights/huge", "", kBig});
  Json& manifest = writer.manifest;
  manifest["constants"][0]["file"] = 1;
  module_in(manifest["entries"][0])["file"] = 2;
  Json& golden = manifest["entries"][0]["goldens"][0];
  golden["inputs"][0]["file"] = 3;
  golden["outputs"][0]["file"] = 3;
  Json huge = constant("huge", "uint8", {static_cast<int64_t>(kBig)}, {1}, 0, 0, "");
  huge["nbytes"] = kBig;
  manifest["constants"].push(huge);
  Layout layout;
  TempFile file;
  writer.write(file.path(), &layout);
  REQUIRE(layout.entries[2].header > 0xFFFFFFFF);
  const aotpack::Model model = aotpack::Model::load(file.path());
  const float x[4] = {1, 1, 1, 1};
  CHECK(aotpack::Context(model).run({aotpack::TensorView(x, {1, 4})})[0].data<float>()[3] == 6);

  const auto breaks = [&](uint64_t at, const std::string& message) {
    CAPTURE(message);
    const std::string path = file.path();
    writer.write(path);
    file.flip(at);
    const aotpack::Error error = error_of([&] { aotpack::Model::load(path); });
    CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
    CHECK(std::string(error.what()).find(message) != std::string::npos);
  };
  const EntryLayout& entry = layout.entries[1];
  const size_t name = std::string("weights/huge").size();
  breaks(entry.header + 4, "version needed");
  breaks(entry.header + 30 + name, "ZIP64 field in the local header");
  breaks(entry.header + 30 + name + 4, "ZIP64 field in the local header");
  breaks(entry.header + 30 + name + 12, "ZIP64 field in the local header");
  breaks(entry.central + 46 + name, "ZIP64 field in the directory");
  breaks(entry.central + 46 + name + 4, "compressed and uncompressed");
  breaks(layout.entries[2].central + 46 + std::string("weights/0").size() + 4, "without holes or overlaps");
  breaks(layout.end - 20, "ZIP64 locator");
  breaks(layout.end - 12, "ZIP64 locator");
  breaks(layout.end - 4, "ZIP64 locator");
  for (const uint64_t field : {0, 4, 12, 14, 16, 20, 24, 32}) breaks(layout.end - 76 + field, "ZIP64 end record");
  breaks(layout.end - 76 + 40, "disagree");
}
