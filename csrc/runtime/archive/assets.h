// The byte ranges of an archive that go with modules, such as code for a device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "archive/archive.h"
#include "base/bytes.h"
#include "host/sealed_file.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// Copies in memory that cannot change, verified there, as the code of modules is: a device executes them.
class Assets {
 public:
  // The assets of a module, in the order of its record; they live as long as this. Marks the files that it has read in
  // `verified`. Throws TAMPERED_ARCHIVE or what reading throws.
  std::vector<Bytes> of(const Archive& archive, const ModuleRecord& module, std::vector<bool>* verified);

 private:
  std::map<uint32_t, std::unique_ptr<MappedFile>> files_;
};

}  // namespace aotpack::runtime
