// Compiled modules: from bytes in an archive to functions that can be called.
#pragma once

#include <string>
#include <vector>

#include "aotpack/module_abi.h"
#include "host/sealed_file.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// A module in memory. Immutable and thread-safe once made; unloads itself.
class Module {
 public:
  // Loads verified code; nothing of the module runs before the manifest's ABI version and imports are found
  // acceptable. `what` names the module in errors. Throws UNSUPPORTED_VERSION, MISSING_IMPORT, MALFORMED_ARCHIVE (the
  // module is not what the manifest says), IO_ERROR.
  Module(SealedFile code, const ModuleRecord& record, size_t num_inputs, size_t num_outputs, const std::string& what);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Throws MALFORMED_ARCHIVE unless the module is what `record` says. The constructor checks its own record.
  void check(const ModuleRecord& record, size_t num_inputs, size_t num_outputs, const std::string& what) const;

  int32_t run(const aotpack_module_call& call) const { return table_->run(&call); }
  // In the order of the module's import_names.
  void* const* imports() const noexcept { return imports_.data(); }

 private:
  void query(const std::string& what);
  void unload() noexcept;

  SealedFile code_;
  void* handle_ = nullptr;
  const aotpack_module* table_ = nullptr;
  std::vector<void*> imports_;
};

}  // namespace aotpack::runtime
