// The sums of conv_int8 by AMX's tiles, but for depthwise convolutions.
#pragma once

#include "ahead.h"
#include "conv_int8_windows.h"

namespace aotpack::kernels {

constexpr int64_t kInt8Slack = 64;

// What conv_int8 has laid out.
struct Int8TileWork {
  int64_t cg, og, panels, pixels;  // channels of a group, panels of its outputs
  int64_t outer, steps;            // runs of a window, and fours of bytes of a run
  const int64_t* taps;             // where runs begin in a window
  bool slack;                      // whether kInt8Slack bytes may be read beyond the end of x
  Weights next;                    // that are read after these
};

// Whether the target has tiles and the system lets the process use them.
bool int8_tiles_work();
// Whether they are worth it: a few pixels are multiplied as fast without.
inline bool int8_tiles_pay(int64_t pixels) { return pixels >= 8; }

// For all threads. What x points to is not looked at.
size_t int8_tiles_scratch_bytes(const Int8ConvArgs& args, const Int8TileWork& work, const Int8Source& x);

// This thread's share of the output.
void int8_tiles(const Int8ConvArgs& args, const Int8TileWork& work, const Int8Source& x, int thread, int threads,
                void* scratch);

}  // namespace aotpack::kernels
