// Kernels of the fake driver: functions of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake_cuda {

// What an access outside of live allocations throws.
struct Fault {
  int result;
};

// Bytes of the device, where the host reads and writes them. Throws a Fault.
using Access = std::function<char*(uint64_t address, size_t bytes)>;

struct Kernel {
  const char* name;
  std::vector<size_t> parameters;  // bytes of each
  void (*run)(const std::vector<std::string>& arguments, const Access& access);
};

// NULL where there is none of this name.
const Kernel* find_kernel(const std::string& name);

}  // namespace fake_cuda
