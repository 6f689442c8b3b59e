// Where modules run and where what they compute with lies.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "aotpack/dlpack.h"
#include "hal/executable.h"
#include "hal/stream.h"

namespace aotpack::runtime {

// Lives as long as the process; thread-safe. A device is added by a folder beside hal/cpu with an implementation of
// this class, of Stream and of Executable, and a line in model/devices.cpp.
class Device {
 public:
  // As DLPack names it.
  virtual DLDevice id() const noexcept = 0;
  // Whether the host reads and writes the device's memory at the address that modules get. Then the pages of an
  // archive serve as constants, without a copy.
  virtual bool is_host() const noexcept = 0;

  // The compilation targets that it runs, best first; views of zero-terminated literals.
  virtual const std::vector<std::string_view>& targets() const = 0;
  // What a target needs and the device lacks, e.g. "avx512f, avx512bw"; empty when it runs.
  virtual std::string missing(std::string_view target) const = 0;

  // Uninitialised memory at a multiple of `alignment`, a power of two; NULL when there is none. Slow: calls take their
  // memory from an Allocator.
  virtual void* allocate(size_t bytes, size_t alignment) noexcept = 0;
  virtual void free(void* memory) noexcept = 0;

  // Throws OUT_OF_MEMORY or INTERNAL.
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // A stream that the caller has made and that outlives this; `handle` is not NULL. Throws INVALID_ARGUMENT where the
  // device has no streams.
  virtual std::unique_ptr<Stream> borrow_stream(void* handle) = 0;

  // Loads verified code. See Executable for what it throws.
  virtual std::unique_ptr<Executable> load(ExecutableSource source) = 0;

 protected:
  ~Device() = default;
};

}  // namespace aotpack::runtime
