#include "hal/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "base/status.h"

namespace aotpack::runtime::cuda {
namespace {

[[noreturn]] void unavailable(const std::string& why) { throw Error(AOTPACK_UNSUPPORTED_TARGET, why); }

template <typename Function>
bool find(void* library, const char* symbol, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, symbol));
  return *out != nullptr;
}

}  // namespace

std::string version_text(int version) { return format("%d.%d", version / 1000, version % 1000 / 10); }

Driver::Driver(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    unavailable("no CUDA driver was found: " + library + " cannot be opened (" +
                (reason != nullptr ? reason : "unknown error") +
                "); install the NVIDIA driver, or set AOTPACK_LIBCUDA to the path of its libcuda.so.1");
  }
  Result (*get_version)(int*) = nullptr;
  if (!find(handle, "cuDriverGetVersion", &get_version) || get_version(&version_) != kSuccess) {
    unavailable(library + " is not a CUDA driver: it has no version");
  }
  if (version_ < kOldestDriver) {
    unavailable("the CUDA driver is too old: " + library + " supports CUDA " + version_text(version_) +
                ", aotpack needs a driver for CUDA " + version_text(kOldestDriver) + " or later");
  }
#define AOTPACK_FIND(symbol, parameters)                                                                            \
  if (!find(handle, #symbol, &this->symbol)) {                                                                      \
    unavailable(library + " (CUDA " + version_text(version_) + ") lacks the function " #symbol + " of the driver"); \
  }
  AOTPACK_CUDA_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
  has_graphs_ = version_ >= kOldestGraphs;
#define AOTPACK_FIND(symbol, parameters) has_graphs_ = find(handle, #symbol, &this->symbol) && has_graphs_;
  AOTPACK_CUDA_GRAPH_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
  has_early_starts_ = version_ >= kOldestEarlyStarts;
#define AOTPACK_FIND(symbol, parameters) has_early_starts_ = find(handle, #symbol, &this->symbol) && has_early_starts_;
  AOTPACK_CUDA_EARLY_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
  Result result = cuInit(0);
  if (result == kSuccess) result = cuDeviceGetCount(&device_count_);
  if (result == kNoDevice || (result == kSuccess && device_count_ == 0)) {
    unavailable("the CUDA driver finds no device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (result != kSuccess) unavailable("the CUDA driver cannot be initialised: " + describe(result));
}

const Driver& Driver::get() {
  // Never destroyed: contexts may be released while the process ends.
  static std::mutex& mutex = *new std::mutex;
  static const Driver* driver = nullptr;
  const std::lock_guard lock(mutex);
  if (driver == nullptr) {
    const char* library = std::getenv("AOTPACK_LIBCUDA");
    driver = new Driver(library != nullptr && *library != '\0' ? library : "libcuda.so.1");
  }
  return *driver;
}

std::string Driver::describe(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != kSuccess || name == nullptr) name = "CUDA error";
  if (cuGetErrorString == nullptr || cuGetErrorString(result, &text) != kSuccess || text == nullptr) {
    text = "the driver does not know this error";
  }
  return format("%s (%d): %s", name, result, text);
}

}  // namespace aotpack::runtime::cuda
