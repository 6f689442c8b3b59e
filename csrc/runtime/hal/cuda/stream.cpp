#include "hal/cuda/stream.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "base/strided.h"
#include "hal/cuda/kernel.h"
#include "hal/cuda/providers.h"

namespace aotpack::runtime::cuda {
namespace {

// Uploads up to this size go through pinned memory; the host does not wait for them.
constexpr size_t kSmall = 16 << 10;
constexpr size_t kStaging = 256 << 10;

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

bool is_special(const void* handle) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  return value == 1 || value == 2;
}

// Memory of the device for the time of a copy; freeing it waits for the work that uses it.
class Scratch {
 public:
  Scratch(CudaDevice& device, size_t bytes) : driver_(device.driver()) {
    device.check(driver_.cuMemAlloc_v2(&address_, bytes), format("allocating %zu bytes for a copy", bytes));
  }
  ~Scratch() { driver_.cuMemFree_v2(address_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  const Driver& driver_;
  Address address_ = 0;
};

size_t bytes_of(const int64_t* sizes, int32_t rank, size_t item) {
  size_t bytes = item;
  for (int32_t axis = 0; axis < rank; ++axis) bytes *= static_cast<size_t>(sizes[axis]);
  return bytes;
}

// The dense strides whose axes lie in the order of those of a view.
void dense_like(const int64_t* strides, const int64_t* sizes, int32_t rank, size_t item, int64_t* out) {
  uint32_t order[StridedCopy::kMaxRank];
  for (int32_t axis = 0; axis < rank; ++axis) order[axis] = static_cast<uint32_t>(axis);
  std::stable_sort(order, order + rank,
                   [&](uint32_t a, uint32_t b) { return std::abs(strides[a]) > std::abs(strides[b]); });
  size_t bytes = 0;
  (void)dense_strides(sizes, order, rank, item, out, &bytes);  // no more than the view, which is in memory
}

}  // namespace

CudaStream::Pinned::Pinned(CudaDevice& owner, size_t bytes) : device(owner) {
  void* memory = nullptr;
  device.check(device.driver().cuMemHostAlloc(&memory, bytes, 0), "allocating pinned memory");
  data = static_cast<char*>(memory);
}

CudaStream::Pinned::~Pinned() { device.driver().cuMemFreeHost(data); }

CudaStream::CudaStream(CudaDevice& device) : device_(device), driver_(device.driver()) {
  const Current current(device_);
  device_.check(driver_.cuStreamCreate(&stream_, kNonBlocking), "creating a stream");
}

CudaStream::CudaStream(CudaDevice& device, void* borrowed)
    : device_(device), driver_(device.driver()), stream_(static_cast<StreamHandle>(borrowed)), is_own_(false) {
  const Current current(device_);
  if (is_special(borrowed)) return;
  ContextHandle context = nullptr;
  const Result result = driver_.cuStreamGetCtx(stream_, &context);
  if (result == kSuccess && context == device_.context()) return;
  fail(AOTPACK_INVALID_ARGUMENT, "the stream %p is not one of %s%s%s", borrowed, device_.description().c_str(),
       result == kSuccess ? ": it belongs to another context" : ": ",
       result == kSuccess ? "" : driver_.describe(result).c_str());
}

CudaStream::~CudaStream() {
  try {
    const Current current(device_);
    driver_.cuStreamSynchronize(stream_);
    if (is_own_) driver_.cuStreamDestroy_v2(stream_);
    staging_.reset();
    providers_.reset();
  } catch (...) {  // the streams of a lost device are gone
  }
}

bool CudaStream::is_of_device(const void* address) const noexcept {
  unsigned type = 0;
  return driver_.cuPointerGetAttribute(&type, kPointerMemoryType, address_of(address)) == kSuccess &&
         type == kMemoryOfDevice;
}

void CudaStream::submit_copy(void* to, const void* from, size_t bytes) {
  device_.check(driver_.cuMemcpyAsync(address_of(to), address_of(from), bytes, busy()), "a copy");
}

void CudaStream::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const Current current(device_);
  if (!is_of_device(to) || !is_of_device(from)) uses_host_memory_ = true;
  submit_copy(to, from, bytes);
}

void CudaStream::copy_on_device(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const Current current(device_);
  submit_copy(to, from, bytes);
}

void CudaStream::copy_strided_on_device(void* to, const int64_t* to_strides, const void* from,
                                        const int64_t* from_strides, const int64_t* sizes, int32_t rank, size_t item) {
  if (bytes_of(sizes, rank, item) == 0) return;
  const Current current(device_);
  copy_within_device(to, to_strides, from, from_strides, sizes, rank, item);
}

void CudaStream::copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                              const int64_t* sizes, int32_t rank, size_t item) {
  if (bytes_of(sizes, rank, item) == 0) return;
  const Current current(device_);
  const bool to_device = is_of_device(to);
  const bool from_device = is_of_device(from);
  if (to_device && from_device) {
    copy_within_device(to, to_strides, from, from_strides, sizes, rank, item);
  } else if (to_device) {
    copy_from_host(to, to_strides, from, from_strides, sizes, rank, item);
  } else if (from_device) {
    copy_to_host(to, to_strides, from, from_strides, sizes, rank, item);
  } else {
    wait();
    strided_copy(to, to_strides, from, from_strides, sizes, rank, item);
  }
}

void CudaStream::copy_within_device(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                                    const int64_t* sizes, int32_t rank, size_t item) {
  const StridedCopy copy = plan_strided_copy(to, to_strides, from, from_strides, sizes, rank, item);
  if (copy.is_dense()) return submit_copy(to, from, bytes_of(sizes, rank, item));
  device_.strided_kernels().launch(device_, copy, busy());
}

// Packed on the host in the order of the destination; the kernel spreads it where that has gaps.
void CudaStream::copy_from_host(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                                const int64_t* sizes, int32_t rank, size_t item) {
  const size_t bytes = bytes_of(sizes, rank, item);
  int64_t dense[StridedCopy::kMaxRank];
  dense_like(to_strides, sizes, rank, item, dense);
  uses_host_memory_ = true;
  if (!same_layout(sizes, dense, from_strides, rank)) {
    char* packed = held_.emplace_back(new char[bytes]).get();
    strided_copy(packed, dense, from, from_strides, sizes, rank, item);
    from = packed;
  }
  if (same_layout(sizes, dense, to_strides, rank)) return submit_copy(to, from, bytes);
  const Scratch scratch(device_, bytes);
  submit_copy(scratch.data(), from, bytes);
  copy_within_device(to, to_strides, scratch.data(), dense, sizes, rank, item);
  wait();
}

void CudaStream::copy_to_host(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                              const int64_t* sizes, int32_t rank, size_t item) {
  const size_t bytes = bytes_of(sizes, rank, item);
  int64_t dense[StridedCopy::kMaxRank];
  dense_like(from_strides, sizes, rank, item, dense);
  uses_host_memory_ = true;
  std::unique_ptr<Scratch> scratch;
  if (!same_layout(sizes, dense, from_strides, rank)) {
    scratch = std::make_unique<Scratch>(device_, bytes);
    copy_within_device(scratch->data(), dense, from, from_strides, sizes, rank, item);
    from = scratch->data();
  }
  if (same_layout(sizes, dense, to_strides, rank)) {
    submit_copy(to, from, bytes);
    if (scratch != nullptr) wait();
    return;
  }
  const std::unique_ptr<char[]> packed(new char[bytes]);
  submit_copy(packed.get(), from, bytes);
  wait();
  strided_copy(to, to_strides, packed.get(), dense, sizes, rank, item);
}

void CudaStream::wait() {
  const Current current(device_);
  // To one of the caller's, others give work too.
  if (is_own_ && is_idle_) return;
  const Result result = driver_.cuStreamSynchronize(stream_);
  is_idle_ = result == kSuccess;
  // Also after a failure: nothing runs on any more then.
  uses_host_memory_ = false;
  held_.clear();
  staged_ = 0;
  device_.check(result, "the work of a stream");
}

void CudaStream::finish() {
  if (is_own_ || uses_host_memory_) wait();
}

bool CudaStream::is_captured() {
  if (is_own_ || driver_.cuStreamIsCapturing == nullptr) return false;
  const Current current(device_);
  int is_capturing = 0;
  // The legacy default stream fails while any other stream that waits for it is captured.
  return driver_.cuStreamIsCapturing(stream_, &is_capturing) != kSuccess || is_capturing != 0;
}

void CudaStream::launch(const aotpack_module_launch& launch) {
  device_.require_usable();
  const uint32_t* grid = launch.grid;
  const uint32_t* block = launch.block;
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return;
  auto* kernel = static_cast<Kernel*>(launch.code->handle);
  if (kernel == nullptr) fail(AOTPACK_DEVICE_FAILED, "kernel '%s': its asset is not device code", launch.kernel);
  const KernelHandle handle = kernel->get(launch.kernel, launch.shared_bytes);
  const auto arguments = const_cast<void**>(launch.arguments);
  Result result = kSuccess;
  // Waiting covers the kernel before it. Kernels of the caller may be started early, too, and not wait, so that work
  // before those may go on still: the first kernel of a call leaves it to the driver.
  if ((launch.flags & AOTPACK_LAUNCH_WAITS) != 0 && follows_launch_ && driver_.has_early_starts()) {
    LaunchAttribute attribute{LaunchAttribute::kStartsEarly, {}, {1}};
    const LaunchConfig config{
        {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, launch.shared_bytes, busy(), &attribute, 1};
    result = driver_.cuLaunchKernelEx(&config, handle, arguments, nullptr);
  } else {
    result = driver_.cuLaunchKernel(handle, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                    launch.shared_bytes, busy(), arguments, nullptr);
  }
  follows_launch_ = true;
  if (result != kSuccess) [[unlikely]] {
    device_.raise(result,
                  format("launching kernel '%s' (grid %u x %u x %u, block %u x %u x %u, %u bytes of shared memory)",
                         launch.kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2], launch.shared_bytes));
  }
}

void CudaStream::upload(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const Current current(device_);
  uses_host_memory_ = true;
  if (bytes > kSmall) {
    submit_copy(to, from, bytes);
    return wait();
  }
  if (staging_ == nullptr) staging_ = std::make_unique<Pinned>(device_, kStaging);
  if (staged_ + bytes > kStaging) wait();
  char* staged = staging_->data + staged_;
  staged_ += (bytes + 63) / 64 * 64;
  std::memcpy(staged, from, bytes);
  submit_copy(to, staged, bytes);
}

bool CudaStream::provide(const aotpack_module_library_call& call, WorkMemory& memory) {
  const Current current(device_);
  if (providers_ == nullptr) providers_ = std::make_unique<Providers>();
  LibraryWork work(device_, *this, memory);
  return providers_->run(call, work);
}

void CudaStream::take_over(Stream& before) { providers_ = std::move(static_cast<CudaStream&>(before).providers_); }

void CudaStream::fill(void* to, uint64_t value, size_t item, size_t count) {
  if (count == 0) return;
  const Current current(device_);
  const Address at = address_of(to);
  const auto low = static_cast<uint32_t>(value);
  const auto high = static_cast<uint32_t>(value >> 32);
  Result result = kInvalidValue;
  if (item == 1) {
    result = driver_.cuMemsetD8Async(at, static_cast<unsigned char>(value), count, busy());
  } else if (item == 2) {
    result = driver_.cuMemsetD16Async(at, static_cast<unsigned short>(value), count, busy());
  } else if (item == 4) {
    result = driver_.cuMemsetD32Async(at, low, count, busy());
  } else if (item == 8 && low == high) {
    result = driver_.cuMemsetD32Async(at, low, 2 * count, busy());
  } else if (item == 8) {
    // The halves one after the other, each as a column of a matrix.
    result = driver_.cuMemsetD2D32Async(at, 8, low, 1, count, busy());
    if (result == kSuccess) result = driver_.cuMemsetD2D32Async(at + 4, 8, high, 1, count, busy());
  }
  device_.check(result, "a fill");
}

}  // namespace aotpack::runtime::cuda
