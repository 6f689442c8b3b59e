// Gradients through draws, element by element.
#include "declare/sampler_gradients.h"

#include "ops/sampler_gradients.h"
#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// f(element of each of `inputs`), which are all of the first one's sizes and dtype.
template <size_t N, typename F>
Tensor* mapped(const Tensor* const (&inputs)[N], const char* op, F f) {
  const Tensor* like = inputs[0];
  if (!is_floating_dtype(like->dtype)) {
    throw_invalid(std::string(op) + " of " + dtype_name(like->dtype) + " is not supported");
  }
  Owned result(Call::current().empty_contiguous(like->rank, like->sizes, like->dtype));
  const int64_t n = like->numel();
  dispatch(like->dtype, op, [&](auto tag) {
    using T = decltype(tag);
    T* out = result->as<T>();
    for_parts(parts_for(n, 100), n, [&](int64_t, int64_t begin, int64_t end) {
      Walk<N> walk(like->rank, like->sizes);
      for (size_t k = 0; k < N; ++k) walk.add(static_cast<int>(k), inputs[k]->strides);
      if (begin < end) walk.seek(begin);
      for (int64_t i = begin; i < end; ++i, walk.next()) {
        double x[N];
        for (size_t k = 0; k < N; ++k) {
          const Tensor* input = inputs[k];
          x[k] = static_cast<double>(static_cast<Compute<T>>(input->as<T>()[walk.offset[k]]));
        }
        out[i] = convert<T>(f(x));
      }
    });
  });
  return result.release();
}

}  // namespace

void aoti_torch_cpu_standard_gamma_grad(AotpackTensor alpha, AotpackTensor sample, AotpackTensor* ret0) {
  *ret0 = mapped({alpha, sample}, "_standard_gamma_grad",
                 [](const double* x) { return standard_gamma_gradient(x[0], x[1]); });
}

void aoti_torch_cpu_dirichlet_grad(AotpackTensor x, AotpackTensor alpha, AotpackTensor total, AotpackTensor* ret0) {
  *ret0 = mapped({x, alpha, total}, "_dirichlet_grad",
                 [](const double* v) { return dirichlet_gradient(v[0], v[1], v[2]); });
}
