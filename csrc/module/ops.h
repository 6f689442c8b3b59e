// ops.h: the operators that generated code may call, by the names and signatures that it uses.
//
// The build reads the names declared here to know what is supported: an operator that is not listed stops a build
// before anything is compiled. Each group is implemented in ops/<group>.cpp; a build compiles and links only the groups
// that a model calls. The comment `group: NAME` in front of a block names its file. All throw module::Error. A
// `Tensor**` argument is an optional tensor: null pointer for none. Results come through the last arguments and belong
// to the caller.
#pragma once

#include "tensor.h"

using AotpackTensor = aotpack::module::Tensor*;

// clang-format off
// group: linear
/// y[..., n] = act(x[..., k] @ W + bias + residual); `weight` is packed (csrc/kernels/linear.h).
void aoti_torch_cpu_packed_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* residual, int64_t out_features, int64_t act, AotpackTensor* ret0);

// group: embedding
/// Rows of a table that is stored as a packed linear weight of `rows` outputs (tied embeddings are stored once).
void aoti_torch_cpu_packed_embedding(AotpackTensor weight, AotpackTensor indices, int64_t rows, AotpackTensor* ret0);

// group: layout
/// A dense copy whose dims lie in `order`, from outermost to innermost.
void aoti_torch_cpu_to_layout(AotpackTensor x, const int64_t* order, int64_t order_len, AotpackTensor* ret0);

// group: pack
/// A linear's weight [n, k], of any strides and elements of up to 8 bytes, packed: [ceil(n / 32), k, 32].
void aoti_torch_cpu_pack_linear(AotpackTensor weight, AotpackTensor* ret0);
/// A convolution's weight: [groups, ceil(oc / groups / 32), taps, c / groups, 32]; [taps, c] for depthwise.
void aoti_torch_cpu_pack_conv(AotpackTensor weight, int64_t groups, int32_t transposed, AotpackTensor* ret0);

// group: conv
/// N-d convolution of a batched x; the result is channels-last. `weight` is packed (csrc/kernels/conv.h), and
/// for a 3 x 3 kernel may be transformed: [1, ceil(oc / 32), 16, c, 32].
void aoti_torch_cpu_packed_conv(AotpackTensor x, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* residual, int64_t out_channels, const int64_t* kernel, int64_t kernel_len, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, int32_t transposed, const int64_t* output_padding, int64_t output_padding_len, int64_t groups, int64_t act, AotpackTensor* ret0);
/// The same with a weight that is computed in the model: packed on every call.
void aoti_torch_cpu_convolution(AotpackTensor input, AotpackTensor weight, AotpackTensor* bias, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, int32_t transposed, const int64_t* output_padding, int64_t output_padding_len, int64_t groups, AotpackTensor* ret0);

// group: attention
/// q [b, hq, l, d], k [b, hk, s, d], v [b, hk, s, dv], hq a multiple of hk; the result [b, hq, l, dv] lies as [b, l, hq, dv].
void aoti_torch_cpu_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask, int32_t is_causal, double scale, AotpackTensor* ret0);
void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AotpackTensor query, AotpackTensor key, AotpackTensor value, double dropout_p, int32_t is_causal, AotpackTensor* attn_mask, double* scale, AotpackTensor* ret0, AotpackTensor* ret1);

// group: rnn
/// One layer, one direction. x [steps, batch, input]; h0, c0 [batch, hidden]; weights packed as linear's. y, h_n, c_n.
void aoti_torch_cpu_lstm_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih, AotpackTensor* b_hh, AotpackTensor h0, AotpackTensor c0, int64_t hidden, int32_t reverse, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2);
void aoti_torch_cpu_gru_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih, AotpackTensor* b_hh, AotpackTensor h0, int64_t hidden, int32_t reverse, AotpackTensor* ret0, AotpackTensor* ret1);

// group: gemm
void aoti_torch_cpu_mm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2);
void aoti_torch_cpu_addmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat1, AotpackTensor mat2, double beta, double alpha);
void aoti_torch_cpu_bmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2);
void aoti_torch_cpu_baddbmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor batch1, AotpackTensor batch2, double beta, double alpha);
void aoti_torch_cpu__int_mm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2);

// group: embedding_bag
/// mode 0 sum, 1 mean, 2 max; padding_idx -1 for none. [bags, dim].
void aoti_torch_cpu_embedding_bag(AotpackTensor weight, AotpackTensor indices, AotpackTensor offsets, int64_t mode, AotpackTensor* per_sample_weights, int32_t include_last_offset, int64_t padding_idx, AotpackTensor* ret0);

// group: random
/// Uniform integers in [low, high). Generated code draws the seeds of its own Philox streams with it.
void aoti_torch_cpu_randint_low_out(AotpackTensor out, int64_t low, int64_t high, const int64_t* size, int64_t size_len);

// group: scan
void aoti_torch_cpu_cumsum(AotpackTensor self, int64_t dim, int32_t* dtype, AotpackTensor* ret0);
void aoti_torch_cpu_cumprod(AotpackTensor self, int64_t dim, int32_t* dtype, AotpackTensor* ret0);
void aoti_torch_cpu_logcumsumexp(AotpackTensor self, int64_t dim, AotpackTensor* ret0);
void aoti_torch_cpu_cummax(AotpackTensor self, int64_t dim, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_cummin(AotpackTensor self, int64_t dim, AotpackTensor* ret0, AotpackTensor* ret1);

// group: sort
void aoti_torch_cpu_sort(AotpackTensor self, int64_t dim, int32_t descending, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_sort_stable(AotpackTensor self, int32_t* stable, int64_t dim, int32_t descending, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_topk(AotpackTensor self, int64_t k, int64_t dim, int32_t largest, int32_t sorted, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_kthvalue(AotpackTensor self, int64_t k, int64_t dim, int32_t keepdim, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_searchsorted_Tensor(AotpackTensor sorted_sequence, AotpackTensor self, int32_t out_int32, int32_t right, const char** side, AotpackTensor* sorter, AotpackTensor* ret0);
void aoti_torch_cpu_searchsorted_Scalar(AotpackTensor sorted_sequence, double self, int32_t out_int32, int32_t right, const char** side, AotpackTensor* sorter, AotpackTensor* ret0);
void aoti_torch_cpu_bucketize_Tensor(AotpackTensor self, AotpackTensor boundaries, int32_t out_int32, int32_t right, AotpackTensor* ret0);

// group: index
void aoti_torch_cpu_index_Tensor(AotpackTensor self, const AotpackTensor** indices, int64_t indices_len, AotpackTensor* ret0);
void aoti_torch_cpu_index_put(AotpackTensor self, const AotpackTensor** indices, int64_t indices_len, AotpackTensor values, int32_t accumulate, AotpackTensor* ret0);
void aoti_torch_index_put_out(AotpackTensor out, AotpackTensor self, const AotpackTensor* indices, int64_t indices_len, AotpackTensor values, int32_t accumulate);

// group: mask
void aoti_torch_cpu_nonzero(AotpackTensor self, AotpackTensor* ret0);
void aoti_torch_cpu_nonzero_static(AotpackTensor self, int64_t size, int64_t fill_value, AotpackTensor* ret0);
void aoti_torch_cpu_masked_select(AotpackTensor self, AotpackTensor mask, AotpackTensor* ret0);
void aoti_torch_cpu_masked_scatter(AotpackTensor self, AotpackTensor mask, AotpackTensor source, AotpackTensor* ret0);
void aoti_torch_cpu_repeat_interleave_Tensor(AotpackTensor repeats, int64_t* output_size, AotpackTensor* ret0);

// group: scatter
void aoti_torch_cpu_scatter_src_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor src);
void aoti_torch_cpu_scatter_value_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index, double value);
void aoti_torch_cpu_scatter_reduce_two_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor src, const char* reduce, int32_t include_self);
void aoti_torch_cpu_index_reduce(AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor source, const char* reduce, int32_t include_self, AotpackTensor* ret0);
// clang-format on
