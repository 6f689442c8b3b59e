#include "host/processor.h"

#include <cstdint>
#include <cstring>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace aotpack::runtime {
namespace {

#if defined(__x86_64__)
std::string read_processor() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return {};
  char vendor[13] = {};
  std::memcpy(vendor, &ebx, 4);
  std::memcpy(vendor + 4, &edx, 4);
  std::memcpy(vendor + 8, &ecx, 4);
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return {};
  // The Intel manual's reading of the signature, which AMD shares.
  const uint32_t base = eax >> 8 & 15, stepping = eax & 15;
  const uint32_t family = base == 15 ? base + (eax >> 20 & 255) : base;
  const uint32_t model = (eax >> 4 & 15) | (base == 15 || base == 6 ? (eax >> 16 & 15) << 4 : 0);
  return std::string(vendor) + "-" + std::to_string(family) + "-" + std::to_string(model) + "-" +
         std::to_string(stepping);
}
#elif defined(__aarch64__)
std::string read_processor() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  std::string text;
  if (!(file >> text)) return {};
  const size_t digits = text.find_first_not_of('0', 2);  // "0x00000000411fd0c1"
  return digits == std::string::npos ? std::string() : "aarch64-0x" + text.substr(digits);
}
#else
std::string read_processor() { return {}; }
#endif

}  // namespace

const std::string& processor() {
  static const std::string name = read_processor();
  return name;
}

}  // namespace aotpack::runtime
