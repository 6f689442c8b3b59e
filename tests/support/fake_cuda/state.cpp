#include "state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "control.h"

namespace fake_cuda {
namespace {

const char* setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

}  // namespace

State& state() {
  static State& only = *new State;
  return only;
}

thread_local std::vector<CUctx_st*> current;

void initialise() {
  State& s = state();
  if (s.initialised) return;
  s.initialised = true;
  const size_t bytes = std::strtoull(setting("FAKE_CUDA_MEMORY", "1073741824"), nullptr, 10);
  std::string list = setting("FAKE_CUDA_DEVICES", "9.0");
  for (const char* at = list.c_str(); *at != '\0';) {
    int major = 0, minor = 0, length = 0;
    if (std::sscanf(at, "%d.%d%n", &major, &minor, &length) != 2) std::abort();
    Device& device = s.devices.emplace_back();
    device.major = major;
    device.minor = minor;
    device.memory = std::make_unique<Memory>(bytes);
    device.context.device = static_cast<int>(s.devices.size()) - 1;
    device.legacy.context = &device.context;
    at += length;
    if (*at == ',') ++at;
  }
  char function[64] = {};
  int n = 0, result = 0;
  if (std::sscanf(setting("FAKE_CUDA_FAIL", ""), "%63[^:]:%d:%d", function, &n, &result) == 3) {
    fake_cuda_fail(function, n, result);
  }
}

int enter(const char* function, bool needs_context) {
  State& s = state();
  const uint64_t count = ++s.calls[function];
  const auto failure = s.failures.find(function);
  if (failure != s.failures.end() && failure->second.at == count) return failure->second.result;
  if (!s.initialised) return 3;
  if (!needs_context) return 0;
  if (current.empty()) return 201;
  return s.devices[static_cast<size_t>(current.back()->device)].fault;
}

Device& here() { return state().devices[static_cast<size_t>(current.back()->device)]; }

char* access(Address address, size_t bytes) {
  for (Device& device : state().devices) {
    if (!device.memory->contains(address)) continue;
    char* memory = device.memory->access(address, bytes);
    if (memory == nullptr) throw Fault{700};
    return memory;
  }
  return reinterpret_cast<char*>(address);  // of the host
}

char* device_access(Address address, size_t bytes) {
  char* memory = access(address, bytes);
  if (memory == reinterpret_cast<char*>(address)) throw Fault{700};
  return memory;
}

namespace {

bool is_special(CUstream_st* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

CUstream_st* find(CUstream_st* stream) {
  if (is_special(stream)) return &here().legacy;
  return state().streams.contains(stream) ? stream : nullptr;
}

int drain(CUstream_st* stream) {
  Device& device = state().devices[static_cast<size_t>(stream->context->device)];
  while (!stream->work.empty()) {
    const auto work = std::move(stream->work.front());
    stream->work.pop_front();
    if (device.fault != 0) continue;
    try {
      work();
    } catch (const Fault& fault) {
      device.fault = fault.result;
    }
  }
  return device.fault;
}

int drain_all() {
  for (const auto& [stream, owner] : state().streams) {
    if (stream->context->device == current.back()->device) drain(stream);
  }
  return drain(&here().legacy);
}

int submit(CUstream_st* stream, Work work) {
  CUstream_st* target = find(stream);
  if (target == nullptr) return 400;
  if (target->context != current.back()) return 400;
  target->work.push_back(std::move(work));
  target->ends_with_kernel = false;
  return 0;
}

Work launch_of(CUkern_st* kernel, const unsigned* grid, const unsigned* block, unsigned shared_bytes,
               void** arguments) {
  const unsigned threads = block[0] * block[1] * block[2];
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0 || threads > 1024) return {};
  if (shared_bytes > static_cast<unsigned>(kernel->max_shared)) return {};
  std::vector<std::string> values;
  for (size_t i = 0; i < kernel->kernel->parameters.size(); ++i) {
    values.emplace_back(static_cast<const char*>(arguments[i]), kernel->kernel->parameters[i]);
  }
  return [run = kernel->kernel->run, values = std::move(values), blocks = Grid{grid[0], grid[1], grid[2]}] {
    run(values, device_access, blocks);
  };
}

}  // namespace fake_cuda
