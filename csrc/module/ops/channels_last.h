// Tensors [n, c, *spatial] that lie as [n, *spatial, c], as the convolutions read and write them.
#pragma once

#include <algorithm>

#include "tensor.h"

namespace aotpack::module {

inline void channels_last_strides(int32_t rank, const int64_t* sizes, int64_t* strides) {
  int64_t step = 1;
  const auto take = [&](int32_t d) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  };
  take(1);
  for (int32_t d = rank - 1; d >= 2; --d) take(d);
  take(0);
}

inline bool is_channels_last(const Tensor* t) {
  int64_t strides[AOTPACK_MAX_RANK];
  channels_last_strides(t->rank, t->sizes, strides);
  for (int32_t d = 0; d < t->rank; ++d) {
    if (t->sizes[d] > 1 && t->strides[d] != strides[d]) return false;
  }
  return true;
}

// Whether the channels of a pixel lie side by side and pixels `step` elements apart, also from one row and one image to
// the next: so does what has all channels, or some neighbours of them.
inline bool has_pixels(const Tensor* t, int64_t* step) {
  *step = t->sizes[1];
  if (t->sizes[1] > 1 && t->strides[1] != 1) return false;
  int64_t expected = -1;
  const auto follows = [&](int32_t d) {
    if (t->sizes[d] == 1) return true;
    const bool does = expected < 0 || t->strides[d] == expected;
    if (expected < 0) *step = t->strides[d];
    expected = t->strides[d] * t->sizes[d];
    return does;
  };
  for (int32_t d = t->rank - 1; d >= 2; --d) {
    if (!follows(d)) return false;
  }
  return follows(0) && *step >= t->sizes[1];
}

// `source` retained where it lies so, else a copy.
inline Tensor* channels_last(Tensor* source) {
  if (is_channels_last(source)) return Call::current().retain(source);
  int64_t strides[AOTPACK_MAX_RANK];
  channels_last_strides(source->rank, source->sizes, strides);
  Owned copy(Call::current().empty(source->rank, source->sizes, strides, source->dtype));
  copy_strided(copy.get(), source);
  return copy.release();
}

// A tensor [n, c, *spatial] as pixels that lie a step apart: itself where they do, else a dense copy.
class Pixels {
 public:
  // `may_stride`: whether the step may be more than c.
  explicit Pixels(Tensor* tensor, bool may_stride = true)
      : as_it_lies_(has_pixels(tensor, &step_) && (may_stride || step_ == tensor->sizes[1])),
        pixels_(as_it_lies_ ? Call::current().retain(tensor) : channels_last(tensor)) {
    if (!as_it_lies_) step_ = tensor->sizes[1];
  }
  const Tensor* get() const { return pixels_.get(); }
  const void* data() const { return pixels_->data; }
  int64_t step() const { return step_; }

 private:
  int64_t step_ = 0;  // before `as_it_lies_`, which sets it
  const bool as_it_lies_;
  const Owned pixels_;
};

}  // namespace aotpack::module
