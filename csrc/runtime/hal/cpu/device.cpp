#include "hal/cpu/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/status.h"
#include "base/strided.h"
#include "hal/cpu/target.h"
#include "host/huge_memory.h"

namespace aotpack::runtime {
namespace {

// From here on, the part of a page that stays unused is small beside the rest.
constexpr size_t kFewestHugePages = 4;

class CpuStream final : public Stream {
 public:
  void* handle() noexcept override { return nullptr; }
  void copy(void* to, const void* from, size_t bytes) noexcept override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                    const int64_t* sizes, int32_t rank, size_t item) noexcept override {
    strided_copy(to, to_strides, from, from_strides, sizes, rank, item);
  }
  void wait() noexcept override {}
};

class CpuExecutable final : public Executable {
 public:
  explicit CpuExecutable(ExecutableSource source) : Executable(std::move(source)) {}
  // All that the stream was given has ended.
  int32_t launch(const aotpack_module_call& call, Stream&) const override { return table().run(&call); }
};

class CpuDevice final : public Device {
 public:
  DLDevice id() const noexcept override { return {kDLCPU, 0}; }
  std::string description() const override { return "the CPU"; }
  bool is_host() const noexcept override { return true; }

  const std::vector<std::string_view>& targets() const override { return host_targets(); }
  std::string missing(std::string_view target) const override { return missing_features(target, HostFeatures::read()); }

  void* allocate(size_t bytes, size_t alignment) noexcept override {
    const bool is_huge = bytes >= kFewestHugePages * kHugePage;
    if (is_huge) alignment = std::max(alignment, kHugePage);
    // std::aligned_alloc wants a multiple of the alignment.
    const size_t last = alignment - 1;
    void* memory = bytes <= SIZE_MAX - last ? std::aligned_alloc(alignment, (bytes + last) & ~last) : nullptr;
    if (is_huge && memory != nullptr) advise_huge(memory, bytes);
    return memory;
  }
  void free(void* memory) noexcept override { std::free(memory); }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Stream> borrow_stream(void*) override {
    fail(AOTPACK_INVALID_ARGUMENT, "the model runs on the CPU, which has no streams: the stream must be NULL");
  }

  std::unique_ptr<Executable> load(ExecutableSource source) override {
    return std::make_unique<CpuExecutable>(std::move(source));
  }
};

}  // namespace

Device& cpu_device() noexcept {
  static CpuDevice device;
  return device;
}

}  // namespace aotpack::runtime
