// Kernels of the fake driver: functions of the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake_cuda {

// Blocks of a launch.
using Grid = std::array<unsigned, 3>;

// What an access outside of live allocations throws.
struct Fault {
  int result;
};

// Bytes of the device, where the host reads and writes them. Throws a Fault.
using Access = std::function<char*(uint64_t address, size_t bytes)>;

struct Kernel {
  std::string name;
  std::vector<size_t> parameters;  // bytes of each
  std::function<void(const std::vector<std::string>& arguments, const Access& access, const Grid& grid)> run;
};

// NULL where there is none of this name.
const Kernel* find_kernel(const std::string& name);

}  // namespace fake_cuda
