// The share of the machine's processors that the control groups of this process grant.
#pragma once

#include <cstdint>
#include <string>

namespace aotpack::runtime {

// Whole processors, rounded up; 0 where there is no limit. `groups` is /proc/self/cgroup, `root` where the hierarchies
// of control groups are mounted, versions 1 and 2 (docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max;
// docs.kernel.org/scheduler/sched-bwc.html). The limits of all groups above hold too. Throws std::bad_alloc.
int32_t cpu_quota(const std::string& groups = "/proc/self/cgroup", const std::string& root = "/sys/fs/cgroup");

}  // namespace aotpack::runtime
