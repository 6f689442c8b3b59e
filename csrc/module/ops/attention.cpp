// Scaled dot-product attention and its gradients.
#include "kernels/attention.h"

#include <cmath>

#include "declare/attention.h"
#include "kernels/attention_backward.h"
#include "kernels/attention_double.h"
#include "ops/common.h"
#include "ops/slices.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

void set_strides(const Tensor* t, int64_t* strides) {
  for (int d = 0; d < 3; ++d) strides[d] = t->strides[d];
}

bool is_double(const Tensor* t) { return t->dtype == AOTPACK_DTYPE_FLOAT64; }

template <class Args>
void set_sizes(const Tensor* q, const Tensor* k, const Tensor* v, Args& args) {
  args.batch = q->sizes[0];
  args.q_heads = q->sizes[1];
  args.kv_heads = k->sizes[1];
  args.q_len = q->sizes[2];
  args.kv_len = k->sizes[2];
  args.head_dim = q->sizes[3];
  args.v_dim = v->sizes[3];
}

template <class Args>
void set_mask(const Tensor* mask, int32_t dtype, Args& args) {
  if (mask == nullptr) return;
  if (mask->dtype != AOTPACK_DTYPE_BOOL && mask->dtype != dtype && mask->dtype != AOTPACK_DTYPE_FLOAT32) {
    throw_invalid(std::string("attention does not support a mask of ") + dtype_name(mask->dtype));
  }
  args.mask = mask->data;
  args.mask_kind = mask->dtype == AOTPACK_DTYPE_BOOL ? 1 : mask->dtype == dtype ? 2 : 3;
  const int64_t full[4] = {args.batch, args.q_heads, args.q_len, args.kv_len};
  for (int d = 0; d < 4; ++d) {
    const int32_t from = mask->rank - 4 + d;
    const int64_t size = from < 0 ? 1 : mask->sizes[from];
    if (size != 1 && size != full[d]) throw_invalid("attention: the mask does not broadcast to the scores");
    args.mask_strides[d] = size == 1 ? 0 : mask->strides[from];
  }
}

double scale_or_default(const double* scale, const Tensor* q) {
  return scale != nullptr ? *scale : 1.0 / std::sqrt(static_cast<double>(q->sizes[3]));
}

// [batch, heads, length, dim] that lies as [batch, length, heads, dim], so that the projection after it reads rows.
Tensor* empty_by_position(const int64_t* sizes, int32_t dtype) {
  const int64_t strides[4] = {sizes[2] * sizes[1] * sizes[3], sizes[3], sizes[1] * sizes[3], 1};
  return Call::current().empty(4, sizes, strides, dtype);
}

void attend(Tensor* q, Tensor* k, Tensor* v, Tensor* mask, bool causal, double scale, Tensor** y_out,
            Tensor** lse_out) {
  Call& call = Call::current();
  Owned queries(with_inner_dense(q)), keys(with_inner_dense(k)), values(with_inner_dense(v));
  Trace trace("attention");
  trace.tensor("q", q, queries.get());
  trace.tensor("k", k, keys.get());
  trace.tensor("v", v, values.get());
  trace.in_place("mask", mask);
  const int64_t sizes[4] = {q->sizes[0], q->sizes[1], q->sizes[2], v->sizes[3]};
  Owned y(empty_by_position(sizes, q->dtype));
  const int32_t sums = is_double(q) ? AOTPACK_DTYPE_FLOAT64 : AOTPACK_DTYPE_FLOAT32;
  Owned lse(lse_out == nullptr ? nullptr : call.empty_contiguous(3, sizes, sums));
  const auto fill = [&](auto& args) {
    set_sizes(q, k, v, args);
    set_strides(queries.get(), args.q_strides);
    set_strides(keys.get(), args.k_strides);
    set_strides(values.get(), args.v_strides);
    set_mask(mask, q->dtype, args);
    args.causal = causal;
    set_strides(y.get(), args.y_strides);
    args.num_threads = call.num_threads();
  };
  if (is_double(q)) {
    kernels::AttentionDoubleArgs args{};
    fill(args);
    args.q = queries->as<double>();
    args.k = keys->as<double>();
    args.v = values->as<double>();
    args.scale = scale;
    args.y = y->as<double>();
    args.lse = lse.get() == nullptr ? nullptr : lse->as<double>();
    Scratch scratch(static_cast<int64_t>(kernels::attention_double_scratch_bytes(args)));
    args.scratch = scratch.get();
    kernels::attention_double(args);
  } else {
    kernels::AttentionArgs args{};
    args.dtype = kernel_dtype(q, "attention");
    fill(args);
    args.q = queries->data;
    args.k = keys->data;
    args.v = values->data;
    args.scale = static_cast<float>(scale);
    args.y = y->data;
    args.lse = lse.get() == nullptr ? nullptr : lse->as<float>();
    Scratch scratch(static_cast<int64_t>(kernels::attention_scratch_bytes(args)));
    args.scratch = scratch.get();
    kernels::attention(args);
  }
  *y_out = y.release();
  if (lse_out != nullptr) *lse_out = lse.release();
}

}  // namespace

void aoti_torch_cpu_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask, int32_t is_causal,
                              double scale, AotpackTensor* ret0) {
  attend(q, k, v, optional(mask), is_causal != 0, scale, ret0, nullptr);
}

void aoti_torch_cpu_attention_with_lse(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask,
                                       int32_t is_causal, double* scale, AotpackTensor* ret0, AotpackTensor* ret1) {
  Tensor *y = nullptr, *lse = nullptr;
  attend(q, k, v, optional(mask), is_causal != 0, scale_or_default(scale, q), &y, &lse);
  Owned result(y), plain(lse);
  const int64_t* sizes = lse->sizes;
  const int64_t strides[3] = {sizes[1] * sizes[2], 1, sizes[1]};
  Owned permuted(Call::current().empty(3, sizes, strides, lse->dtype));
  copy_strided(permuted.get(), lse);
  *ret0 = result.release();
  *ret1 = permuted.release();
}

void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AotpackTensor query, AotpackTensor key,
                                                                AotpackTensor value, double dropout_p,
                                                                int32_t is_causal, AotpackTensor* attn_mask,
                                                                double* scale, AotpackTensor* ret0,
                                                                AotpackTensor* ret1) {
  if (dropout_p != 0) throw_invalid("attention with dropout");
  Tensor *y = nullptr, *lse = nullptr;
  aoti_torch_cpu_attention_with_lse(query, key, value, attn_mask, is_causal, scale, &y, &lse);
  Owned result(y), sums(lse);
  int64_t strides[4];
  dense_strides(4, query->sizes, query->strides, strides);
  Owned laid(Call::current().empty(4, y->sizes, strides, y->dtype));
  copy_strided(laid.get(), y);
  *ret0 = laid.release();
  *ret1 = sums.release();
}

void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
    AotpackTensor grad_out, AotpackTensor query, AotpackTensor key, AotpackTensor value, AotpackTensor out,
    AotpackTensor logsumexp, double dropout_p, int32_t is_causal, AotpackTensor* attn_mask, double* scale,
    AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2) {
  if (dropout_p != 0) throw_invalid("the backward of attention with dropout");
  Call& call = Call::current();
  kernels::AttentionBackwardArgs args{};
  args.in_double = is_double(query);
  if (!args.in_double) args.dtype = kernel_dtype(query, "the backward of attention");
  const int32_t sums = args.in_double ? AOTPACK_DTYPE_FLOAT64 : AOTPACK_DTYPE_FLOAT32;
  if (logsumexp->dtype != sums) throw_invalid("the backward of attention: logsumexp is of another dtype");
  Owned q(with_inner_dense(query)), k(with_inner_dense(key)), v(with_inner_dense(value));
  Owned y(with_inner_dense(out)), dy(with_inner_dense(grad_out));
  Trace trace("attention_backward");
  trace.tensor("q", query, q.get());
  trace.tensor("k", key, k.get());
  trace.tensor("v", value, v.get());
  trace.tensor("y", out, y.get());
  trace.tensor("dy", grad_out, dy.get());
  set_sizes(query, key, value, args);
  Owned dq(empty_by_position(query->sizes, query->dtype)), dk(empty_by_position(key->sizes, query->dtype));
  Owned dv(empty_by_position(value->sizes, query->dtype));
  args.q = q->data;
  args.k = k->data;
  args.v = v->data;
  args.y = y->data;
  args.dy = dy->data;
  args.dq = dq->data;
  args.dk = dk->data;
  args.dv = dv->data;
  set_strides(q.get(), args.q_strides);
  set_strides(k.get(), args.k_strides);
  set_strides(v.get(), args.v_strides);
  set_strides(y.get(), args.y_strides);
  set_strides(dy.get(), args.dy_strides);
  set_strides(dq.get(), args.dq_strides);
  set_strides(dk.get(), args.dk_strides);
  set_strides(dv.get(), args.dv_strides);
  args.lse = logsumexp->data;
  set_strides(logsumexp, args.lse_strides);
  set_mask(optional(attn_mask), query->dtype, args);
  args.causal = is_causal != 0;
  args.scale = scale_or_default(scale, query);
  args.num_threads = call.num_threads();
  Scratch scratch(static_cast<int64_t>(kernels::attention_backward_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::attention_backward(args);
  *ret0 = dq.release();
  *ret1 = dk.release();
  *ret2 = dv.release();
}
