#include "hal/cuda/upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "hal/cuda/current.h"
#include "hal/cuda/stream.h"
#include "host/file_map.h"

namespace aotpack::runtime::cuda {
namespace {

// Below this, pinned memory costs more than it saves.
constexpr size_t kSmall = size_t{4} << 20;
constexpr size_t kChunk = size_t{4} << 20;
// One reads pages at 5 to 10 GB/s, the bus takes 25 to 55.
constexpr size_t kMaxThreads = 6;
constexpr size_t kSlots = 2;  // of each thread

struct Chunk {
  char* to;
  const char* from;
  size_t bytes;
  bool once;
};

// The chunks, which threads take one after another, and the first failure.
class Work {
 public:
  explicit Work(const std::vector<Transfer>& transfers) {
    for (const Transfer& transfer : transfers) {
      for (size_t at = 0; at < transfer.bytes; at += kChunk) {
        chunks_.push_back({static_cast<char*>(transfer.to) + at, static_cast<const char*>(transfer.from) + at,
                           std::min(kChunk, transfer.bytes - at), transfer.once});
      }
    }
  }

  const Chunk* next() {
    const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    return index < chunks_.size() ? &chunks_[index] : nullptr;
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
    next_.store(chunks_.size(), std::memory_order_relaxed);
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::vector<Chunk> chunks_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
};

// A piece of pinned memory and when the device has read it.
class Slot {
 public:
  explicit Slot(CudaDevice& device) : device_(device), driver_(device.driver()) {
    device_.check(driver_.cuMemHostAlloc(&memory_, kChunk, 0), "allocating pinned memory");
    const Result result = driver_.cuEventCreate(&read_, kDisableTiming);
    if (result == kSuccess) return;
    driver_.cuMemFreeHost(memory_);
    device_.check(result, "creating an event");
  }
  ~Slot() {
    driver_.cuEventSynchronize(read_);  // one that was never recorded is past
    driver_.cuEventDestroy_v2(read_);
    driver_.cuMemFreeHost(memory_);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void send(const Chunk& chunk, StreamHandle stream) {
    device_.check(driver_.cuEventSynchronize(read_), "an upload");
    std::memcpy(memory_, chunk.from, chunk.bytes);
    // Else a process that serves from a GPU would count all weights as its memory.
    if (chunk.once) FileMap::forget({static_cast<const uint8_t*>(static_cast<const void*>(chunk.from)), chunk.bytes});
    device_.check(driver_.cuMemcpyAsync(reinterpret_cast<Address>(chunk.to), reinterpret_cast<Address>(memory_),
                                        chunk.bytes, stream),
                  "an upload");
    device_.check(driver_.cuEventRecord(read_, stream), "an upload");
  }

 private:
  CudaDevice& device_;
  const Driver& driver_;
  void* memory_ = nullptr;
  EventHandle read_ = nullptr;
};

void run(CudaDevice& device, Work* work) noexcept {
  try {
    const Current current(device);
    CudaStream stream(device);
    const StreamHandle handle = stream.busy();
    Slot slots[kSlots] = {Slot(device), Slot(device)};
    size_t turn = 0;
    while (const Chunk* chunk = work->next()) slots[turn++ % kSlots].send(*chunk, handle);
    stream.wait();
  } catch (...) {
    work->fail(std::current_exception());
  }
}

}  // namespace

void upload_all(CudaDevice& device, const std::vector<Transfer>& transfers) {
  size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.bytes;
  if (bytes <= kSmall) {
    CudaStream stream(device);
    for (const Transfer& transfer : transfers) stream.copy(transfer.to, transfer.from, transfer.bytes);
    return stream.wait();
  }
  Work work(transfers);
  const size_t useful = std::min({kMaxThreads, bytes / (kSlots * kChunk), size_t{std::thread::hardware_concurrency()}});
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < useful; ++i) others.emplace_back(run, std::ref(device), &work);
  } catch (const std::system_error&) {  // fewer threads do as well
  }
  run(device, &work);
  for (std::thread& other : others) other.join();
  work.rethrow();
}

}  // namespace aotpack::runtime::cuda
