// The levels of x86-64 up to 4 are those of its psABI, section 3.1.1; all others are ours.
#include "hal/cpu/target.h"

#include <algorithm>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

namespace aotpack::runtime {
namespace {

enum class Register : uint8_t {
  kLeaf1Ecx,
  kLeaf7Ebx,
  kLeaf7Ecx,
  kLeaf7Edx,
  kLeaf7_1Eax,
  kExtended1Ecx,
  kXcr0,
  kHwcap,
  kHwcap2,
  kSveLengths,
};

struct Feature {
  int level;  // which includes the lower ones
  const char* name;
  Register where;
  uint32_t bits;  // all must be set
};

constexpr Feature kX86Features[] = {
    {2, "sse3", Register::kLeaf1Ecx, 1u << 0},
    {2, "ssse3", Register::kLeaf1Ecx, 1u << 9},
    {2, "cx16", Register::kLeaf1Ecx, 1u << 13},
    {2, "sse4.1", Register::kLeaf1Ecx, 1u << 19},
    {2, "sse4.2", Register::kLeaf1Ecx, 1u << 20},
    {2, "popcnt", Register::kLeaf1Ecx, 1u << 23},
    {2, "lahf", Register::kExtended1Ecx, 1u << 0},
    {3, "avx", Register::kLeaf1Ecx, 1u << 28},
    {3, "avx2", Register::kLeaf7Ebx, 1u << 5},
    {3, "fma", Register::kLeaf1Ecx, 1u << 12},
    {3, "f16c", Register::kLeaf1Ecx, 1u << 29},
    {3, "bmi1", Register::kLeaf7Ebx, 1u << 3},
    {3, "bmi2", Register::kLeaf7Ebx, 1u << 8},
    {3, "lzcnt", Register::kExtended1Ecx, 1u << 5},
    {3, "movbe", Register::kLeaf1Ecx, 1u << 22},
    {3, "AVX state saved by the operating system", Register::kXcr0, 0x06},
    {4, "avx512f", Register::kLeaf7Ebx, 1u << 16},
    {4, "avx512dq", Register::kLeaf7Ebx, 1u << 17},
    {4, "avx512cd", Register::kLeaf7Ebx, 1u << 28},
    {4, "avx512bw", Register::kLeaf7Ebx, 1u << 30},
    {4, "avx512vl", Register::kLeaf7Ebx, 1u << 31},
    {4, "AVX-512 state saved by the operating system", Register::kXcr0, 0xE6},
    {5, "avx512_vnni", Register::kLeaf7Ecx, 1u << 11},
    {5, "avx512_bf16", Register::kLeaf7_1Eax, 1u << 5},
    {6, "amx_tile", Register::kLeaf7Edx, 1u << 24},
    {6, "amx_bf16", Register::kLeaf7Edx, 1u << 22},
    {6, "amx_int8", Register::kLeaf7Edx, 1u << 25},
    {6, "AMX state saved by the operating system", Register::kXcr0, 0x60000},
};
// The bits are those of Linux's <asm/hwcap.h>. ARMv8.2-A has the first three, which compilers then use.
constexpr Feature kArmFeatures[] = {
    {2, "crc32", Register::kHwcap, 1u << 7},     {2, "atomics", Register::kHwcap, 1u << 8},
    {2, "asimdrdm", Register::kHwcap, 1u << 12}, {2, "asimddp", Register::kHwcap, 1u << 20},
    {3, "i8mm", Register::kHwcap2, 1u << 13},    {3, "bf16", Register::kHwcap2, 1u << 14},
    {4, "fphp", Register::kHwcap, 1u << 9},      {4, "asimdhp", Register::kHwcap, 1u << 10},
    {4, "sve", Register::kHwcap, 1u << 22},      {4, "svei8mm", Register::kHwcap2, 1u << 9},
    {4, "svebf16", Register::kHwcap2, 1u << 12}, {4, "SVE vectors of 256 bits", Register::kSveLengths, 1u << 1},
};

struct TargetName {
  const char* name;
  const char* architecture;
  int level;
};

// Best first.
constexpr TargetName kTargets[] = {
    {"x86-64-v4-amx", "x86-64", 6},   {"x86-64-v4-bf16", "x86-64", 5}, {"x86-64-v4", "x86-64", 4},
    {"x86-64-v3", "x86-64", 3},       {"x86-64-v2", "x86-64", 2},      {"x86-64", "x86-64", 1},
    {"aarch64-sve256", "aarch64", 4}, {"aarch64-bf16", "aarch64", 3},  {"aarch64-dotprod", "aarch64", 2},
    {"aarch64", "aarch64", 1},
};

#if defined(__x86_64__)
constexpr std::string_view kArchitecture = "x86-64";
#elif defined(__aarch64__)
constexpr std::string_view kArchitecture = "aarch64";
#else
constexpr std::string_view kArchitecture = "unknown";
#endif

uint32_t value_of(const HostFeatures& host, Register where) noexcept {
  switch (where) {
    case Register::kLeaf1Ecx:
      return host.leaf1_ecx;
    case Register::kLeaf7Ebx:
      return host.leaf7_ebx;
    case Register::kLeaf7Ecx:
      return host.leaf7_ecx;
    case Register::kLeaf7Edx:
      return host.leaf7_edx;
    case Register::kLeaf7_1Eax:
      return host.leaf7_1_eax;
    case Register::kExtended1Ecx:
      return host.extended1_ecx;
    case Register::kXcr0:
      return host.xcr0;
    case Register::kHwcap:
      return host.hwcap;
    case Register::kHwcap2:
      return host.hwcap2;
    case Register::kSveLengths:
      return host.sve_lengths;
  }
  return 0;
}

bool has(const HostFeatures& host, const Feature& feature) noexcept {
  return (value_of(host, feature.where) & feature.bits) == feature.bits;
}

}  // namespace

HostFeatures HostFeatures::read() noexcept {
  HostFeatures host;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) host.leaf1_ecx = c;
  uint32_t subleaves = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    host.leaf7_ebx = b;
    host.leaf7_ecx = c;
    host.leaf7_edx = d;
    subleaves = a;
  }
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) host.leaf7_1_eax = a;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d) != 0) host.extended1_ecx = c;
  constexpr uint32_t kOsxsave = 1u << 27;  // without it the XGETBV instruction does not exist
  if ((host.leaf1_ecx & kOsxsave) != 0) {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    host.xcr0 = low;
  }
#elif defined(__aarch64__)
  host.hwcap = static_cast<uint32_t>(getauxval(AT_HWCAP));
  host.hwcap2 = static_cast<uint32_t>(getauxval(AT_HWCAP2));
  constexpr int kGetSveLength = 51;                    // PR_SVE_GET_VL, which older headers lack
  const int found = prctl(kGetSveLength, 0, 0, 0, 0);  // bytes, and flags above them; -1 without SVE
  const int units = found < 0 ? 0 : (found & 0xFFFF) / 16;
  if (units >= 1 && units <= 16) host.sve_lengths = 1u << (units - 1);
#endif
  return host;
}

std::string missing_features(std::string_view target, const HostFeatures& host) {
  const auto* known = std::find_if(std::begin(kTargets), std::end(kTargets),
                                   [&](const TargetName& candidate) { return target == candidate.name; });
  if (target.starts_with("cuda-")) return "a CUDA device";
  if (known == std::end(kTargets)) return "an unknown target";
  if (kArchitecture != known->architecture) return std::string("a processor of architecture ") + known->architecture;
  std::string missing;
  const auto ask = [&](const auto& features) {
    for (const Feature& feature : features) {
      if (feature.level > known->level || has(host, feature)) continue;
      if (!missing.empty()) missing += ", ";
      missing += feature.name;
    }
  };
  kArchitecture == "x86-64" ? ask(kX86Features) : ask(kArmFeatures);
  return missing;
}

std::vector<std::string_view> runnable_targets(const HostFeatures& host) {
  std::vector<std::string_view> targets;
  for (const TargetName& target : kTargets) {
    if (missing_features(target.name, host).empty()) targets.emplace_back(target.name);
  }
  return targets;
}

const std::vector<std::string_view>& host_targets() {
  static const std::vector<std::string_view> targets = runnable_targets(HostFeatures::read());
  return targets;
}

}  // namespace aotpack::runtime
