// The most frequent value along one dim; of several the least.
#include "declare/mode.h"

#include "ops/order_key.h"
#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

template <typename Key>
struct Item {
  Key key;
  int64_t place;
};

// Where in the n items the mode is. Which of its places is named is left open by torch; this is the one that torch's
// own kernel names, which sorts by std::sort and takes the last of a run. NaN equals nothing, so each is a run.
template <typename I>
int64_t place_of_mode(I* items, int64_t n, bool has_nan) {
  std::sort(items, items + n, [](const I& a, const I& b) { return a.key < b.key; });
  using Key = decltype(items[0].key);
  const auto differ = [&](const I& a, const I& b) {
    return a.key != b.key || (has_nan && a.key == std::numeric_limits<std::decay_t<Key>>::max());
  };
  int64_t best = 0, most = 0, run = 0;
  for (int64_t i = 0; i < n; ++i) {
    ++run;
    if (i + 1 < n && !differ(items[i], items[i + 1])) continue;
    if (run > most) {
      most = run;
      best = items[i].place;
    }
    run = 0;
  }
  return best;
}

}  // namespace

void aoti_torch_cpu_mode(AotpackTensor self, int64_t dim, int32_t keepdim, AotpackTensor* ret0, AotpackTensor* ret1) {
  Call& call = Call::current();
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned x(contiguous(self));
  const Around shape(x.get(), axis);
  int64_t sizes[AOTPACK_MAX_RANK];
  int32_t rank = 0;
  for (int32_t d = 0; d < self->rank; ++d) {
    if (d != axis) {
      sizes[rank++] = self->sizes[d];
    } else if (keepdim != 0) {
      sizes[rank++] = 1;
    }
  }
  const int64_t n = shape.size, rows = shape.outer * shape.inner;
  if (n == 0 && rows > 0)
    throw_invalid("mode(): Expected reduction dim " + std::to_string(axis) + " to have non-zero size.");
  Owned values(call.empty_contiguous(rank, sizes, self->dtype)),
      indices(call.empty_contiguous(rank, sizes, AOTPACK_DTYPE_INT64));
  const int64_t parts = rows == 0 ? 1 : parts_for(rows, 40.0 * static_cast<double>(n));
  dispatch(self->dtype, "mode", [&]<typename T>(T) {
    using I = Item<decltype(order_key(T{}))>;
    Scratch scratch(rows == 0 ? 0 : parts * n * static_cast<int64_t>(sizeof(I)));
    for_parts(parts, rows, [&](int64_t part, int64_t begin, int64_t end) {
      I* items = scratch.as<I>() + part * n;
      for (int64_t row = begin; row < end; ++row) {
        const T* from = x->as<T>() + row / shape.inner * n * shape.inner + row % shape.inner;
        bool has_nan = false;
        for (int64_t i = 0; i < n; ++i) {
          const T value = from[i * shape.inner];
          has_nan |= is_nan(value);
          items[i] = {order_key(value), i};
        }
        const int64_t place = place_of_mode(items, n, has_nan);
        values->as<T>()[row] = from[place * shape.inner];
        indices->as<int64_t>()[row] = place;
      }
    });
  });
  *ret0 = values.release();
  *ret1 = indices.release();
}
