#include "host/shared_object.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "host/elf.h"
#include "host/gomp.h"

namespace aotpack::runtime {
namespace {

// The dynamic linker knows libraries by path. The descriptor stays open as long as the object is loaded, so no other
// one can get the same path meanwhile.
struct Path {
  explicit Path(const SealedFile& file) noexcept { std::snprintf(text, sizeof text, "/proc/self/fd/%d", file.fd()); }
  char text[48];
};

// Libraries that are open for the length of a scope.
class Libraries {
 public:
  Libraries() = default;
  ~Libraries() {
    for (void* handle : handles_) ::dlclose(handle);
  }
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  bool open(const std::string& name) {
    handles_.reserve(handles_.size() + 1);
    void* handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) handles_.push_back(handle);
    return handle != nullptr;
  }
  // In the libraries or in what the process has already.
  bool have(const ElfNeeds::Symbol& symbol) const noexcept {
    const auto has = [&](void* handle) {
      return (symbol.version.empty() ? ::dlsym(handle, symbol.name.c_str())
                                     : ::dlvsym(handle, symbol.name.c_str(), symbol.version.c_str())) != nullptr;
    };
    if (has(RTLD_DEFAULT)) return true;
    for (void* handle : handles_) {
      if (has(handle)) return true;
    }
    return false;
  }

 private:
  std::vector<void*> handles_;
};

// 0, or the errno with which the system refuses to map it for execution.
int refusal_to_execute(const SealedFile& file) noexcept {
  void* address = ::mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) return errno;
  ::munmap(address, 1);
  return ::access(Path(file).text, R_OK) == 0 ? 0 : errno;
}

// What it needs and does not get, for a message; empty where that is not why it cannot be loaded.
std::string missing_need(const SealedFile& file) {
  const MappedFile bytes(file);
  const std::optional<ElfNeeds> needs = read_elf_needs(bytes.bytes());
  if (!needs) return "";
  Libraries libraries;
  for (const std::string& name : needs->libraries) {
    if (libraries.open(name)) continue;
    const bool openmp = std::string_view(name).substr(0, 8) == "libgomp.";
    return "it needs the library '" + name + "'" + (openmp ? " (the OpenMP runtime: install libgomp1)" : "");
  }
  for (const ElfNeeds::Symbol& symbol : needs->symbols) {
    if (libraries.have(symbol)) continue;
    return "it needs the symbol '" + symbol.name + "'" +
           (symbol.version.empty() ? "" : " of version '" + symbol.version + "'");
  }
  return "";
}

// Why dlopen failed. Its text is for people; the kind of failure is found out by looking.
[[noreturn]] void open_failed(const SealedFile& file, const std::string& what) {
  const char* reason = ::dlerror();
  const std::string text = reason != nullptr ? reason : "unknown error";
  const int refused = refusal_to_execute(file);
  if (refused == ENOMEM) fail(AOTPACK_OUT_OF_MEMORY, "%s: cannot load the module: %s", what.c_str(), text.c_str());
  if (refused != 0) {
    fail(AOTPACK_IO_ERROR,
         "%s: the operating system refuses to execute memory files (%s); aotpack loads modules from memory, so the "
         "security policy (noexec, SELinux, vm.memfd_noexec) must allow memfd_create with execution",
         what.c_str(), std::strerror(refused));
  }
  const std::string missing = missing_need(file);
  if (!missing.empty()) {
    fail(AOTPACK_MISSING_IMPORT, "%s: cannot load the module: %s (%s)", what.c_str(), missing.c_str(), text.c_str());
  }
  fail(AOTPACK_MALFORMED_ARCHIVE, "%s: cannot load the module: %s", what.c_str(), text.c_str());
}

}  // namespace

SharedObject::SharedObject(SealedFile file, const std::string& what) : file_(std::move(file)) {
  const BoundedGompSpin bounded;
  handle_ = ::dlopen(Path(file_).text, RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) open_failed(file_, what);
  pin_openmp_runtime();
}

SharedObject::~SharedObject() {
  if (handle_ == nullptr) return;
  ::dlclose(handle_);
  // It may refuse to go (unique symbols, thread-local destructors). Then its path stays taken, and so must its
  // descriptor.
  void* still = ::dlopen(Path(file_).text, RTLD_LAZY | RTLD_NOLOAD);
  if (still != nullptr) {
    ::dlclose(still);
    (void)file_.release();
  }
}

void* SharedObject::find(const char* symbol) const noexcept { return ::dlsym(handle_, symbol); }

}  // namespace aotpack::runtime
