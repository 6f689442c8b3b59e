#include "host/cpus.h"

#include <sched.h>

#include <algorithm>
#include <memory>

namespace aotpack::runtime {
namespace {

constexpr int kMostCpus = 1 << 16;

struct FreeSet {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
using Set = std::unique_ptr<cpu_set_t, FreeSet>;

}  // namespace

CpuSet cpus_of_thread() {
  // Machines with more CPUs than a plain cpu_set_t has room for need a bigger set.
  for (int capacity = CPU_SETSIZE; capacity <= kMostCpus; capacity *= 2) {
    const Set set(CPU_ALLOC(static_cast<size_t>(capacity)));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    if (::sched_getaffinity(0, bytes, set.get()) != 0) continue;
    CpuSet cpus;
    for (int cpu = 0; cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

bool bind_thread(const CpuSet& cpus) {
  if (cpus.empty() || cpus.front() < 0 || cpus.back() >= kMostCpus) return false;
  const auto capacity = static_cast<size_t>(std::max(cpus.back() + 1, CPU_SETSIZE));
  const Set set(CPU_ALLOC(capacity));
  if (set == nullptr) return false;
  const size_t bytes = CPU_ALLOC_SIZE(capacity);
  const auto bind = [&](const CpuSet& wanted) {
    CPU_ZERO_S(bytes, set.get());
    for (const int32_t cpu : wanted) CPU_SET_S(static_cast<size_t>(cpu), bytes, set.get());
    return ::sched_setaffinity(0, bytes, set.get()) == 0;
  };
  const CpuSet before = cpus_of_thread();
  if (!bind(cpus)) return false;
  // The system leaves out those that the control group does not grant.
  if (cpus_of_thread() == cpus) return true;
  if (!before.empty() && static_cast<size_t>(before.back()) < capacity) bind(before);
  return false;
}

std::vector<CpuSet> split_cpus(const CpuSet& cpus, size_t parts) {
  std::vector<CpuSet> sets(parts);
  for (size_t i = 0; i < parts && !cpus.empty(); ++i) {
    const size_t begin = i * cpus.size() / parts;
    const size_t end = std::max((i + 1) * cpus.size() / parts, begin + 1);
    sets[i].assign(cpus.begin() + static_cast<std::ptrdiff_t>(begin), cpus.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return sets;
}

std::string cpus_text(const CpuSet& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const size_t begin = i;
    while (i + 1 < cpus.size() && cpus[i + 1] == cpus[i] + 1) ++i;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[begin]);
    if (i > begin) text += "-" + std::to_string(cpus[i]);
  }
  return text;
}

}  // namespace aotpack::runtime
