// Where the bytes lie that depthwise windows read: a pointer for each tap, to a pixel of x_zero outside of the input.
#pragma once

#include "conv_int8.h"
#include "int8_lanes.h"

namespace aotpack::kernels::depthwise_int8 {

// Four windows side by side that share the taps of a row: three each, one pixel apart.
inline constexpr int64_t kStripPixels = 4, kStripTaps = 6;

// One input pixel under a window, or a strip of windows.
struct Tap {
  int64_t kernel_row, column;  // of the kernel's depth and height; pixels from the first one
};

struct Buffers {
  Tap* taps;
  char* threads;  // each thread's own
  size_t each, bytes;
};
inline int64_t kernel_rows(const Int8ConvArgs& a) { return a.kernel[0] * a.kernel[1]; }
inline int64_t most_taps(const Int8ConvArgs& a) {
  return max64(round_up(kernel_rows(a) * a.kernel[2], 4), kernel_rows(a) * kStripTaps);
}

// Pointers change all the time: what another thread prefetches must not be near.
inline constexpr size_t kApart = 4096;

struct ThreadBuffers {
  const uint8_t** pointers;
  int64_t* steps;
  const uint8_t** rows;
  uint8_t* fill;
  size_t bytes;

  ThreadBuffers(const Int8ConvArgs& a, void* scratch) {
    Scratch from(scratch);
    pointers = from.take<const uint8_t*>(most_taps(a));
    steps = from.take<int64_t>(most_taps(a));
    rows = from.take<const uint8_t*>(kernel_rows(a));
    fill = from.take<uint8_t>(round_up(a.c, kDepthwiseBlock));
    bytes = from.bytes() + kApart;
  }
};

inline Buffers carve(const Int8ConvArgs& a, void* scratch, int64_t threads) {
  Buffers b;
  Scratch from(scratch);
  b.taps = from.take<Tap>(most_taps(a));
  b.each = ThreadBuffers(a, reinterpret_cast<void*>(uintptr_t{64})).bytes;
  b.threads = from.take<char>(static_cast<int64_t>(b.each) * threads);
  b.bytes = from.bytes();
  return b;
}

// What the loops need.
struct Work {
  const Int8ConvArgs& a;
  int64_t columns;   // packed
  int64_t fours;     // of taps
  int64_t per_four;  // taps of a four but the last
  int64_t taps;      // of a window
  int64_t pixels;    // output pixels of a step
  int64_t count;     // pointers
  int64_t reach;     // from the first column of a step to the last one
  ByteRange range;
  bool bytes_alone;  // the result is bytes, without a residual
  uint8_t sign;      // turns unsigned into signed bytes, or is 0
  uint8_t x_sign;    // the other way
};

// Where the windows of an output row lie.
class Windows {
 public:
  Windows(const Work& k, const Buffers& b, const ThreadBuffers& own)
      : k_(k), taps_(b.taps), at_(own.pointers), steps_(own.steps), rows_(own.rows), fill_(own.fill) {
    const int fill = (k.a.x_signed ? k.a.x_zero ^ 0x80 : k.a.x_zero) & 0xff;
    std::memset(fill_, fill, static_cast<size_t>(k.a.c));
  }

  void begin_row(int64_t row) {
    const Int8ConvArgs& a = k_.a;
    const int64_t h = row % a.out[1] * a.stride[1] - a.before[1];
    const int64_t d = row / a.out[1] % a.out[0] * a.stride[0] - a.before[0], n = row / a.out[1] / a.out[0];
    for (int64_t i = 0; i < kernel_rows(a); ++i) {
      const int64_t y = h + i % a.kernel[1] * a.dilation[1], z = d + i / a.kernel[1] * a.dilation[0];
      const bool inside = y >= 0 && y < a.in[1] && z >= 0 && z < a.in[0];
      rows_[i] =
          !inside ? nullptr : static_cast<const uint8_t*>(a.x) + ((n * a.in[0] + z) * a.in[1] + y) * a.in[2] * a.c;
    }
    for (int64_t i = 0; i < k_.count; ++i) {
      steps_[i] = rows_[taps_[i].kernel_row] == nullptr ? 0 : k_.pixels * a.stride[2] * a.c;
    }
    was_inside_ = false;
  }

  // Pointers for the windows from output column `w` on; columns come in the order of the steps.
  const uint8_t* const* at(int64_t w) {
    const Int8ConvArgs& a = k_.a;
    const int64_t first = w * a.stride[2] - a.before[2];
    const bool inside = first >= 0 && first + k_.reach < a.in[2];
    if (inside && was_inside_) {
      for (int64_t i = 0; i < k_.count; ++i) at_[i] += steps_[i];
      return at_;
    }
    was_inside_ = inside;
    for (int64_t i = 0; i < k_.count; ++i) {
      const uint8_t* row = rows_[taps_[i].kernel_row];
      const int64_t column = first + taps_[i].column;
      at_[i] = row != nullptr && column >= 0 && column < a.in[2] ? row + column * a.c : fill_;
    }
    return at_;
  }

 private:
  const Work& k_;
  const Tap* taps_;
  const uint8_t** at_;
  int64_t* steps_;
  const uint8_t** rows_;
  uint8_t* fill_;
  bool was_inside_ = false;
};

// The taps in the order of the pointers. A four that is not full ends with the last tap again: its weight is 0.
inline void lay_taps(const Work& k, const Buffers& b) {
  const bool strips = k.pixels != 1;
  for (int64_t i = 0; i < k.count; ++i) {
    if (strips) {
      b.taps[i] = {i / kStripTaps, i % kStripTaps};
      continue;
    }
    const int64_t tap = min64(i / 4 * k.per_four + min64(i % 4, k.per_four - 1), k.taps - 1);
    b.taps[i] = {tap / k.a.kernel[2], tap % k.a.kernel[2] * k.a.dilation[2]};
  }
}

}  // namespace aotpack::kernels::depthwise_int8
