// Products of groups of rows, each with a matrix of its own, as mixtures of experts have them.
#include "declare/grouped.h"

#include <cstring>
#include <string>

#include "ops/common.h"
#include "ops/multiply.h"
#include "ops/slices.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;

namespace {

// Calls `f(group, first, last)` for each group after all ends have been checked: none falls, none is beyond `size`.
template <typename F>
void for_each_group(Tensor* ends, int64_t groups, int64_t size, F f) {
  if (ends->rank != 1 || ends->sizes[0] != groups) {
    throw_invalid("grouped product: there must be one end for each of the " + std::to_string(groups) + " groups");
  }
  Owned values(convert_contiguous(ends, AOTPACK_DTYPE_INT64));
  const int64_t* end = values->as<int64_t>();
  for (int64_t g = 0; g < groups; ++g) {
    if (end[g] < (g == 0 ? 0 : end[g - 1]) || end[g] > size) {
      throw_invalid("grouped product: the end " + std::to_string(end[g]) + " of group " + std::to_string(g) +
                    " lies before the group's start or beyond the " + std::to_string(size) + " rows");
    }
  }
  for (int64_t g = 0; g < groups; ++g) f(g, g == 0 ? 0 : end[g - 1], end[g]);
}

// `count` places of dim `dim` from `first` on.
Tensor* narrowed(const Tensor* source, int32_t dim, int64_t first, int64_t count) {
  Tensor* view = Call::current().retain(source);
  view->sizes[dim] = count;
  view->data += first * view->strides[dim] * element_size(view->dtype);
  return view;
}

// One matrix of a batch.
Tensor* selected(const Tensor* source, int64_t index) {
  Tensor* view = narrowed(source, 0, index, 1);
  view->rank = 2;
  for (int d = 0; d < 2; ++d) {
    view->sizes[d] = source->sizes[d + 1];
    view->strides[d] = source->strides[d + 1];
  }
  return view;
}

void fill_zero(Tensor* rows) {
  std::memset(rows->data, 0, static_cast<size_t>(rows->numel() * element_size(rows->dtype)));
}

void check_products(const Tensor* first, int32_t first_rank, const Tensor* second, int32_t second_rank, int64_t inner,
                    int64_t other_inner) {
  if (first->rank != first_rank || second->rank != second_rank || inner != other_inner) {
    throw_invalid("grouped product: the sizes of the operands do not fit each other");
  }
}

}  // namespace

void aoti_torch_cpu_grouped_mm(AotpackTensor x, AotpackTensor w, AotpackTensor ends, AotpackTensor* ret0) {
  Trace trace("grouped_mm");
  trace.in_place("x", x);
  trace.in_place("w", w);
  check_products(x, 2, w, 3, x->sizes[x->rank - 1], w->sizes[1]);
  const int64_t sizes[2] = {x->sizes[0], w->sizes[2]};
  Owned y(Call::current().empty_contiguous(2, sizes, x->dtype));
  int64_t done = 0;
  for_each_group(ends, w->sizes[0], x->sizes[0], [&](int64_t group, int64_t first, int64_t last) {
    done = last;
    if (first == last) return;
    Owned out(narrowed(y.get(), 0, first, last - first)), rows(narrowed(x, 0, first, last - first));
    Owned weight(selected(w, group));
    multiply(out.get(), nullptr, rows.get(), weight.get(), 0, 1);
  });
  Owned rest(narrowed(y.get(), 0, done, sizes[0] - done));
  fill_zero(rest.get());
  *ret0 = y.release();
}

void aoti_torch_cpu_grouped_outer(AotpackTensor a, AotpackTensor b, AotpackTensor ends, AotpackTensor* ret0) {
  Trace trace("grouped_outer");
  trace.in_place("a", a);
  trace.in_place("b", b);
  check_products(a, 2, b, 2, a->sizes[a->rank - 1], b->sizes[0]);
  const int64_t sizes[3] = {ends->rank == 1 ? ends->sizes[0] : 0, a->sizes[0], b->sizes[1]};
  Owned y(Call::current().empty_contiguous(3, sizes, a->dtype));
  for_each_group(ends, sizes[0], b->sizes[0], [&](int64_t group, int64_t first, int64_t last) {
    Owned out(selected(y.get(), group));
    if (first == last) return fill_zero(out.get());
    Owned columns(narrowed(a, 1, first, last - first)), rows(narrowed(b, 0, first, last - first));
    multiply(out.get(), nullptr, columns.get(), rows.get(), 0, 1);
  });
  *ret0 = y.release();
}
