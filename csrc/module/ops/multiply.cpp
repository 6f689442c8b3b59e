#include "ops/multiply.h"

#include <string>

#include "kernels/gemm.h"
#include "kernels/gemm_int8.h"
#include "kernels/gemm_plain.h"
#include "ops/common.h"
#include "shim.h"
#include "tuned.h"

namespace aotpack::module {
namespace {

// A [batch, rows, columns] view; rank 2 has one batch, lower ranks broadcast.
struct Matrix {
  void* data;
  int64_t sizes[3];
  int64_t strides[3];
};

Matrix as_matrix(const Tensor* t) {
  Matrix m{t->data, {1, 1, 1}, {0, 0, 0}};
  for (int32_t d = 0; d < t->rank; ++d) {
    m.sizes[3 - t->rank + d] = t->sizes[d];
    m.strides[3 - t->rank + d] = t->strides[d];
  }
  return m;
}

// Strides of `m` repeated to [batch, rows, columns].
void broadcast(Matrix* m, int64_t batch, int64_t rows, int64_t columns) {
  const int64_t wanted[3] = {batch, rows, columns};
  for (int d = 0; d < 3; ++d) {
    if (m->sizes[d] == wanted[d]) continue;
    if (m->sizes[d] != 1) throw_invalid("matrix product: the added term does not broadcast to the result");
    m->strides[d] = 0;
  }
}

template <typename Args, typename X, typename Y>
void fill(Args* args, const Matrix& y, const Matrix& bias, const Matrix& a, const Matrix& b) {
  args->batch = y.sizes[0];
  args->m = y.sizes[1];
  args->n = y.sizes[2];
  args->k = a.sizes[2];
  args->a = static_cast<const X*>(a.data);
  args->a_batch = a.strides[0], args->a_row = a.strides[1], args->a_col = a.strides[2];
  args->b = static_cast<const X*>(b.data);
  args->b_batch = b.strides[0], args->b_row = b.strides[1], args->b_col = b.strides[2];
  args->bias = static_cast<const Y*>(bias.data);
  args->bias_batch = bias.strides[0], args->bias_row = bias.strides[1], args->bias_col = bias.strides[2];
  args->y = static_cast<Y*>(y.data);
  args->y_batch = y.strides[0], args->y_row = y.strides[1], args->y_col = y.strides[2];
  args->num_threads = Call::current().num_threads();
}

template <typename X, typename Y = X>
void plain(const Matrix& y, const Matrix& bias, const Matrix& a, const Matrix& b, double beta, double alpha) {
  kernels::PlainGemmArgs<X, Y> args{};
  fill<kernels::PlainGemmArgs<X, Y>, X, Y>(&args, y, bias, a, b);
  args.alpha = static_cast<Y>(alpha);
  args.beta = static_cast<Y>(beta);
  kernels::gemm_plain(args);
}

// int8, or uint8 by int8, of one batch.
void into_int32(const Matrix& y, const Matrix& a, const Matrix& b, bool a_unsigned) {
  kernels::Int8GemmArgs args{};
  args.m = y.sizes[1];
  args.n = y.sizes[2];
  args.k = a.sizes[2];
  args.a = static_cast<const int8_t*>(a.data);
  args.a_row = a.strides[1], args.a_col = a.strides[2];
  args.b = static_cast<const int8_t*>(b.data);
  args.b_row = b.strides[1], args.b_col = b.strides[2];
  args.y = static_cast<int32_t*>(y.data);
  args.y_row = y.strides[1], args.y_col = y.strides[2];
  args.num_threads = Call::current().num_threads();
  args.a_unsigned = a_unsigned;
  Scratch scratch(static_cast<int64_t>(kernels::gemm_int8_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::gemm_int8(args);
}

Tensor* as_float(Tensor* source) {
  Owned copy(Call::current().empty_contiguous(source->rank, source->sizes, AOTPACK_DTYPE_FLOAT32));
  aoti_torch_copy_(copy.get(), source, 0);
  return copy.release();
}

}  // namespace

void multiply(Tensor* out, Tensor* added, Tensor* first, Tensor* second, double beta, double alpha) {
  if (!kernels::kHasF16 && first->dtype == AOTPACK_DTYPE_FLOAT16) {
    // No fp16 among the graph's values, so no kernels for it, but generated code made some: in float, rounded once.
    Owned a(as_float(first)), b(as_float(second)), bias(added == nullptr ? nullptr : as_float(added));
    Owned y(Call::current().empty_contiguous(out->rank, out->sizes, AOTPACK_DTYPE_FLOAT32));
    multiply(y.get(), bias.get(), a.get(), b.get(), beta, alpha);
    aoti_torch_copy_(out, y.get(), 0);
    return;
  }
  const Matrix y = as_matrix(out), a = as_matrix(first), b = as_matrix(second);
  Matrix bias{};
  if (added != nullptr) {
    bias = as_matrix(added);
    broadcast(&bias, y.sizes[0], y.sizes[1], y.sizes[2]);
  }
  const bool by_signed = first->dtype == AOTPACK_DTYPE_UINT8 && out->dtype == AOTPACK_DTYPE_INT32;
  if (second->dtype != (by_signed ? static_cast<int32_t>(AOTPACK_DTYPE_INT8) : first->dtype)) {
    throw_invalid(std::string("matrix product of ") + dtype_name(first->dtype) + " by " + dtype_name(second->dtype));
  }
  switch (first->dtype) {
    case AOTPACK_DTYPE_FLOAT64:
      return plain<double>(y, bias, a, b, beta, alpha);
    case AOTPACK_DTYPE_INT64:
      return plain<int64_t>(y, bias, a, b, beta, alpha);
    case AOTPACK_DTYPE_INT32:
      return plain<int32_t>(y, bias, a, b, beta, alpha);
    case AOTPACK_DTYPE_INT8:
      if (out->dtype == AOTPACK_DTYPE_INT32) return into_int32(y, a, b, false);
      return plain<int8_t>(y, bias, a, b, beta, alpha);
    case AOTPACK_DTYPE_INT16:
      return plain<int16_t>(y, bias, a, b, beta, alpha);
    case AOTPACK_DTYPE_UINT8:
      if (out->dtype == AOTPACK_DTYPE_INT32) return into_int32(y, a, b, true);
      return plain<uint8_t>(y, bias, a, b, beta, alpha);
    default:
      break;
  }
  kernels::GemmArgs args{};
  args.dtype = kernel_dtype(first, "matrix product");
  fill<kernels::GemmArgs, void, void>(&args, y, bias, a, b);
  args.alpha = static_cast<float>(alpha);
  args.beta = static_cast<float>(beta);
  // Of strides, what decides how operands are read.
  const TunedCall tuned(
      "gemm",
      {static_cast<int64_t>(args.dtype), args.batch, args.m, args.n, args.k, args.a_row == 1, args.a_col == 1,
       args.b_row == 1, args.b_col == 1, args.y_row == 1, args.y_col == 1, added != nullptr},
      [&] { return kernels::gemm_knobs(args); });
  args.knobs = tuned.knobs();
  Scratch scratch(static_cast<int64_t>(kernels::gemm_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::gemm(args);
}

}  // namespace aotpack::module
