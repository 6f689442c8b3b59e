#include "host/team.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace aotpack::runtime {
namespace {

// How many forks lie between the first process and this one.
std::atomic<uint32_t> forks{0};

void watch_forks() noexcept {
  [[maybe_unused]] static const int watched =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

// Of the calling thread.
struct Team {
  int32_t tried = 1;
  int32_t possible = 1;
  bool used = false;
  uint32_t forks = 0;  // when it was used
};
thread_local Team team;

// Holds the threads of a probe until all are there.
struct Gate {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  bool open = false;
};

// libomp, clang's OpenMP, ends the process where it cannot create a thread, and its threads allocate: each of the first
// of a process reserves an arena of address space for that. libgomp's do neither.
#ifdef __clang__
constexpr bool kThreadsAllocate = true;
#else
constexpr bool kThreadsAllocate = false;
#endif

void* wait_at(void* argument) {
  auto* gate = static_cast<Gate*>(argument);
  if (kThreadsAllocate) {
    void* volatile memory = std::malloc(1);
    std::free(memory);
  }
  ::pthread_mutex_lock(&gate->mutex);
  while (!gate->open) ::pthread_cond_wait(&gate->condition, &gate->mutex);
  ::pthread_mutex_unlock(&gate->mutex);
  return nullptr;
}

}  // namespace

uint32_t count_forks() noexcept {
  watch_forks();
  return forks.load(std::memory_order_relaxed);
}

int32_t creatable_threads(int32_t wanted) noexcept {
  if (wanted <= 0) return 0;
  const std::unique_ptr<pthread_t[]> threads(new (std::nothrow) pthread_t[static_cast<size_t>(wanted)]);
  if (threads == nullptr) return 0;
  Gate gate;
  int32_t made = 0;
  while (made < wanted && ::pthread_create(&threads[static_cast<size_t>(made)], nullptr, wait_at, &gate) == 0) ++made;
  ::pthread_mutex_lock(&gate.mutex);
  gate.open = true;
  ::pthread_cond_broadcast(&gate.condition);
  ::pthread_mutex_unlock(&gate.mutex);
  for (int32_t i = 0; i < made; ++i) ::pthread_join(threads[static_cast<size_t>(i)], nullptr);
  return made;
}

int32_t possible_threads(int32_t wanted) noexcept {
  if (wanted > team.tried) [[unlikely]] {
    // Where not all can be created, some are left for others: the process needs a thread now and then, and what OpenMP
    // creates is not what was created here.
    int32_t made = creatable_threads(wanted - 1);
    // Counted again with the arenas in place.
    if (kThreadsAllocate && made < wanted - 1) made = creatable_threads(made);
    const int32_t left = kThreadsAllocate ? 4 : 2;
    team.possible = made == wanted - 1 ? wanted : std::max(made + 1 - left, 1);
    team.tried = wanted;
  }
  return std::max(std::min(wanted, team.possible), 1);
}

int32_t begin_team(int32_t wanted) noexcept {
  if (wanted <= 1) return 1;
  watch_forks();
  const uint32_t now = forks.load(std::memory_order_relaxed);
  if (team.used && team.forks != now) [[unlikely]]
    return 1;
  const int32_t size = possible_threads(wanted);
  if (size > 1) {
    team.used = true;
    team.forks = now;
  }
  return size;
}

}  // namespace aotpack::runtime
