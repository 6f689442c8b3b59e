#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "aotpack/module_abi.h"
#include "hal/pool.h"

using aotpack::runtime::Pool;

namespace {

// Releases its reference at the end of a test.
struct PoolOwner {
  Pool* pool = Pool::create();
  ~PoolOwner() { pool->release(); }
  Pool* operator->() const { return pool; }
};

}  // namespace

TEST_CASE("blocks are aligned and do not overlap, whatever their sizes") {
  const PoolOwner pool;
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
      auto* data = static_cast<uint8_t*>(pool->allocate(bytes));
      REQUIRE(data != nullptr);
      REQUIRE(reinterpret_cast<uintptr_t>(data) % AOTPACK_ALIGNMENT == 0);
      const auto mark = static_cast<uint8_t>(random());
      std::memset(data, mark, bytes);
      live.push_back({data, bytes, mark});
    } else {
      const size_t which = random() % live.size();
      const Live block = live[which];
      REQUIRE(std::all_of(block.data, block.data + block.bytes, [&](uint8_t byte) { return byte == block.mark; }));
      Pool::release_block(block.data);
      live[which] = live.back();
      live.pop_back();
    }
  }
  for (const Live& block : live) Pool::release_block(block.data);
  CHECK(pool->statistics().live_bytes == 0);
}

TEST_CASE("a steady state asks nothing of the system") {
  const PoolOwner pool;
  const auto call = [&] {
    void* a = pool->allocate(100000);
    void* b = pool->allocate(3000);
    Pool::release_block(a);
    void* c = pool->allocate(90000);
    Pool::release_block(b);
    Pool::release_block(c);
  };
  call();
  const uint64_t before = pool->statistics().system_allocs;
  for (int i = 0; i < 1000; ++i) call();
  CHECK(pool->statistics().system_allocs == before);
}

TEST_CASE("a free block serves requests down to about half its size, not smaller ones") {
  const PoolOwner pool;
  void* big = pool->allocate(1 << 20);
  Pool::release_block(big);
  void* half = pool->allocate(600 << 10);
  CHECK(half == big);
  Pool::release_block(half);
  void* small = pool->allocate(1 << 10);
  CHECK(small != big);
  Pool::release_block(small);
}

TEST_CASE("changing sizes do not make it grow without bound") {
  const PoolOwner pool;
  std::mt19937 random(6);
  size_t peak = 0;
  for (int round = 0; round < 5000; ++round) {
    const size_t bytes = (size_t{1} << 12) + random() % (size_t{1} << 22);
    void* a = pool->allocate(bytes);
    void* b = pool->allocate(bytes / 3);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    auto statistics = pool->statistics();
    peak = std::max(peak, statistics.live_bytes);
    Pool::release_block(a);
    Pool::release_block(b);
    statistics = pool->statistics();
    REQUIRE(statistics.live_bytes + statistics.cached_bytes <= 2 * peak + (size_t{8} << 20));
  }
}

TEST_CASE("no memory gives NULL, and the pool goes on") {
  const PoolOwner pool;
  CHECK(pool->allocate(SIZE_MAX) == nullptr);
  CHECK(pool->allocate(size_t{1} << 62) == nullptr);
  CHECK(pool->allocate(size_t{1} << 46) == nullptr);
  void* block = pool->allocate(10);
  CHECK(block != nullptr);
  Pool::release_block(block);
}

TEST_CASE("references: a block is free with the last one; the pool outlives its owner for a block's sake") {
  Pool* pool = Pool::create();
  auto* block = static_cast<char*>(pool->allocate(100));
  CHECK_FALSE(Pool::claim(block));
  CHECK(Pool::claim(block));
  Pool::retain_block(block);
  Pool::release_block(block);
  CHECK(pool->statistics().live_bytes > 0);
  pool->retain();
  pool->release();
  block[99] = 1;
  Pool::release_block(block);
  CHECK(pool->statistics().live_bytes == 0);
  pool->release();
}

TEST_CASE("blocks may be freed on other threads") {
  const PoolOwner pool;
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  std::atomic<char*> mailbox[kThreads] = {};
  std::vector<std::thread> threads;
  for (int self = 0; self < kThreads; ++self) {
    threads.emplace_back([&, self] {
      std::mt19937 random(static_cast<unsigned>(self));
      for (int round = 0; round < kRounds; ++round) {
        const size_t bytes = 1 + random() % 5000;
        auto* block = static_cast<char*>(pool->allocate(bytes));
        std::memset(block, self, bytes);
        char* other = mailbox[random() % kThreads].exchange(block);
        if (other != nullptr) Pool::release_block(other);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : mailbox) {
    if (slot.load() != nullptr) Pool::release_block(slot.load());
  }
  CHECK(pool->statistics().live_bytes == 0);
}
