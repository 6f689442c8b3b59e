// Tensors as matrices of rows.
#pragma once

#include "ops/common.h"

namespace aotpack::module {

// Rows of a [..., k] tensor as one strided dim: true when the leading dims are one run of a single stride.
inline bool rows_are_strided(const Tensor* t, int64_t* stride) {
  if (!inner_dense(t)) return false;
  const int32_t last = t->rank - 1;
  *stride = last > 0 ? t->strides[last - 1] : t->sizes[last];
  int64_t expected = -1;
  for (int32_t d = last - 1; d >= 0; --d) {
    if (t->sizes[d] == 1) continue;
    if (expected < 0) {
      *stride = t->strides[d];
    } else if (t->strides[d] != expected) {
      return false;
    }
    expected = t->strides[d] * t->sizes[d];
  }
  return true;
}

// A tensor [..., k] as rows that lie a stride apart: itself where they do, else a copy. Null stays null.
class StridedRows {
 public:
  StridedRows(Tensor* tensor, int64_t k)
      : stride_(k),
        rows_(tensor == nullptr                    ? nullptr
              : rows_are_strided(tensor, &stride_) ? Call::current().retain(tensor)
                                                   : contiguous(tensor)) {
    if (tensor != nullptr && rows_->data != tensor->data) stride_ = k;
  }
  const Tensor* get() const { return rows_.get(); }
  const void* data() const { return rows_.get() == nullptr ? nullptr : rows_->data; }
  int64_t stride() const { return stride_; }

 private:
  int64_t stride_;  // before `rows_`, which sets it
  Owned rows_;
};

}  // namespace aotpack::module
