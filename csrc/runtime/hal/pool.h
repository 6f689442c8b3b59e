// A caching allocator of data blocks: in a steady state a call takes all its memory from here, without malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace aotpack::runtime {

// Thread-safe; shared: it lives until the last reference goes. Outputs hold references, so they may outlive the context
// and be freed on any thread.
//
// Sizes fall into classes, eight to a doubling. A request takes the smallest free block that holds it, but none of more
// than twice its size (a few hundred bytes aside). What the pool holds altogether, in use and free, stays below twice
// the greatest use so far (plus a constant): beyond that the blocks that have lain free for longest go back to the
// system.
class Pool {
 public:
  // What becomes of blocks that nobody uses: they are kept for later requests, or freed at once.
  enum class Keep : uint8_t { kFree, kNothing };

  // With one reference. Throws std::bad_alloc.
  static Pool* create(Keep keep = Keep::kFree);
  void retain() noexcept;
  void release() noexcept;

  // Aligned to AOTPACK_ALIGNMENT, with one reference; NULL when there is no memory. `bytes` may be 0.
  void* allocate(size_t bytes) noexcept;
  // Adds a reference to a block of `allocate`.
  static void retain_block(void* data) noexcept;
  // Drops one; with the last the block becomes free.
  static void release_block(void* data) noexcept;

  // False the first time after `allocate`, true from then on. Lets a run count the references of blocks that several
  // outputs share. Not atomic: a block belongs to its run until it is handed out.
  static bool claim(void* data) noexcept;

  struct Statistics {
    size_t live_bytes;       // in use
    size_t cached_bytes;     // free, kept
    uint64_t system_allocs;  // blocks ever asked of the system
  };
  Statistics statistics() noexcept;

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  struct Block;
  static constexpr size_t kBins = 320;

  explicit Pool(Keep keep) noexcept : keep_(keep) {}
  ~Pool();

  static Block* block_of(void* data) noexcept;
  Block* take(size_t bin) noexcept;
  void put(Block* block) noexcept;
  void unlink(Block* block) noexcept;
  void evict_until(size_t held_bytes) noexcept;

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
};

}  // namespace aotpack::runtime
