#include "host/gomp.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

namespace aotpack::runtime {
namespace {

constexpr char kVariable[] = "GOMP_SPINCOUNT";
constexpr char kSpins[] = "1000";  // about ten microseconds: enough from one parallel region to the next

// Held from the constructor to the destructor: two threads that load modules must not undo each other's setting.
std::mutex& environment_mutex() {
  static std::mutex mutex;
  return mutex;
}

bool libgomp_is_loaded() noexcept {
  void* handle = ::dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  ::dlclose(handle);
  return true;
}

}  // namespace

BoundedGompSpin::BoundedGompSpin() noexcept {
  environment_mutex().lock();
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv(kVariable) != nullptr || libgomp_is_loaded()) return;
  set_ = ::setenv(kVariable, kSpins, 0) == 0;
}

BoundedGompSpin::~BoundedGompSpin() {
  if (set_) ::unsetenv(kVariable);
  environment_mutex().unlock();
}

void pin_openmp_runtime() noexcept {
  for (const char* name : {"libgomp.so.1", "libomp.so.5"}) {
    // NODELETE stays in force after the handle is closed.
    void* handle = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (handle != nullptr) ::dlclose(handle);
  }
}

}  // namespace aotpack::runtime
