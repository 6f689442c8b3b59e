// Caches the memory of a device: in a steady state a call takes all its memory from here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "hal/device.h"
#include "hal/huge_pool.h"

namespace aotpack::runtime {

// Thread-safe; shared: it lives until the last reference goes. Outputs hold references, so they may outlive the context
// and be freed on any thread.
//
// Sizes fall into classes, eight to a doubling. A request takes the smallest free block that holds it, unless that
// block is more than twice as large (plus a few hundred bytes). The pool holds less than twice the greatest use so far
// (plus a constant), used and free blocks together: before it would hold more, a request takes a larger block, and
// where there is none, the blocks that have been free for longest are freed.
class Allocator {
 public:
  // Whether unused blocks are kept for later requests or freed at once.
  enum class Keep : uint8_t { kFree, kNothing };

  // With one reference. Throws std::bad_alloc.
  static Allocator* create(Device& device, Keep keep = Keep::kFree);
  // Whether a block is its data, because the host has access to it.
  bool is_host() const noexcept { return device_.is_host(); }
  void retain() noexcept;
  void release() noexcept;

  // A block with one reference; NULL when there is no memory. `bytes` may be 0. The pointer identifies the block. If
  // the host has access to the data, it is their address; otherwise it is the address of nothing else.
  void* allocate(size_t bytes) noexcept;
  // Its memory on the device, aligned to AOTPACK_ALIGNMENT.
  static void* data(void* block) noexcept;
  // Adds a reference.
  static void retain_block(void* block) noexcept;
  // Drops a reference. The block becomes free with the last one.
  static void release_block(void* block) noexcept;

  // False the first time after `allocate`, true from then on. Lets a run count the references of blocks that several
  // outputs share. Not atomic: a block belongs to its run until it is handed out.
  static bool claim(void* block) noexcept;

  // From now on, blocks of memory of the host are taken from huge pages, together: for contexts whose calls use most of
  // the memory that they ask for, again and again.
  void use_huge_pages() noexcept;

  struct Statistics {
    size_t live_bytes;       // in use
    size_t cached_bytes;     // free, kept
    uint64_t system_allocs;  // allocations from the system so far
  };
  Statistics statistics() noexcept;

  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

 private:
  struct Block;
  static constexpr size_t kBins = 320;

  Allocator(Device& device, Keep keep) noexcept : device_(device), keep_(keep) {}
  ~Allocator();

  static Block* header_of(void* block) noexcept;
  Block* obtain(size_t bytes) noexcept;
  void give_back(Block* block) noexcept;
  Block* take(size_t bin, size_t end) noexcept;
  void put(Block* block) noexcept;
  void unlink(Block* block) noexcept;
  void evict_until(size_t held_bytes) noexcept;

  Device& device_;
  const Keep keep_;
  std::atomic<size_t> references_{1};
  std::mutex mutex_;
  Block* bins_[kBins] = {};           // free blocks by class
  uint64_t filled_[kBins / 64] = {};  // which bins are not empty
  Block* oldest_ = nullptr;           // free blocks by the time since when they are free
  Block* newest_ = nullptr;
  size_t live_ = 0;
  size_t cached_ = 0;
  size_t peak_ = 0;
  uint64_t system_allocs_ = 0;
  bool huge_ = false;
  HugePool pool_;
};

}  // namespace aotpack::runtime
