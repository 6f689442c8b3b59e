// Leave of the operating system to use AMX's tiles, which have 8 KiB of state for each thread.
#pragma once

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace aotpack::runtime {

// For all threads of this process, until it ends. False where there are no tiles, or where the system does not let them
// be used.
inline bool request_tiles() noexcept {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace aotpack::runtime
