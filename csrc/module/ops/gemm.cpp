// Matrix products of two computed operands: mm, addmm, bmm, baddbmm.
#include "declare/gemm.h"

#include "kernels/element_types.h"
#include "ops/multiply.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

void product(const char* op, Tensor* out, Tensor* added, Tensor* first, Tensor* second, double beta, double alpha) {
  Trace trace(op);
  // Operands of any strides are read where they lie; only without code for fp16 they are widened first.
  const bool widened = !kernels::kHasF16 && first->dtype == AOTPACK_DTYPE_FLOAT16;
  const auto note = [&](const char* role, const Tensor* tensor) {
    widened ? trace.moved(role, tensor) : trace.in_place(role, tensor);
  };
  note("self", added);
  note("mat1", first);
  note("mat2", second);
  multiply(out, added, first, second, beta, alpha);
}

}  // namespace

void aoti_torch_cpu_mm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2) {
  product("mm", out, nullptr, self, mat2, 0, 1);
}

void aoti_torch_cpu_addmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat1, AotpackTensor mat2,
                              double beta, double alpha) {
  product("addmm", out, self, mat1, mat2, beta, alpha);
}

void aoti_torch_cpu_bmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2) {
  product("bmm", out, nullptr, self, mat2, 0, 1);
}

void aoti_torch_cpu_baddbmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor batch1, AotpackTensor batch2,
                                double beta, double alpha) {
  product("baddbmm", out, self, batch1, batch2, beta, alpha);
}

void aoti_torch_cpu__int_mm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2) {
  product("_int_mm", out, nullptr, self, mat2, 0, 1);
}
