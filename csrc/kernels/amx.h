// AMX's tiles: leave to use them, and their sizes. For sources that are compiled with the instructions.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include "simd.h"

namespace aotpack::kernels {

// Tiles want the operating system's leave, which is asked for here and not earlier, as it costs the process something:
// stacks for signal handlers have to be larger from then on.
inline bool amx_allowed() {
#if defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
#else
  return false;
#endif
}

// What LDTILECFG reads: Intel's manual, volume 1, section 18.3.
struct alignas(64) AmxConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// For products of two times up to 16 rows of a with 32 columns of b: tiles 0 and 1 sum up the first rows of columns 0
// to 15 and 16 to 31, tiles 2 and 3 the later ones; 4 and 5 are of b, 6 and 7 of a.
inline void amx_configure(int first, int later) {
  AmxConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    const bool is_later = tile == 2 || tile == 3 || tile == 7;
    const int rows = tile == 4 || tile == 5 ? 16 : is_later ? later : first;
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = rows > 0 ? 64 : 0;
  }
  _tile_loadconfig(&config);
}
// For `count` rows of a, at most 32.
inline void amx_configure(int count) { amx_configure(count < 16 ? count : 16, count > 16 ? count - 16 : 0); }

// The intrinsics do not say that they read and write memory.
AOTPACK_INLINE void order_memory() { asm volatile("" : : : "memory"); }

}  // namespace aotpack::kernels
