// The bytes that conv_int8 reads, and where the windows of its output pixels begin.
#pragma once

#include "conv_int8.h"

namespace aotpack::kernels {

// Sizes in bytes of the x that tiles read, padded or as it is.
struct Int8Source {
  const uint8_t* data;
  int64_t size[3];  // of the spatial dims
  int64_t pixel, row, plane, image;

  void set(const uint8_t* at, const int64_t* sizes, int64_t c) {
    data = at;
    for (int d = 0; d < 3; ++d) size[d] = sizes[d];
    pixel = c;
    row = size[2] * pixel;
    plane = size[1] * row;
    image = size[0] * plane;
  }
};

// Walks over output pixels and tells where their windows begin.
class Int8Windows {
 public:
  Int8Windows(const Int8ConvArgs& a, const Int8Source& x, int64_t pixel) : a_(a), x_(x) {
    w_ = pixel % a.out[2];
    h_ = pixel / a.out[2] % a.out[1];
    d_ = pixel / a.out[2] / a.out[1] % a.out[0];
    n_ = pixel / a.out[2] / a.out[1] / a.out[0];
    place();
  }
  const uint8_t* next() {
    const uint8_t* at = at_;
    at_ += a_.stride[2] * x_.pixel;
    if (++w_ == a_.out[2]) {
      w_ = 0;
      if (++h_ == a_.out[1]) {
        h_ = 0;
        if (++d_ == a_.out[0]) {
          d_ = 0;
          ++n_;
        }
      }
      place();
    }
    return at;
  }

 private:
  void place() {
    at_ = x_.data + n_ * x_.image + d_ * a_.stride[0] * x_.plane + h_ * a_.stride[1] * x_.row +
          w_ * a_.stride[2] * x_.pixel;
  }
  const Int8ConvArgs& a_;
  const Int8Source& x_;
  int64_t n_, d_, h_, w_;
  const uint8_t* at_;
};

}  // namespace aotpack::kernels
