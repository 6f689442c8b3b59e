// What shared objects need, and what is said of one that does not get it.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fixtures.h"
#include "host/elf.h"

using namespace aotpack::tests;
using aotpack::runtime::ElfNeeds;
using aotpack::runtime::read_elf_needs;

namespace {

aotpack::runtime::Bytes view(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string versioned_module() { return read_bytes(MODULE_versioned); }

// The error of an archive whose module is `code`.
void expect(const std::string& code, aotpack_code status, const std::string& part) {
  ArchiveWriter writer = affine_archive();
  writer.files[1].bytes = code;
  const aotpack::Error error = load_error(writer);
  CHECK(error.code() == status);
  CHECK_MESSAGE(message_of(error).find(part) != std::string::npos, message_of(error));
}

}  // namespace

TEST_CASE("libraries and symbols that a shared object needs") {
  const auto needy = read_elf_needs(view(read_bytes(MODULE_needy)));
  REQUIRE(needy.has_value());
  CHECK(std::count(needy->libraries.begin(), needy->libraries.end(), "libaotpack_absent.so") == 1);
  const auto absent = [](const ElfNeeds::Symbol& symbol) { return symbol.name == "aotpack_test_absent"; };
  const auto found = std::find_if(needy->symbols.begin(), needy->symbols.end(), absent);
  REQUIRE(found != needy->symbols.end());
  CHECK(found->version.empty());

  const auto versioned = read_elf_needs(view(versioned_module()));
  REQUIRE(versioned.has_value());
  CHECK(std::any_of(versioned->symbols.begin(), versioned->symbols.end(), [](const ElfNeeds::Symbol& symbol) {
    return symbol.name == "getenv" && symbol.version.rfind("GLIBC_2.", 0) == 0;
  }));
}

TEST_CASE("damaged files have no needs, or some, and nothing is read outside of them") {
  CHECK_FALSE(read_elf_needs({}).has_value());
  CHECK_FALSE(read_elf_needs(view("not an ELF file at all")).has_value());
  const std::string good = versioned_module();
  for (size_t length = 0; length < good.size(); length += 61) {
    const std::string cut = good.substr(0, length);
    CHECK_FALSE(read_elf_needs(view(cut)).has_value());  // section headers lie at the end
  }
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 8; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    // In the headers too, which are a small part of the file.
    bad[random() % 64] = static_cast<char>(random());
    bad[bad.size() - 1 - random() % 2048 % bad.size()] = static_cast<char>(random());
    (void)read_elf_needs(view(bad));
  }
}

TEST_CASE("a module that needs what is not there says what; other failures are of the archive") {
  expect(read_bytes(MODULE_needy), AOTPACK_MISSING_IMPORT, "it needs the library 'libaotpack_absent.so'");
  expect(read_bytes(MODULE_unresolved), AOTPACK_MISSING_IMPORT, "it needs the symbol 'aotpack_test_absent'");

  std::string newer = versioned_module();
  size_t at = newer.find("GLIBC_2.");
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = newer.find("GLIBC_2.")) newer[at + 6] = '9';
  expect(newer, AOTPACK_MISSING_IMPORT, "' of version 'GLIBC_9.");

  // Of another processor; nothing that it needs is missing.
  std::string renamed = read_bytes(MODULE_affine);
  renamed[18] = static_cast<char>(renamed[18] ^ 0x40);  // e_machine
  expect(renamed, AOTPACK_MALFORMED_ARCHIVE, "cannot load the module");
}
