#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "aotpack/module_abi.h"
#include "hal/allocator.h"
#include "hal/cpu/device.h"

using aotpack::runtime::Allocator;
using aotpack::runtime::cpu_device;

namespace {

// Releases its reference at the end of a test.
struct Owner {
  Allocator* allocator = Allocator::create(cpu_device());
  ~Owner() { allocator->release(); }
  Allocator* operator->() const { return allocator; }
};

}  // namespace

TEST_CASE("blocks are aligned and do not overlap, whatever their sizes") {
  const Owner allocator;
  std::mt19937 random(5);
  struct Live {
    uint8_t* data;
    size_t bytes;
    uint8_t mark;
  };
  std::vector<Live> live;
  for (int round = 0; round < 20000; ++round) {
    if (live.size() < 40 || random() % 2 == 0) {
      const size_t bytes = random() % (size_t{1} << random() % 18);
      auto* data = static_cast<uint8_t*>(allocator->allocate(bytes));
      REQUIRE(data != nullptr);
      REQUIRE(reinterpret_cast<uintptr_t>(data) % AOTPACK_ALIGNMENT == 0);
      const auto mark = static_cast<uint8_t>(random());
      std::memset(data, mark, bytes);
      live.push_back({data, bytes, mark});
    } else {
      const size_t which = random() % live.size();
      const Live block = live[which];
      REQUIRE(std::all_of(block.data, block.data + block.bytes, [&](uint8_t byte) { return byte == block.mark; }));
      Allocator::release_block(block.data);
      live[which] = live.back();
      live.pop_back();
    }
  }
  for (const Live& block : live) Allocator::release_block(block.data);
  CHECK(allocator->statistics().live_bytes == 0);
}

TEST_CASE("a steady state asks nothing of the system") {
  const Owner allocator;
  const auto call = [&] {
    void* a = allocator->allocate(100000);
    void* b = allocator->allocate(3000);
    Allocator::release_block(a);
    void* c = allocator->allocate(90000);
    Allocator::release_block(b);
    Allocator::release_block(c);
  };
  call();
  const uint64_t before = allocator->statistics().system_allocs;
  for (int i = 0; i < 1000; ++i) call();
  CHECK(allocator->statistics().system_allocs == before);
}

TEST_CASE("a free block serves requests down to about half its size, not smaller ones") {
  const Owner allocator;
  void* big = allocator->allocate(1 << 20);
  Allocator::release_block(big);
  void* half = allocator->allocate(600 << 10);
  CHECK(half == big);
  Allocator::release_block(half);
  void* small = allocator->allocate(1 << 10);
  CHECK(small != big);
  Allocator::release_block(small);
}

TEST_CASE("before the pool grows beyond its bound, a request takes a larger block") {
  const Owner allocator;
  constexpr size_t kLarge = size_t{64} << 20;
  const auto call = [&] {
    void* small[24];
    for (void*& block : small) block = allocator->allocate(size_t{3} << 20);
    for (void* block : small) Allocator::release_block(block);
    Allocator::release_block(allocator->allocate(kLarge));
    for (int i = 0; i < 24; ++i) small[i] = allocator->allocate((size_t{1} << 20) + static_cast<size_t>(i));
    for (void* block : small) Allocator::release_block(block);
  };
  for (int i = 0; i < 3; ++i) call();
  const uint64_t before = allocator->statistics().system_allocs;
  for (int i = 0; i < 10; ++i) call();
  CHECK(allocator->statistics().system_allocs == before);
}

TEST_CASE("with huge pages, blocks are what they are without") {
  Allocator* allocator = Allocator::create(cpu_device());
  void* before = allocator->allocate(5000);
  allocator->use_huge_pages();
  std::vector<void*> blocks;
  for (size_t bytes = 1; bytes < (size_t{40} << 20); bytes *= 3) {
    blocks.push_back(allocator->allocate(bytes));
    REQUIRE(blocks.back() != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(blocks.back()) % AOTPACK_ALIGNMENT == 0);
    std::memset(blocks.back(), 1, bytes);
  }
  for (void* block : blocks) Allocator::release_block(block);
  const uint64_t allocations = allocator->statistics().system_allocs;
  Allocator::release_block(allocator->allocate(size_t{1} << 20));
  CHECK(allocator->statistics().system_allocs == allocations);
  Allocator::release_block(before);
  // The pool goes with the last block.
  void* last = allocator->allocate(1 << 20);
  allocator->retain();
  allocator->release();
  std::memset(last, 1, 1 << 20);
  Allocator::release_block(last);
  allocator->release();
}

TEST_CASE("changing sizes do not make it grow without bound") {
  const Owner allocator;
  std::mt19937 random(6);
  size_t peak = 0;
  for (int round = 0; round < 5000; ++round) {
    const size_t bytes = (size_t{1} << 12) + random() % (size_t{1} << 22);
    void* a = allocator->allocate(bytes);
    void* b = allocator->allocate(bytes / 3);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    auto statistics = allocator->statistics();
    peak = std::max(peak, statistics.live_bytes);
    Allocator::release_block(a);
    Allocator::release_block(b);
    statistics = allocator->statistics();
    REQUIRE(statistics.live_bytes + statistics.cached_bytes <= 2 * peak + (size_t{8} << 20));
  }
}

TEST_CASE("no memory gives NULL, and the allocator goes on") {
  const Owner allocator;
  CHECK(allocator->allocate(SIZE_MAX) == nullptr);
  CHECK(allocator->allocate(size_t{1} << 62) == nullptr);
  CHECK(allocator->allocate(size_t{1} << 46) == nullptr);
  void* block = allocator->allocate(10);
  CHECK(block != nullptr);
  Allocator::release_block(block);
}

TEST_CASE("references: a block is free with the last one; the allocator outlives its owner for a block's sake") {
  Allocator* allocator = Allocator::create(cpu_device());
  auto* block = static_cast<char*>(allocator->allocate(100));
  CHECK_FALSE(Allocator::claim(block));
  CHECK(Allocator::claim(block));
  Allocator::retain_block(block);
  Allocator::release_block(block);
  CHECK(allocator->statistics().live_bytes > 0);
  allocator->retain();
  allocator->release();
  block[99] = 1;
  Allocator::release_block(block);
  CHECK(allocator->statistics().live_bytes == 0);
  allocator->release();
}

TEST_CASE("blocks may be freed on other threads") {
  const Owner allocator;
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  std::atomic<char*> mailbox[kThreads] = {};
  std::vector<std::thread> threads;
  for (int self = 0; self < kThreads; ++self) {
    threads.emplace_back([&, self] {
      std::mt19937 random(static_cast<unsigned>(self));
      for (int round = 0; round < kRounds; ++round) {
        const size_t bytes = 1 + random() % 5000;
        auto* block = static_cast<char*>(allocator->allocate(bytes));
        std::memset(block, self, bytes);
        char* other = mailbox[random() % kThreads].exchange(block);
        if (other != nullptr) Allocator::release_block(other);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : mailbox) {
    if (slot.load() != nullptr) Allocator::release_block(slot.load());
  }
  CHECK(allocator->statistics().live_bytes == 0);
}
