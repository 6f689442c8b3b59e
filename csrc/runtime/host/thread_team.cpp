#include "host/thread_team.h"

#include <strings.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "host/blocked_signals.h"
#include "host/futex.h"
#include "host/team.h"

namespace aotpack::runtime {
namespace {

constexpr uint64_t kMicrosecond = 1000;
constexpr uint64_t kMillisecond = 1000 * kMicrosecond;

// How long a worker waits for the next region before it sleeps: enough for what runs in between on one thread, and for
// a thread that a hypervisor has stopped, since to wake all of them takes hundreds of microseconds. Time in which it
// waits counts as its share of the processor, so that a neighbour there gets the processor when the worker has
// something to do: beside one, it sleeps soon.
constexpr uint64_t kSpin = 400 * kMicrosecond;
constexpr uint64_t kShortSpin = 30 * kMicrosecond;
constexpr uint64_t kLongSpin = 100 * kMillisecond;
// A worker that keeps the others waiting for longer than that, and for longer than they worked, has been stopped: by
// the system, for a slice of another process's time, or by a hypervisor.
constexpr uint64_t kStopped = 200 * kMicrosecond;
// For how long it gets no parts then. The time doubles while it is stopped again soon.
constexpr uint64_t kFirstHold = 5 * kMillisecond;
constexpr uint64_t kLastHold = 1000 * kMillisecond;
// After so many times of these without another, there is no neighbour.
constexpr uint64_t kCalmHolds = 2;

constexpr uint64_t kPartsBits = 16;
constexpr uint64_t kPartsMask = (uint64_t{1} << kPartsBits) - 1;

uint64_t now_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// Of a clock that is read in few cycles.
uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t count;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return now_ns();
#endif
}

// A little less than kStopped.
uint64_t long_ticks() noexcept {
#if defined(__x86_64__)
  return 200'000;  // of at most 5 GHz: what is asked then takes less than a microsecond
#elif defined(__aarch64__)
  uint64_t per_second;
  __asm__("mrs %0, cntfrq_el0" : "=r"(per_second));
  return per_second / 10'000;
#else
  return kStopped / 2;
#endif
}

// How often the system took the processor from the calling thread. It does not know what a hypervisor does.
long context_switches() noexcept {
  rusage usage;
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw + usage.ru_nivcsw : 0;
}

uint64_t spin_of_environment() noexcept {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (policy == nullptr) return kSpin;
  if (::strcasecmp(policy, "passive") == 0) return 0;
  return ::strcasecmp(policy, "active") == 0 ? kLongSpin : kSpin;
}

// Of the calling thread, where it is made already.
thread_local ThreadTeam* team_here = nullptr;

// Whether `is_over` becomes true within `ns`.
template <typename Condition>
bool spin_until(uint64_t ns, const Condition& is_over) noexcept {
  if (is_over()) return true;
  if (ns == 0) return false;
  const uint64_t end = now_ns() + ns;
  do {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (is_over()) return true;
    }
  } while (now_ns() < end);
  return false;
}

}  // namespace

struct alignas(64) ThreadTeam::Worker {
  ThreadTeam* team;
  uint32_t index;
  uint64_t seen;  // the region before the first one that it hears of
  pthread_t thread;
  std::atomic<uint32_t> sleeps{0};
  std::atomic<bool> is_benched{false};
  uint64_t until = 0;                    // when it gets parts again
  long switches = 0;                     // its context switches, as of its last long part or sleep
  std::atomic<bool> was_switched{true};  // in its last long part
};

ThreadTeam::ThreadTeam(CpuSet cpus)
    : cpus_(std::move(cpus)),
      table_{sizeof table_, this,
             [](void* state, aotpack_module_body_fn body, void* argument, int32_t parts) {
               static_cast<ThreadTeam*>(state)->run(body, argument, parts);
             },
             [](void* state) { static_cast<ThreadTeam*>(state)->meet(); }},
      most_spin_ns_(spin_of_environment()),
      spin_ns_(most_spin_ns_),
      forks_(count_forks()) {}

ThreadTeam::~ThreadTeam() {
  leave_behind();
  end_workers();
}

// Workers of another process: only their memory is here.
void ThreadTeam::leave_behind() noexcept {
  const uint32_t forks = count_forks();
  if (forks == forks_) [[likely]]
    return;
  forks_ = forks;
  for (std::unique_ptr<Worker>& worker : workers_) static_cast<void>(worker.release());
  workers_.clear();
  benched_ = 0;
}

void ThreadTeam::end_workers() noexcept {
  is_stopping_.store(true);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->sleeps.exchange(0) != 0) futex_wake(&worker->sleeps, 1);
  }
  for (const std::unique_ptr<Worker>& worker : workers_) ::pthread_join(worker->thread, nullptr);
  workers_.clear();
  benched_ = 0;
  is_stopping_.store(false);
}

void ThreadTeam::add_workers(size_t count) noexcept {
  try {
    if (count + 1 > places_) {
      end_workers();
      places_ = std::max<size_t>(count + 1, 16);
      claims_ = std::make_unique<std::atomic<uint64_t>[]>(places_);
    }
    workers_.reserve(count);
    const BlockedSignals blocked;
    while (workers_.size() < count) {
      auto worker = std::make_unique<Worker>();
      worker->team = this;
      worker->index = static_cast<uint32_t>(workers_.size());
      worker->seen = region_.load(std::memory_order_relaxed);
      if (::pthread_create(&worker->thread, nullptr, serve, worker.get()) != 0) return;
      workers_.push_back(std::move(worker));
    }
  } catch (const std::bad_alloc&) {  // there are as many as there are
    if (claims_ == nullptr) places_ = 0;
  }
}

void* ThreadTeam::serve(void* worker) noexcept {
  auto* self = static_cast<Worker*>(worker);
  ::pthread_setname_np(::pthread_self(), "aotpack-team");
  if (!self->team->cpus_.empty()) bind_thread(self->team->cpus_);
  self->team->serve(self);
  return nullptr;
}

void ThreadTeam::serve(Worker* self) noexcept {
  const auto own = static_cast<int32_t>(self->index + 1);
  for (uint64_t seen = self->seen;;) {
    seen = wait_for_region(self, seen);
    if (is_stopping_.load(std::memory_order_relaxed)) return;
    if (own >= static_cast<int32_t>(seen & kPartsMask)) continue;
    const uint64_t began = ticks();
    const uint32_t count = work(seen, own);
    if (count == 0) continue;
    if (ticks() - began > long_ticks()) look_for_switches(self);
    last_.store(self->index, std::memory_order_relaxed);
    done_.fetch_add(count);
    if (caller_sleeps_.load() != 0) futex_wake(&done_, 1);
  }
}

void ThreadTeam::look_for_switches(Worker* self) noexcept {
  const long now = context_switches();
  self->was_switched.store(now != self->switches, std::memory_order_relaxed);
  self->switches = now;
}

// The word of a region that is not `seen`, or any when the team ends. Workers that are benched sleep through all.
uint64_t ThreadTeam::wait_for_region(Worker* self, uint64_t seen) const noexcept {
  uint64_t region = seen;
  const auto is_over = [&] {
    region = region_.load();
    return (region != seen && !self->is_benched.load()) || is_stopping_.load(std::memory_order_relaxed);
  };
  if (spin_until(self->is_benched.load() ? 0 : spin_ns_.load(std::memory_order_relaxed), is_over)) return region;
  for (;;) {
    self->sleeps.store(1);
    if (is_over()) break;
    futex_wait(&self->sleeps, 1);
  }
  self->sleeps.store(0);
  self->switches = context_switches();
  return region;
}

bool ThreadTeam::claim(int32_t part, uint64_t region) noexcept {
  std::atomic<uint64_t>& last = claims_[static_cast<size_t>(part)];
  uint64_t before = last.load(std::memory_order_relaxed);
  // Of a later region, it is none of the caller's.
  return before < region && last.compare_exchange_strong(before, region);
}

uint32_t ThreadTeam::work(uint64_t region, int32_t first) noexcept {
  // If they are those of a later region, all parts of this one have been claimed.
  const aotpack_module_body_fn body = body_.load(std::memory_order_relaxed);
  void* const argument = argument_.load(std::memory_order_relaxed);
  const auto parts = static_cast<int32_t>(region & kPartsMask);
  uint32_t count = 0;
  for (int32_t i = 0, part = first; i < parts; ++i, part = part + 1 < parts ? part + 1 : 0) {
    if (!claim(part, region)) continue;
    body(argument, part, parts);
    ++count;
  }
  return count;
}

void ThreadTeam::publish() noexcept {
  is_published_ = true;
  const uint64_t number = (region_.load(std::memory_order_relaxed) >> kPartsBits) + 1;
  const uint64_t region = number << kPartsBits | static_cast<uint64_t>(parts_);
  claims_[0].store(region, std::memory_order_relaxed);
  region_.store(region);
  wake();
}

// Workers that sleep and have a part.
void ThreadTeam::wake() noexcept {
  for (int32_t i = 0; i + 1 < parts_; ++i) {
    Worker& worker = *workers_[static_cast<size_t>(i)];
    if (worker.sleeps.load() == 0 || worker.is_benched.load(std::memory_order_relaxed)) continue;
    if (worker.sleeps.exchange(0) != 0) futex_wake(&worker.sleeps, 1);
  }
}

void ThreadTeam::run(aotpack_module_body_fn body, void* argument, int32_t parts) noexcept {
  if (parts <= 1 || inside_) return body(argument, 0, 1);
  leave_behind();
  const auto wanted = static_cast<size_t>(std::min<uint64_t>(static_cast<uint64_t>(parts), kPartsMask)) - 1;
  if (workers_.size() < wanted) [[unlikely]]
    add_workers(wanted);
  parts_ = static_cast<int32_t>(std::min(workers_.size(), wanted)) + 1;
  if (parts_ == 1) return body(argument, 0, 1);
  if (is_beside_neighbour_) [[unlikely]]
    look_for_neighbour(now_ns());
  inside_ = true;
  caller_ = ::pthread_self();
  is_published_ = false;
  const uint64_t began = ticks();
  body_.store(body, std::memory_order_relaxed);
  argument_.store(argument, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  // Where no worker gets parts, they hear of the region only if its parts meet.
  if (benched_ < workers_.size()) publish();
  body(argument, 0, parts_);
  if (is_published_) {
    const uint64_t region = region_.load(std::memory_order_relaxed);
    const uint32_t others = static_cast<uint32_t>(parts_) - 1 - work(region, 1);
    if (done_.load(std::memory_order_acquire) != others) wait_for_parts(others, ticks() - began);
  } else {
    for (int32_t part = 1; part < parts_; ++part) body(argument, part, parts_);
  }
  inside_ = false;
}

void ThreadTeam::wait_for_parts(uint32_t count, uint64_t own_ticks) noexcept {
  const auto is_over = [&] { return done_.load() == count; };
  const uint64_t began = ticks();
  const uint64_t spin = spin_ns_.load(std::memory_order_relaxed);
  if (spin_until(std::min(spin, kShortSpin), is_over)) return;
  const uint64_t waited_from = now_ns();
  if (spin <= kShortSpin || !spin_until(spin, is_over)) {
    caller_sleeps_.store(1);
    for (uint32_t done = done_.load(); done != count; done = done_.load()) futex_wait(&done_, done);
    caller_sleeps_.store(0);
  }
  if (now_ns() - waited_from > kStopped && ticks() - began > own_ticks) bench_last();
}

void ThreadTeam::bench_last() noexcept {
  Worker& worker = *workers_[last_.load(std::memory_order_relaxed)];
  // One that only a hypervisor stopped has no neighbour that gains by its absence, and is as good as the others.
  if (!worker.was_switched.load(std::memory_order_relaxed)) return;
  const uint64_t now = now_ns();
  // Soon again: as long as it was kept from work before.
  const bool is_soon = now < last_release_ + std::max(hold_ns_, kFirstHold);
  hold_ns_ = is_soon && hold_ns_ != 0 ? std::min(2 * hold_ns_, kLastHold) : kFirstHold;
  worker.until = now + hold_ns_;
  last_release_ = std::max(last_release_, worker.until);
  if (!worker.is_benched.exchange(true)) ++benched_;
  is_beside_neighbour_ = true;
  spin_ns_.store(std::min(most_spin_ns_, kShortSpin), std::memory_order_relaxed);
}

void ThreadTeam::look_for_neighbour(uint64_t now) noexcept {
  if (now > last_release_ + kCalmHolds * hold_ns_) {
    is_beside_neighbour_ = false;
    spin_ns_.store(most_spin_ns_, std::memory_order_relaxed);
  }
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (!worker->is_benched.load(std::memory_order_relaxed) || worker->until > now) continue;
    worker->is_benched.store(false);
    --benched_;
  }
}

// The caller is the one that can see to it that each part has a thread.
void ThreadTeam::let_all_work() noexcept {
  benched_ = 0;
  for (const std::unique_ptr<Worker>& worker : workers_) worker->is_benched.store(false);
  if (!is_published_) return publish();
  wake();
}

void ThreadTeam::meet() noexcept {
  if (parts_ == 1) return;
  if (::pthread_equal(::pthread_self(), caller_) && (benched_ != 0 || !is_published_)) [[unlikely]]
    let_all_work();
  const uint32_t meeting = meetings_.load();
  if (arrived_.fetch_add(1) + 1 == static_cast<uint32_t>(parts_)) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1);
    if (sleepers_.load() != 0) futex_wake(&meetings_, INT32_MAX);
    return;
  }
  const auto is_over = [&] { return meetings_.load() != meeting; };
  if (spin_until(spin_ns_.load(std::memory_order_relaxed), is_over)) return;
  sleepers_.fetch_add(1);
  while (!is_over()) futex_wait(&meetings_, meeting);
  sleepers_.fetch_sub(1);
}

ThreadTeam* ThreadTeam::of_thread() noexcept {
  if (team_here != nullptr) [[likely]]
    return team_here;
  thread_local struct Own {
    ~Own() {
      is_over = true;
      team_here = nullptr;
    }
    std::unique_ptr<ThreadTeam> team;
    bool is_over = false;
  } own;
  if (!own.is_over) own.team.reset(new (std::nothrow) ThreadTeam());
  return team_here = own.team.get();
}

}  // namespace aotpack::runtime
