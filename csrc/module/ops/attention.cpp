// Scaled dot-product attention.
#include "kernels/attention.h"

#include <cmath>

#include "declare/attention.h"
#include "ops/common.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

void set_strides(const Tensor* t, int64_t* strides) {
  for (int d = 0; d < 3; ++d) strides[d] = t->strides[d];
}

void attend(Tensor* q, Tensor* k, Tensor* v, Tensor* mask, bool causal, double scale, Tensor** y_out,
            Tensor** lse_out) {
  Call& call = Call::current();
  kernels::AttentionArgs args{};
  args.dtype = kernel_dtype(q, "attention");
  Owned queries(with_inner_dense(q)), keys(with_inner_dense(k)), values(with_inner_dense(v));
  Trace trace("attention");
  trace.tensor("q", q, queries.get());
  trace.tensor("k", k, keys.get());
  trace.tensor("v", v, values.get());
  trace.in_place("mask", mask);
  args.batch = q->sizes[0];
  args.q_heads = q->sizes[1];
  args.kv_heads = k->sizes[1];
  args.q_len = q->sizes[2];
  args.kv_len = k->sizes[2];
  args.head_dim = q->sizes[3];
  args.v_dim = v->sizes[3];
  args.q = queries->data;
  args.k = keys->data;
  args.v = values->data;
  set_strides(queries.get(), args.q_strides);
  set_strides(keys.get(), args.k_strides);
  set_strides(values.get(), args.v_strides);
  if (mask != nullptr) {
    if (mask->dtype != AOTPACK_DTYPE_BOOL && mask->dtype != q->dtype && mask->dtype != AOTPACK_DTYPE_FLOAT32) {
      throw_invalid(std::string("attention does not support a mask of ") + dtype_name(mask->dtype));
    }
    args.mask = mask->data;
    args.mask_kind = mask->dtype == AOTPACK_DTYPE_BOOL ? 1 : mask->dtype == q->dtype ? 2 : 3;
    const int64_t full[4] = {args.batch, args.q_heads, args.q_len, args.kv_len};
    for (int d = 0; d < 4; ++d) {
      const int32_t from = mask->rank - 4 + d;
      const int64_t size = from < 0 ? 1 : mask->sizes[from];
      if (size != 1 && size != full[d]) throw_invalid("attention: the mask does not broadcast to the scores");
      args.mask_strides[d] = size == 1 ? 0 : mask->strides[from];
    }
  }
  args.causal = causal;
  args.scale = static_cast<float>(scale);
  // Lies as [batch, length, heads, dim], so that the projection after it reads rows.
  const int64_t sizes[4] = {args.batch, args.q_heads, args.q_len, args.v_dim};
  const int64_t strides[4] = {args.q_len * args.q_heads * args.v_dim, args.v_dim, args.q_heads * args.v_dim, 1};
  Owned y(call.empty(4, sizes, strides, q->dtype));
  Owned lse(lse_out == nullptr ? nullptr : call.empty_contiguous(3, sizes, AOTPACK_DTYPE_FLOAT32));
  args.y = y->data;
  set_strides(y.get(), args.y_strides);
  args.lse = lse.get() == nullptr ? nullptr : lse->as<float>();
  args.num_threads = call.num_threads();
  Scratch scratch(static_cast<int64_t>(kernels::attention_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::attention(args);
  *y_out = y.release();
  if (lse_out != nullptr) *lse_out = lse.release();
}

}  // namespace

void aoti_torch_cpu_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask, int32_t is_causal,
                              double scale, AotpackTensor* ret0) {
  attend(q, k, v, optional(mask), is_causal != 0, scale, ret0, nullptr);
}

void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AotpackTensor query, AotpackTensor key,
                                                                AotpackTensor value, double dropout_p,
                                                                int32_t is_causal, AotpackTensor* attn_mask,
                                                                double* scale, AotpackTensor* ret0,
                                                                AotpackTensor* ret1) {
  if (dropout_p != 0) throw_invalid("attention with dropout");
  const double factor = scale != nullptr ? *scale : 1.0 / std::sqrt(static_cast<double>(query->sizes[3]));
  Tensor* lse = nullptr;
  attend(query, key, value, optional(attn_mask), is_causal != 0, factor, ret0, &lse);
  // torch's lies as [batch, length, heads].
  Owned plain(lse);
  const int64_t* sizes = lse->sizes;
  const int64_t strides[3] = {sizes[1] * sizes[2], 1, sizes[1]};
  Owned permuted(Call::current().empty(3, sizes, strides, lse->dtype));
  copy_strided(permuted.get(), lse);
  *ret1 = permuted.release();
}
