#include "hal/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "aotpack/module_abi.h"

namespace aotpack::runtime {

// Of memory that the host has access to, lies right before the data; of other memory, on its own.
struct alignas(AOTPACK_ALIGNMENT) Allocator::Block {
  Allocator* allocator;
  void* data;
  size_t bytes;  // with this header
  Block* next;   // in its bin
  Block* previous;
  Block* newer;  // by age
  Block* older;
  std::atomic<uint32_t> references;
  uint16_t bin;
  bool claimed;
  bool pooled;  // in the pool
};

namespace {

constexpr size_t kUnit = AOTPACK_ALIGNMENT;
constexpr size_t kMaxBytes = size_t{1} << 46;
// Free memory that is always worth keeping.
constexpr size_t kSlack = size_t{8} << 20;
// A block of this many classes more is at most twice as large.
constexpr size_t kClassesPerDoubling = 8;

// Classes are like floating-point numbers with three bits of mantissa: 1, 2, ..., 8 units, then 9, 10, ..., 16, then
// 18, 20,
// ... A class never wastes more than an eighth.
size_t bin_of(size_t units) noexcept {
  const size_t last = units - 1;
  if (last < kClassesPerDoubling) return last;
  const size_t exponent = static_cast<size_t>(std::bit_width(last)) - 4;
  return kClassesPerDoubling * (1 + exponent) + ((last >> exponent) & (kClassesPerDoubling - 1));
}

size_t units_of(size_t bin) noexcept {
  if (bin < kClassesPerDoubling) return bin + 1;
  const size_t exponent = bin / kClassesPerDoubling - 1;
  return (kClassesPerDoubling + bin % kClassesPerDoubling + 1) << exponent;
}

}  // namespace

Allocator* Allocator::create(Device& device, Keep keep) { return new Allocator(device, keep); }

void Allocator::retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }

void Allocator::release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

Allocator::~Allocator() { evict_until(0); }

Allocator::Block* Allocator::header_of(void* block) noexcept { return static_cast<Block*>(block) - 1; }

void Allocator::unlink(Block* block) noexcept {
  (block->previous != nullptr ? block->previous->next : bins_[block->bin]) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  if (bins_[block->bin] == nullptr) filled_[block->bin / 64] &= ~(uint64_t{1} << block->bin % 64);
  (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
  (block->newer != nullptr ? block->newer->older : newest_) = block->older;
  cached_ -= block->bytes;
}

void Allocator::put(Block* block) noexcept {
  block->previous = nullptr;
  block->next = bins_[block->bin];
  if (block->next != nullptr) block->next->previous = block;
  bins_[block->bin] = block;
  filled_[block->bin / 64] |= uint64_t{1} << block->bin % 64;
  block->newer = nullptr;
  block->older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = block;
  newest_ = block;
  cached_ += block->bytes;
}

// The smallest free block of class `bin` or of a larger one before `end`.
Allocator::Block* Allocator::take(size_t bin, size_t end) noexcept {
  size_t word = bin / 64;
  uint64_t candidates = filled_[word] & (~uint64_t{0} << bin % 64);
  while (candidates == 0) {
    if (++word * 64 >= std::min(end, kBins)) return nullptr;
    candidates = filled_[word];
  }
  const size_t found = word * 64 + static_cast<size_t>(std::countr_zero(candidates));
  if (found >= end) return nullptr;
  Block* block = bins_[found];
  unlink(block);
  return block;
}

void Allocator::evict_until(size_t held_bytes) noexcept {
  while (oldest_ != nullptr && live_ + cached_ > held_bytes) {
    Block* block = oldest_;
    unlink(block);
    give_back(block);
  }
}

// A block of so many bytes with its header.
Allocator::Block* Allocator::obtain(size_t bytes) noexcept {
  const bool is_host = device_.is_host();
  void* memory = huge_ ? pool_.allocate(bytes, kUnit) : nullptr;
  const bool pooled = memory != nullptr;
  if (!pooled) memory = device_.allocate(is_host ? bytes : bytes - sizeof(Block), kUnit);
  if (memory == nullptr) return nullptr;
  Block* block = is_host ? ::new (memory) Block() : new (std::nothrow) Block();
  if (block == nullptr) {
    device_.free(memory);
    return nullptr;
  }
  block->allocator = this;
  block->data = is_host ? block + 1 : memory;
  block->bytes = bytes;
  block->pooled = pooled;
  return block;
}

void Allocator::give_back(Block* block) noexcept {
  if (device_.is_host()) {
    const bool pooled = block->pooled;
    const size_t bytes = block->bytes;
    block->~Block();
    if (pooled) {
      pool_.free(block, bytes);
    } else {
      device_.free(block);
    }
  } else {
    device_.free(block->data);
    delete block;
  }
}

void* Allocator::allocate(size_t bytes) noexcept {
  if (bytes > kMaxBytes) return nullptr;
  const size_t bin = bin_of(std::max<size_t>((bytes + kUnit - 1) / kUnit, 1));
  const std::lock_guard lock(mutex_);
  Block* block = take(bin, std::min(bin + kClassesPerDoubling + 1, kBins));
  const size_t size = sizeof(Block) + units_of(bin) * kUnit;
  const size_t bound = 2 * std::max(peak_, live_ + size) + kSlack;
  // A larger block rather than none: what would be freed for a new one, the same calls ask for again later.
  if (block == nullptr && live_ + cached_ + size > bound) block = take(bin, kBins);
  if (block == nullptr) {
    evict_until(bound - std::min(bound, size));
    block = obtain(size);
    if (block == nullptr) {
      evict_until(0);
      block = obtain(size);
      if (block == nullptr) return nullptr;
    }
    block->bin = static_cast<uint16_t>(bin);
    ++system_allocs_;
  }
  block->references.store(1, std::memory_order_relaxed);
  block->claimed = false;
  live_ += block->bytes;
  peak_ = std::max(peak_, live_);
  return block + 1;
}

void Allocator::use_huge_pages() noexcept {
  const std::lock_guard lock(mutex_);
  huge_ = device_.is_host();
}

void* Allocator::data(void* block) noexcept { return header_of(block)->data; }

void Allocator::retain_block(void* block) noexcept {
  header_of(block)->references.fetch_add(1, std::memory_order_relaxed);
}

void Allocator::release_block(void* block) noexcept {
  Block* header = header_of(block);
  if (header->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Allocator* allocator = header->allocator;
  const std::lock_guard lock(allocator->mutex_);
  allocator->live_ -= header->bytes;
  allocator->put(header);
  if (allocator->keep_ == Keep::kNothing) allocator->evict_until(0);
}

bool Allocator::claim(void* block) noexcept {
  Block* header = header_of(block);
  const bool before = header->claimed;
  header->claimed = true;
  return before;
}

Allocator::Statistics Allocator::statistics() noexcept {
  const std::lock_guard lock(mutex_);
  return {live_, cached_, system_allocs_};
}

}  // namespace aotpack::runtime
