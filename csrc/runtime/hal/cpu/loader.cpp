#include "hal/cpu/loader.h"

#include <dlfcn.h>

#include <cstdio>

#include "base/status.h"
#include "hal/imports.h"
#include "host/gomp.h"

namespace aotpack::runtime {
namespace {

[[noreturn]] void open_failed(const std::string& what, const char* reason) {
  const std::string text = reason != nullptr ? reason : "unknown error";
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (says("Operation not permitted") || says("Permission denied") || says("failed to map segment")) {
    fail(AOTPACK_IO_ERROR,
         "%s: the operating system refuses to execute memory files (%s); aotpack loads modules from memory, so the "
         "security policy (noexec, SELinux, vm.memfd_noexec) must allow memfd_create with execution",
         what.c_str(), text.c_str());
  }
  const char* hint = says("libgomp") ? " (the module needs the OpenMP runtime: install libgomp1)" : "";
  const bool missing = says("cannot open shared object file") || says("undefined symbol") || says("not found");
  fail(missing ? AOTPACK_MISSING_IMPORT : AOTPACK_MALFORMED_ARCHIVE, "%s: cannot load the module: %s%s", what.c_str(),
       text.c_str(), hint);
}

}  // namespace

Module::Module(SealedFile code, const ModuleRecord& record, size_t num_inputs, size_t num_outputs,
               const std::string& what)
    : code_(std::move(code)) {
  if (record.abi_version > AOTPACK_MODULE_ABI_VERSION) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "%s: module ABI version %u; this runtime knows versions up to %u", what.c_str(),
         record.abi_version, AOTPACK_MODULE_ABI_VERSION);
  }
  for (const std::string& name : record.imports) {
    void* function = find_import(name);
    if (function == nullptr) {
      fail(AOTPACK_MISSING_IMPORT,
           "%s: the module imports '%s', which this runtime (%s) does not provide; it provides %s", what.c_str(),
           name.c_str(), AOTPACK_VERSION_STRING, import_names());
    }
    imports_.push_back(function);
  }
  try {
    // The dynamic linker knows libraries by path. The descriptor stays open as long as the module is loaded, so no
    // other module can get the same path meanwhile.
    char path[48];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", code_.fd());
    const BoundedGompSpin bounded;
    handle_ = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) open_failed(what, ::dlerror());
    pin_openmp_runtime();
    query(what);
    check(record, num_inputs, num_outputs, what);
  } catch (...) {
    unload();
    throw;
  }
}

Module::~Module() { unload(); }

void Module::unload() noexcept {
  if (handle_ != nullptr) ::dlclose(handle_);
  if (code_.fd() < 0) return;
  // A module may refuse to go (unique symbols, thread-local destructors). Then its path stays taken, and so must its
  // descriptor.
  char path[48];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", code_.fd());
  void* still = handle_ != nullptr ? ::dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (still != nullptr) {
    ::dlclose(still);
    (void)code_.release();
  }
  handle_ = nullptr;
}

void Module::query(const std::string& what) {
  auto* query = reinterpret_cast<aotpack_module_query_fn>(::dlsym(handle_, AOTPACK_MODULE_QUERY_SYMBOL));
  if (query == nullptr) {
    fail(AOTPACK_MALFORMED_ARCHIVE, "%s: the module does not export " AOTPACK_MODULE_QUERY_SYMBOL, what.c_str());
  }
  table_ = query(AOTPACK_MODULE_ABI_VERSION);
  if (table_ == nullptr) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "%s: the module does not serve ABI versions up to %u", what.c_str(),
         AOTPACK_MODULE_ABI_VERSION);
  }
  if (table_->abi_version > AOTPACK_MODULE_ABI_VERSION) {
    fail(AOTPACK_UNSUPPORTED_VERSION,
         "%s: the module answers with ABI version %u; this runtime knows versions up to %u", what.c_str(),
         table_->abi_version, AOTPACK_MODULE_ABI_VERSION);
  }
}

void Module::check(const ModuleRecord& record, size_t num_inputs, size_t num_outputs, const std::string& what) const {
  const auto bad = [&](const std::string& why) { throw Error(AOTPACK_MALFORMED_ARCHIVE, what + ": " + why); };
  if (table_->abi_version != record.abi_version) bad("its ABI version is not the manifest's");
  if (table_->struct_size < sizeof(aotpack_module)) bad("its table is too small");
  if (table_->target == nullptr || record.target != table_->target) bad("its target is not the manifest's");
  const auto count = [&](const char* name, uint32_t has, size_t wanted) {
    if (has != wanted) bad(format("it has %u %s, the manifest %zu", has, name, wanted));
  };
  count("inputs", table_->num_inputs, num_inputs);
  count("outputs", table_->num_outputs, num_outputs);
  count("constants", table_->num_constants, record.constants.size());
  count("imports", table_->num_imports, record.imports.size());
  for (size_t i = 0; i < record.imports.size(); ++i) {
    if (table_->import_names == nullptr || table_->import_names[i] == nullptr ||
        record.imports[i] != table_->import_names[i]) {
      bad(format("its import %zu is not the manifest's '%s'", i, record.imports[i].c_str()));
    }
  }
  if (table_->run == nullptr) bad("its table has no run function");
}

}  // namespace aotpack::runtime
