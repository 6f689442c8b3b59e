// What a shared object needs of others, read from its bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace aotpack::runtime {

struct ElfNeeds {
  struct Symbol {
    std::string name;
    std::string version;  // empty: any
  };
  std::vector<std::string> libraries;
  std::vector<Symbol> symbols;  // those without which it cannot be loaded
};

// By the section headers of a 64-bit little-endian file. None where it has none, or where they are damaged: every
// offset is checked.
std::optional<ElfNeeds> read_elf_needs(Bytes file);

}  // namespace aotpack::runtime
