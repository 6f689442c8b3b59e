// Which CPUs a thread may run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace aotpack::runtime {

// Numbers of CPUs, ascending, each once.
using CpuSet = std::vector<int32_t>;

// Those of the calling thread: its affinity, which its control group limits. Empty where the system does not tell.
CpuSet cpus_of_thread();
// Binds the calling thread, and the threads that it creates later, to all of `cpus`. False, with the affinity as it
// was, where the system does not grant each of them.
bool bind_thread(const CpuSet& cpus);

// Divides CPUs into `parts` sets of neighbours, of sizes that differ by one at most. Where there are fewer CPUs than
// parts, several parts share one.
std::vector<CpuSet> split_cpus(const CpuSet& cpus, size_t parts);

// "0-3,8"
std::string cpus_text(const CpuSet& cpus);

}  // namespace aotpack::runtime
