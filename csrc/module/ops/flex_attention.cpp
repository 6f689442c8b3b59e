// Attention whose scores functions of the model change and mask.
#include "ops/flex_attention.h"

#include <limits>

#include "declare/flex_attention.h"
#include "kernels/attention.h"
#include "kernels/attention_double.h"
#include "ops/common.h"
#include "ops/slices.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

constexpr int64_t kMostOperands = 64;

// What functions read of an empty tensor, before the call fails.
constexpr double kNothing[2] = {};

kernels::ScoreOperand operand(const Tensor* t) {
  if (t->rank > kernels::kOperandRank) throw_invalid("flex_attention: an operand has more than 8 dims");
  kernels::ScoreOperand made{};
  made.data = t->data;
  for (int32_t d = 0; d < t->rank; ++d) {
    made.sizes[d] = t->sizes[d];
    made.strides[d] = t->sizes[d] == 1 ? 0 : t->strides[d];
    if (t->sizes[d] == 0) made.data = nullptr;
  }
  if (made.data == nullptr) {
    made.data = kNothing;
    for (int64_t& stride : made.strides) stride = 0;
  }
  return made;
}

// The given dims of a list broadcast: of one element, or as many as there must be.
void set_list_strides(const Tensor* list, const int64_t needed[3], int64_t* strides) {
  for (int d = 0; d < 3; ++d) {
    const int64_t size = list->sizes[d];
    if (size != 1 && size < needed[d]) throw_invalid("flex_attention: the block mask is too small for the scores");
    if (size == 1 && d == 2 && needed[d] > 1) {
      throw_invalid("flex_attention: the block mask is too small for the scores");
    }
    strides[d] = size == 1 ? 0 : list->strides[d];
  }
}

kernels::BlockList block_list(const Tensor* counts, const Tensor* indices, const int64_t needed[3]) {
  if (counts->rank != 3 || indices->rank != 4 || counts->dtype != AOTPACK_DTYPE_INT32 ||
      indices->dtype != AOTPACK_DTYPE_INT32) {
    throw_invalid("flex_attention: the tensors of a block mask must be int32, [b, h, rows] and [b, h, rows, blocks]");
  }
  kernels::BlockList list{};
  list.counts = counts->as<int32_t>();
  list.indices = indices->as<int32_t>();
  list.places = indices->sizes[3];
  set_list_strides(counts, needed, list.counts_strides);
  set_list_strides(indices, needed, list.indices_strides);
  list.indices_strides[3] = indices->strides[3];
  return list;
}

void check_sizes(const Tensor* q, const Tensor* k, const Tensor* v) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  for (int d = 0; d < 3; ++d) {
    if (q->sizes[d] > most || k->sizes[d] > most) throw_invalid("flex_attention: more than 2^31 positions");
  }
  const bool grouped = k->sizes[1] > 0 ? q->sizes[1] % k->sizes[1] == 0 : q->sizes[1] == 0;
  if (q->sizes[0] != k->sizes[0] || k->sizes[0] != v->sizes[0] || k->sizes[1] != v->sizes[1] ||
      k->sizes[2] != v->sizes[2] || q->sizes[3] != k->sizes[3] || !grouped) {
    throw_invalid("flex_attention: the sizes of query, key and value do not match");
  }
}

// [batch, heads, length, dim] that lies as [batch, length, heads, dim].
Tensor* empty_by_position(const int64_t* sizes, int32_t dtype) {
  const int64_t strides[4] = {sizes[2] * sizes[1] * sizes[3], sizes[3], sizes[1] * sizes[3], 1};
  return Call::current().empty(4, sizes, strides, dtype);
}

}  // namespace

void aoti_torch_cpu_flex_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, const AotpackTensor* blocks,
                                   int64_t blocks_count, const AotpackTensor* operands, int64_t operands_count,
                                   const int64_t* numbers, int64_t numbers_count, const char* function, int64_t q_block,
                                   int64_t kv_block, double scale, AotpackTensor* ret0, AotpackTensor* ret1) {
  Call& call = Call::current();
  check_sizes(q, k, v);
  if (operands_count > kMostOperands) throw_invalid("flex_attention: too many operands");
  (void)numbers_count;
  Owned queries(with_inner_dense(q)), keys(with_inner_dense(k)), values(with_inner_dense(v));
  Trace trace("flex_attention");
  trace.tensor("q", q, queries.get());
  trace.tensor("k", k, keys.get());
  trace.tensor("v", v, values.get());

  kernels::ScoreOperand given[kMostOperands];
  for (int64_t i = 0; i < operands_count; ++i) given[i] = operand(operands[i]);
  std::atomic<bool> failed{false};
  const AotpackScoreFunctions* functions = aotpack_score_functions(function);
  if (functions == nullptr) throw_invalid("flex_attention: the module lacks the score functions");
  kernels::ScoreRules rules{};
  rules.score = functions->score;
  rules.mask = functions->mask;
  rules.operands = given;
  rules.numbers = numbers;
  rules.failed = &failed;
  if (blocks_count > 0) {
    if (q_block <= 0 || kv_block <= 0) throw_invalid("flex_attention: a block mask needs blocks of one or more");
    rules.q_block = q_block;
    rules.kv_block = kv_block;
    const int64_t needed[3] = {q->sizes[0], q->sizes[1], kernels::ceil_div(q->sizes[2], q_block)};
    rules.partial = block_list(blocks[0], blocks[1], needed);
    if (blocks_count > 2) rules.full = block_list(blocks[2], blocks[3], needed);
  }

  const int64_t sizes[4] = {q->sizes[0], q->sizes[1], q->sizes[2], v->sizes[3]};
  const bool in_double = q->dtype == AOTPACK_DTYPE_FLOAT64;
  const int32_t sums = in_double ? AOTPACK_DTYPE_FLOAT64 : AOTPACK_DTYPE_FLOAT32;
  Owned y(empty_by_position(sizes, q->dtype));
  Owned lse(call.empty_contiguous(3, sizes, sums));
  const auto run = [&]<class A>(auto& args, auto scratch_bytes, auto attend) {
    args.batch = sizes[0];
    args.q_heads = sizes[1];
    args.kv_heads = k->sizes[1];
    args.q_len = sizes[2];
    args.kv_len = k->sizes[2];
    args.head_dim = q->sizes[3];
    args.v_dim = sizes[3];
    for (int d = 0; d < 3; ++d) {
      args.q_strides[d] = queries->strides[d];
      args.k_strides[d] = keys->strides[d];
      args.v_strides[d] = values->strides[d];
      args.y_strides[d] = y->strides[d];
    }
    args.scale = static_cast<A>(scale);
    args.rules = &rules;
    args.lse = lse->as<A>();
    args.num_threads = call.num_threads();
    Scratch scratch(static_cast<int64_t>(scratch_bytes(args)));
    args.scratch = scratch.get();
    attend(args);
  };
  if (in_double) {
    kernels::AttentionDoubleArgs args{};
    args.q = queries->as<double>();
    args.k = keys->as<double>();
    args.v = values->as<double>();
    args.y = y->as<double>();
    run.operator()<double>(args, kernels::attention_double_scratch_bytes, kernels::attention_double);
  } else {
    kernels::AttentionArgs args{};
    args.dtype = kernel_dtype(q, "flex_attention");
    args.q = queries->data;
    args.k = keys->data;
    args.v = values->data;
    args.y = y->data;
    run.operator()<float>(args, kernels::attention_scratch_bytes, kernels::attention);
  }
  if (failed.load()) {
    throw_invalid(
        "flex_attention: an index of a score or mask function, or of the block mask, is out of range for what it "
        "indexes");
  }
  *ret0 = y.release();
  *ret1 = lse.release();
}
