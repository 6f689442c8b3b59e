// What the fake driver keeps, and what its functions have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "interpreter.h"
#include "kernels.h"
#include "memory.h"

struct CUctx_st {
  int device;
};
namespace fake_cuda {
using Work = std::function<void()>;
}
struct CUstream_st {
  CUctx_st* context;
  std::deque<fake_cuda::Work> work;
  bool is_capturing = false;
  bool ends_with_kernel = false;  // what was submitted last
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
};
struct CUkern_st {
  const fake_cuda::Kernel* kernel;
  int max_shared = 48 << 10;
};
struct CUlib_st {
  std::string code;
  const void* binary = nullptr;  // of Triton's compiler
  std::map<std::string, fake_cuda::InterpretedKernel> interpreted;
};
struct CUgraphNode_st {
  size_t index;
  fake_cuda::Work work;
  bool is_kernel;
  bool starts_early = false;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  bool is_open = false;  // the last node still needs its edge
};
struct CUgraphExec_st {
  CUgraph_st* graph;
  std::vector<fake_cuda::Work> work;
  uint64_t early_starts = 0;
};

namespace fake_cuda {

struct Device {
  int major, minor;
  std::unique_ptr<Memory> memory;
  CUctx_st context;
  int retained = 0;
  int fault = 0;  // the result of all calls after an error that a context does not survive
  CUstream_st legacy{};
};

struct Failure {
  uint64_t at;
  int result;
};

struct State {
  std::recursive_mutex mutex;
  bool initialised = false;
  std::deque<Device> devices;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, Failure> failures;
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::map<CUlib_st*, std::unique_ptr<CUlib_st>> libraries;
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels;
  std::map<CUgraph_st*, std::unique_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec_st*, std::unique_ptr<CUgraphExec_st>> execs;
  std::set<void*> pinned;
  uint64_t early_starts = 0;
};

State& state();
// The contexts that were pushed on this thread, the current one last.
extern thread_local std::vector<CUctx_st*> current;

// Reads the environment.
void initialise();
// What a call returns before it does anything; 0: it goes on.
int enter(const char* function, bool needs_context);
// The device of the current context.
Device& here();
// Bytes of a device or of the host where the driver reads and writes them; of a device only. Throw a Fault.
char* access(Address address, size_t bytes);
char* device_access(Address address, size_t bytes);
// NULL for a stream that is not alive.
CUstream_st* find(CUstream_st* stream);
// Runs what waits in a stream, or in all of the current device. The result of the device from then on.
int drain(CUstream_st* stream);
int drain_all();
int submit(CUstream_st* stream, Work work);
// A launch with the values that the arguments have now; none where it is wrong.
Work launch_of(CUkern_st* kernel, const unsigned* grid, const unsigned* block, unsigned shared_bytes, void** arguments);

}  // namespace fake_cuda

#define ENTER(needs_context)                            \
  const std::lock_guard lock(fake_cuda::state().mutex); \
  if (const int failed = fake_cuda::enter(__func__, needs_context)) return failed

#define EXPORT extern "C" __attribute__((visibility("default")))
