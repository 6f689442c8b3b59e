// Devices: where modules run, and whose memory holds their data.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "aotpack/dlpack.h"
#include "base/status.h"
#include "hal/executable.h"
#include "hal/graph.h"
#include "hal/recording.h"
#include "hal/stream.h"

namespace aotpack::runtime {

// One copy of an upload.
struct Transfer {
  void* to;          // on the device
  const void* from;  // on the host
  size_t bytes;
  bool once = false;  // `from` is in a mapped file that is not read there again soon: its pages need not stay
};

// Lives as long as the process; thread-safe. To add a device, add a folder beside hal/cpu that implements this class,
// Stream and Executable, and a line in model/devices.cpp.
class Device {
 public:
  // The device in DLPack.
  virtual DLDevice id() const noexcept = 0;
  // The same in words, for messages: "cuda:0 (NVIDIA H200, compute capability 9.0)".
  virtual std::string description() const = 0;
  // Whether the host can access the device's memory at the address that modules get. If so, constants are used in the
  // pages of the archive, without a copy.
  virtual bool is_host() const noexcept = 0;

  // The supported targets, best first; views of zero-terminated literals.
  virtual const std::vector<std::string_view>& targets() const = 0;
  // The features of a target that the device lacks, e.g. "avx512f, avx512bw"; empty if it supports the target.
  virtual std::string missing(std::string_view target) const = 0;

  // Modules get inputs at multiples of this many bytes, or of an element if that is more.
  virtual size_t input_alignment() const noexcept { return 1; }

  // Throws DEVICE_FAILED after an error that made the device unusable for this process.
  virtual void require_usable() const {}

  // Uninitialised memory aligned to `alignment`, a power of two; NULL if there is none. Slow: calls allocate from an
  // Allocator.
  virtual void* allocate(size_t bytes, size_t alignment) noexcept = 0;
  virtual void free(void* memory) noexcept = 0;

  // Copies from the host, of any total size; ends when everything is there. Throws what Stream::copy throws.
  virtual void upload(const std::vector<Transfer>& transfers) {
    const std::unique_ptr<Stream> stream = make_stream();
    for (const Transfer& transfer : transfers) stream->copy(transfer.to, transfer.from, transfer.bytes);
    stream->wait();
  }

  // Throws OUT_OF_MEMORY, DEVICE_FAILED or INTERNAL.
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // The stream that work of other libraries is on, or is ordered with, unless they choose another. The same errors.
  virtual std::unique_ptr<Stream> default_stream() { return make_stream(); }
  // A stream that the caller has made and that outlives this; `handle` is not NULL. Throws INVALID_ARGUMENT where the
  // device has no streams.
  virtual std::unique_ptr<Stream> borrow_stream(void* handle) = 0;

  // Loads verified code. See Executable for what it throws.
  virtual std::unique_ptr<Executable> load(ExecutableSource source) = 0;

  // Whether recorded work runs faster than what it was recorded from. Then make_graph returns a graph, or NULL for work
  // that graphs of the device cannot have. Throws what Stream::copy throws.
  virtual bool has_graphs() const noexcept { return false; }
  virtual std::unique_ptr<Graph> make_graph(Recording, void* const*) { return nullptr; }
  // The bytes of each argument of a kernel; false where they are not known. Throws what Stream::launch throws.
  virtual bool argument_sizes(const aotpack_module_launch&, std::vector<uint32_t>*) { return false; }
  // Describes a matrix for kernels (module_abi.h). There need not be memory at its address.
  virtual void tensor_map(const aotpack_module_tensor_map&) {
    throw Error(AOTPACK_INTERNAL, "the device has no tensor maps");
  }
  // Whether a library of the host may do the operation (module_abi.h). The answer stays the same.
  virtual bool has_library(std::string_view) { return false; }

 protected:
  ~Device() = default;
};

// What `body` returns. A device that is lost gives no memory either: its error is that, not OUT_OF_MEMORY.
template <typename Body>
decltype(auto) with_memory_of(const Device& device, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    device.require_usable();
    throw;
  } catch (const Error& error) {
    if (error.code() == AOTPACK_OUT_OF_MEMORY) device.require_usable();
    throw;
  }
}

}  // namespace aotpack::runtime
