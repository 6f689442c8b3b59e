// Which compilation targets this host runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aotpack::runtime {

// What CPUID and XGETBV report, or the bits of the auxiliary vector on ARM; zeros on other architectures.
struct HostFeatures {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0, leaf7_1_eax = 0;
  uint32_t extended1_ecx = 0;
  uint32_t xcr0 = 0;  // register states that the operating system saves
  uint32_t hwcap = 0, hwcap2 = 0;
  uint32_t sve_lengths = 0;  // of the calling thread's SVE vectors, in units of 128 bits: one bit, bit 0 for one unit

  static HostFeatures read() noexcept;
};

// Targets that a host with these features runs, best first.
std::vector<std::string_view> runnable_targets(const HostFeatures& host);
// What `target` needs and the host lacks, e.g. "avx512f, avx512bw"; empty when it runs. For a target of another
// architecture it names the architecture.
std::string missing_features(std::string_view target, const HostFeatures& host);

// The same for this host. The list is made once.
const std::vector<std::string_view>& host_targets();

}  // namespace aotpack::runtime
