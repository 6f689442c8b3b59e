// Parallel regions on the threads that the runtime gives to a call (aotpack_module_team).
//
// Generated code and kernels are written with OpenMP. What GCC makes of the constructs that they have are calls of the
// functions below, by the names that libgomp has for them (libgomp's manual, "Implementing ... construct"). As hidden
// functions of the module they go before libgomp's, which it does not link: a construct that is not here is an
// undefined symbol when the module is linked. Modules of clang, or with kernels of the user, have an OpenMP runtime
// instead and leave this file out.
#if !defined(__clang__)

#include <atomic>
#include <cstddef>

#include "tensor.h"

namespace aotpack::module {
namespace {

struct Region {
  void (*function)(void*);
  void* data;
  const aotpack_module_team* team;
  std::atomic<uint32_t> singles{0};  // `omp single` constructs that a part has taken
};

// Where a thread is. Outside of regions that are shared, there is none.
struct Place {
  int part = 0;
  int parts = 1;
  Region* region = nullptr;
  uint32_t singles = 0;  // that the part has come to
};
thread_local Place here;
thread_local int wanted_threads = 1;

// The calling thread's part of a region, until the end of a scope.
class Entered {
 public:
  explicit Entered(const Place& place) : before_(here) { here = place; }
  ~Entered() { here = before_; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Place before_;
};

void run_part(void* argument, int32_t part, int32_t parts) {
  auto* region = static_cast<Region*>(argument);
  const Entered entered({part, parts, region, 0});
  region->function(region->data);
}

const aotpack_module_team* team_of_call() {
  const aotpack_module_call& call = Call::current().arguments();
  constexpr size_t kNeeded = offsetof(aotpack_module_call, team) + sizeof(call.team);
  return call.struct_size >= kNeeded ? call.team : nullptr;
}

}  // namespace
}  // namespace aotpack::module

using namespace aotpack::module;

extern "C" {

int omp_get_thread_num() { return here.part; }
int omp_get_num_threads() { return here.parts; }
int omp_in_parallel() { return here.parts > 1 ? 1 : 0; }
int omp_get_max_threads() { return wanted_threads; }
void omp_set_num_threads(int count) { wanted_threads = count > 1 ? count : 1; }

// `threads` 0: as many as omp_set_num_threads has set.
__attribute__((visibility("hidden"))) void GOMP_parallel(void (*function)(void*), void* data, unsigned threads,
                                                         unsigned /*flags*/) {
  const int wanted = threads == 0 ? wanted_threads : static_cast<int>(threads);
  // A region inside of another has one thread.
  const aotpack_module_team* team = wanted > 1 && here.parts == 1 ? team_of_call() : nullptr;
  if (team == nullptr) {
    const Entered entered({});
    return function(data);
  }
  Region region{function, data, team};
  team->run(team->state, run_part, &region, wanted);
}

__attribute__((visibility("hidden"))) void GOMP_barrier() {
  if (here.parts > 1) here.region->team->meet(here.region->team->state);
}

// Whether the calling part is the one that does the work of the construct.
__attribute__((visibility("hidden"))) bool GOMP_single_start() {
  if (here.parts == 1) return true;
  uint32_t taken = here.singles++;
  return here.region->singles.compare_exchange_strong(taken, taken + 1);
}

}  // extern "C"

#endif
