// The structures are those of the System V ABI (gABI), "Object Files", and of the Linux Standard Base, "Symbol
// Versioning".
#include "host/elf.h"

#include <elf.h>

#include <cstring>
#include <unordered_map>

namespace aotpack::runtime {
namespace {

// Reads within a file; a read outside of it makes all later reads fail.
class Reader {
 public:
  explicit Reader(Bytes file) noexcept : file_(file) {}

  bool good() const noexcept { return good_; }

  template <typename Record>
  Record at(uint64_t offset) noexcept {
    Record record{};
    uint64_t end = 0;
    good_ = good_ && checked_add<uint64_t>(offset, sizeof record, &end) && end <= file_.size();
    if (good_) std::memcpy(&record, file_.data() + offset, sizeof record);
    return record;
  }

  // The zero-terminated string at `offset` of a table of strings.
  std::string string(const Elf64_Shdr& table, uint64_t offset) {
    uint64_t end = 0;
    good_ = good_ && offset < table.sh_size && checked_add(table.sh_offset, table.sh_size, &end) && end <= file_.size();
    if (!good_) return "";
    const auto* first = reinterpret_cast<const char*>(file_.data() + table.sh_offset + offset);
    const size_t room = table.sh_size - offset;
    const size_t length = ::strnlen(first, room);
    good_ = length < room;
    return {first, length};
  }

 private:
  Bytes file_;
  bool good_ = true;
};

struct Sections {
  std::vector<Elf64_Shdr> all;

  const Elf64_Shdr* find(uint32_t type) const noexcept {
    for (const Elf64_Shdr& section : all) {
      if (section.sh_type == type) return &section;
    }
    return nullptr;
  }
  // The table of strings that a section refers to.
  const Elf64_Shdr* strings_of(const Elf64_Shdr& section) const noexcept {
    return section.sh_link < all.size() && all[section.sh_link].sh_type == SHT_STRTAB ? &all[section.sh_link] : nullptr;
  }
};

Sections read_sections(Reader& reader) {
  Sections sections;
  const auto header = reader.at<Elf64_Ehdr>(0);
  if (!reader.good() || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_shentsize != sizeof(Elf64_Shdr)) {
    return sections;
  }
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    uint64_t offset = 0;
    if (!checked_add<uint64_t>(header.e_shoff, i * sizeof(Elf64_Shdr), &offset)) return {};
    sections.all.push_back(reader.at<Elf64_Shdr>(offset));
    if (!reader.good()) return {};
  }
  return sections;
}

void read_libraries(Reader& reader, const Sections& sections, ElfNeeds* out) {
  const Elf64_Shdr* dynamic = sections.find(SHT_DYNAMIC);
  const Elf64_Shdr* strings = dynamic != nullptr ? sections.strings_of(*dynamic) : nullptr;
  if (strings == nullptr) return;
  for (uint64_t at = 0; reader.good() && at + sizeof(Elf64_Dyn) <= dynamic->sh_size; at += sizeof(Elf64_Dyn)) {
    const auto entry = reader.at<Elf64_Dyn>(dynamic->sh_offset + at);
    if (entry.d_tag == DT_NULL) return;
    if (entry.d_tag == DT_NEEDED) out->libraries.push_back(reader.string(*strings, entry.d_un.d_val));
  }
}

// The names of the versions of other libraries' symbols, by the number that the symbols have.
std::unordered_map<uint16_t, std::string> read_versions(Reader& reader, const Sections& sections) {
  std::unordered_map<uint16_t, std::string> versions;
  const Elf64_Shdr* needs = sections.find(SHT_GNU_verneed);
  const Elf64_Shdr* strings = needs != nullptr ? sections.strings_of(*needs) : nullptr;
  if (strings == nullptr) return versions;
  uint64_t at = needs->sh_offset;
  // sh_info libraries; both lists are chained by distances, of which none is negative: each ends.
  for (uint32_t i = 0; reader.good() && i < needs->sh_info; ++i) {
    const auto library = reader.at<Elf64_Verneed>(at);
    uint64_t version_at = at + library.vn_aux;
    for (uint16_t j = 0; reader.good() && j < library.vn_cnt; ++j) {
      const auto version = reader.at<Elf64_Vernaux>(version_at);
      versions[version.vna_other] = reader.string(*strings, version.vna_name);
      if (version.vna_next == 0) break;
      version_at += version.vna_next;
    }
    if (library.vn_next == 0) break;
    at += library.vn_next;
  }
  return versions;
}

void read_symbols(Reader& reader, const Sections& sections, ElfNeeds* out) {
  const Elf64_Shdr* table = sections.find(SHT_DYNSYM);
  const Elf64_Shdr* strings = table != nullptr ? sections.strings_of(*table) : nullptr;
  if (strings == nullptr) return;
  const Elf64_Shdr* numbers = sections.find(SHT_GNU_versym);
  const auto versions = read_versions(reader, sections);
  for (uint64_t i = 0; reader.good() && (i + 1) * sizeof(Elf64_Sym) <= table->sh_size; ++i) {
    const auto symbol = reader.at<Elf64_Sym>(table->sh_offset + i * sizeof(Elf64_Sym));
    if (symbol.st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL) continue;
    std::string version;
    if (numbers != nullptr) {
      const auto number = reader.at<uint16_t>(numbers->sh_offset + i * sizeof(uint16_t));
      const auto found = versions.find(number);
      if (found != versions.end()) version = found->second;
    }
    out->symbols.push_back({reader.string(*strings, symbol.st_name), std::move(version)});
  }
}

}  // namespace

std::optional<ElfNeeds> read_elf_needs(Bytes file) {
  Reader reader(file);
  const Sections sections = read_sections(reader);
  if (sections.all.empty()) return std::nullopt;
  ElfNeeds needs;
  read_libraries(reader, sections, &needs);
  read_symbols(reader, sections, &needs);
  if (!reader.good()) return std::nullopt;
  return needs;
}

}  // namespace aotpack::runtime
