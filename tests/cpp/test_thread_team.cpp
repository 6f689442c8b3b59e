// The threads that share parallel regions.
#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "host/thread_team.h"

using aotpack::runtime::cpus_of_thread;
using aotpack::runtime::CpuSet;
using aotpack::runtime::ThreadTeam;

namespace {

// Calls `body(part, parts)` for a region.
template <typename Body>
void region(ThreadTeam& team, int32_t parts, const Body& body) {
  team.run([](void* argument, int32_t part, int32_t count) { (*static_cast<const Body*>(argument))(part, count); },
           const_cast<Body*>(&body), parts);
}

void wait(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

TEST_CASE("team: each part of a region runs once, whatever their number") {
  ThreadTeam team;
  for (const int32_t parts : {1, 2, 3, 8, 2, 40, 4, 1, 17}) {
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(parts));
      // Not atomic: what parts write is there when the region ends.
      std::vector<int> values(static_cast<size_t>(parts), 0);
      region(team, parts, [&](int32_t part, int32_t count) {
        CHECK(count == parts);
        calls[static_cast<size_t>(part)].fetch_add(1);
        values[static_cast<size_t>(part)] = round + part;
      });
      for (int32_t part = 0; part < parts; ++part) {
        REQUIRE(calls[static_cast<size_t>(part)].load() == 1);
        REQUIRE(values[static_cast<size_t>(part)] == round + part);
      }
    }
  }
  CHECK(team.workers() == 39);
}

TEST_CASE("team: workers that sleep are there for the next region") {
  ThreadTeam team;
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> count{0};
    region(team, 4, [&](int32_t, int32_t) { count.fetch_add(1); });
    CHECK(count.load() == 4);
    wait(round % 3);
  }
}

TEST_CASE("team: parts that meet are there at the same time") {
  ThreadTeam team;
  for (const int32_t parts : {2, 5, 3}) {
    for (int round = 0; round < 100; ++round) {
      std::vector<int> stage(static_cast<size_t>(parts), 0);
      region(team, parts, [&](int32_t part, int32_t) {
        for (int step = 1; step <= 5; ++step) {
          stage[static_cast<size_t>(part)] = step;
          team.meet();
          for (const int each : stage) CHECK(each == step);
          team.meet();
        }
      });
    }
  }
}

TEST_CASE("team: a region inside of a region has one part") {
  ThreadTeam team;
  std::atomic<int> calls{0};
  region(team, 3, [&](int32_t part, int32_t) {
    if (part != 0) return;
    region(team, 3, [&](int32_t inner, int32_t count) {
      CHECK(inner == 0);
      CHECK(count == 1);
      calls.fetch_add(1);
    });
  });
  CHECK(calls.load() == 1);
}

TEST_CASE("team: who keeps the others waiting gets no parts for a while, and then again") {
  ThreadTeam team;
  const std::thread::id caller = std::this_thread::get_id();
  // On a busy machine workers may never begin: then the caller does all.
  bool has_stopped = false;
  for (int round = 0; round < 100 && !has_stopped; ++round) {
    std::atomic<bool> has_begun{false};
    region(team, 2, [&](int32_t part, int32_t) {
      if (std::this_thread::get_id() != caller) {
        has_begun = true;
        wait(5);  // stopped by the system, as far as others see
      } else if (part == 0) {
        for (int i = 0; i < 50 && !has_begun; ++i) std::this_thread::yield();
      }
    });
    has_stopped = team.is_disturbed();
  }
  REQUIRE(has_stopped);
  int others = 0;
  region(team, 2, [&](int32_t, int32_t) { others += std::this_thread::get_id() != caller ? 1 : 0; });
  CHECK(others == 0);
  // Where parts meet, it takes part all the same.
  std::atomic<int> met{0};
  region(team, 2, [&](int32_t, int32_t) {
    team.meet();
    met.fetch_add(1);
  });
  CHECK(met.load() == 2);
  CHECK_FALSE(team.is_disturbed());
  // Its time ends by itself, too.
  for (int round = 0; round < 200 && !team.is_disturbed(); ++round) {
    region(team, 2, [&](int32_t, int32_t) {
      if (std::this_thread::get_id() != caller) wait(5);
    });
  }
  for (int round = 0; round < 400 && team.is_disturbed(); ++round) {
    wait(5);
    region(team, 2, [](int32_t, int32_t) {});
  }
  CHECK_FALSE(team.is_disturbed());
}

TEST_CASE("team: who only takes long keeps its parts") {
  ThreadTeam team;
  const std::thread::id caller = std::this_thread::get_id();
  // On a busy machine the worker may be stopped, too.
  bool is_kept = false;
  for (int round = 0; round < 100 && !is_kept; ++round) {
    std::atomic<bool> has_begun{false};
    region(team, 2, [&](int32_t part, int32_t) {
      if (std::this_thread::get_id() != caller) {
        has_begun = true;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
        while (std::chrono::steady_clock::now() < end) {
        }
      } else if (part == 0) {
        for (int i = 0; i < 50 && !has_begun; ++i) std::this_thread::yield();
      }
    });
    is_kept = has_begun && !team.is_disturbed();
    if (!is_kept) wait(5);
  }
  CHECK(is_kept);
}

TEST_CASE("team: workers run on the CPUs that they are bound to") {
  const CpuSet cpus = cpus_of_thread();
  const CpuSet last = {cpus.back()};
  ThreadTeam team(last);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> seen{0};
  for (int round = 0; round < 1000 && seen.load() == 0; ++round) {
    region(team, 3, [&](int32_t, int32_t) {
      if (std::this_thread::get_id() == caller) return wait(1);
      CHECK(cpus_of_thread() == last);
      seen.fetch_add(1);
    });
  }
  CHECK(seen.load() > 0);
  CHECK(cpus_of_thread() == cpus);
}

TEST_CASE("team: of each thread its own") {
  ThreadTeam* here = ThreadTeam::of_thread();
  REQUIRE(here != nullptr);
  CHECK(ThreadTeam::of_thread() == here);
  std::vector<std::thread> threads;
  std::atomic<int> sum{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ThreadTeam* own = ThreadTeam::of_thread();
      CHECK(own != here);
      for (int round = 0; round < 200; ++round) region(*own, 3, [&](int32_t part, int32_t) { sum.fetch_add(part); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sum.load() == 4 * 200 * 3);
}
