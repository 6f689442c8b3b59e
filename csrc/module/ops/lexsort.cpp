// The lexicographic order of rows.
#include "declare/lexsort.h"

#include "ops/order_key.h"
#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

void aoti_torch_cpu_sort_rows(AotpackTensor self, AotpackTensor* ret0) {
  if (self->rank != 2) throw_invalid("sort_rows: a matrix is expected");
  const int64_t rows = self->sizes[0], columns = self->sizes[1];
  Owned x(contiguous(self));
  Owned order(Call::current().empty_contiguous(1, &rows, AOTPACK_DTYPE_INT64));
  int64_t* places = order->as<int64_t>();
  for (int64_t i = 0; i < rows; ++i) places[i] = i;
  dispatch(self->dtype, "unique_dim", [&]<typename T>(T) {
    const T* data = x->as<T>();
    std::sort(places, places + rows, [=](int64_t a, int64_t b) {
      for (int64_t j = 0; j < columns; ++j) {
        const auto left = order_key(data[a * columns + j]), right = order_key(data[b * columns + j]);
        if (left != right) return left < right;
      }
      return a < b;
    });
  });
  *ret0 = order.release();
}
