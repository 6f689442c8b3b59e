// Compiled modules, loaded from bytes of an archive.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "aotpack/dlpack.h"
#include "aotpack/module_abi.h"
#include "base/bytes.h"
#include "hal/stream.h"
#include "host/sealed_file.h"
#include "host/shared_object.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// The source of a module.
struct ExecutableSource {
  SealedFile code;  // a shared object for the host, verified
  // Byte ranges that go with it, such as code for the device, in the order of the manifest; they live as long as the
  // archive.
  std::vector<Bytes> assets;
  const ModuleRecord* record = nullptr;
  size_t num_inputs = 0;
  size_t num_outputs = 0;
  std::string what;               // names the module in errors
  DLDevice device = {kDLCPU, 0};  // the one that loads it
};

// A loaded module: a function of the host that computes or submits work to a stream. Immutable and thread-safe. The
// destructor unloads it.
class Executable {
 public:
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Throws MALFORMED_ARCHIVE unless the module is what `record` says. The constructor checks its own record.
  void check(const ModuleRecord& record, size_t num_inputs, size_t num_outputs, const std::string& what) const;

  // What every call of the module begins with: the members that do not differ from call to call. Tensors, their devices
  // and the stream are NULL.
  aotpack_module_call call() const noexcept;
  // Of the module's own table.
  uint32_t abi_version() const noexcept { return table_->abi_version; }
  // AOTPACK_MODULE_FEATURE_*: what it needs.
  uint64_t features() const noexcept { return table_->abi_version < 2 ? 0 : table_->features; }

  // Calls the module's run function. Its work follows the work submitted to `stream` before. Returns AOTPACK_MODULE_*.
  virtual int32_t launch(const aotpack_module_call& call, Stream& stream) const = 0;

 protected:
  // Loads the shared object; nothing of the module runs before the manifest's ABI version, imports and features are
  // found acceptable. Throws UNSUPPORTED_VERSION, MISSING_IMPORT, MALFORMED_ARCHIVE (the module is not what the
  // manifest says), IO_ERROR.
  explicit Executable(ExecutableSource source);

  // What it was loaded from, and its name in errors.
  const ModuleRecord& record() const noexcept { return *record_; }
  const std::string& what() const noexcept { return what_; }
  // Of a module of ABI version 1, only the members of that version are there.
  const aotpack_module& table() const noexcept { return *table_; }
  // In the order of the module's asset_names. A device sets what it makes of them when the module is loaded.
  std::vector<aotpack_module_asset>& assets() noexcept { return assets_; }

 private:
  void check_version_2(const ModuleRecord& record, const std::string& what) const;

  DLDevice device_;
  const ModuleRecord* record_;
  std::string what_;
  std::vector<void*> imports_;
  std::vector<aotpack_module_asset> assets_;
  SharedObject object_;
  const aotpack_module* table_;
};

}  // namespace aotpack::runtime
