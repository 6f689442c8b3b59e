// Compiled modules: from bytes in an archive to functions that can be called.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "aotpack/module_abi.h"
#include "base/bytes.h"
#include "hal/stream.h"
#include "host/sealed_file.h"
#include "host/shared_object.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// What a device loads.
struct ExecutableSource {
  SealedFile code;  // a shared object for the host, verified
  // Byte ranges that go with it, such as code for the device, in the order of the manifest; they live as long as the
  // archive.
  std::vector<Bytes> assets;
  const ModuleRecord* record = nullptr;
  size_t num_inputs = 0;
  size_t num_outputs = 0;
  std::string what;  // names the module in errors
};

// A module in memory: a function of the host that computes by itself, or gives work to a stream. Immutable and
// thread-safe once made; unloads itself.
class Executable {
 public:
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Throws MALFORMED_ARCHIVE unless the module is what `record` says. The constructor checks its own record.
  void check(const ModuleRecord& record, size_t num_inputs, size_t num_outputs, const std::string& what) const;

  // In the order of the module's import_names.
  void* const* imports() const noexcept { return imports_.data(); }

  // Calls the module's run function; its work comes after all that `stream` was given before. Returns AOTPACK_MODULE_*.
  virtual int32_t launch(const aotpack_module_call& call, Stream& stream) const = 0;

 protected:
  // Loads the shared object; nothing of the module runs before the manifest's ABI version and imports are found
  // acceptable. Throws UNSUPPORTED_VERSION, MISSING_IMPORT, MALFORMED_ARCHIVE (the module is not what the manifest
  // says), IO_ERROR.
  explicit Executable(ExecutableSource source);

  const aotpack_module& table() const noexcept { return *table_; }

 private:
  std::vector<void*> imports_;
  SharedObject object_;
  const aotpack_module* table_;
};

}  // namespace aotpack::runtime
