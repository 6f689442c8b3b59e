// Embedding bags.
#include "kernels/embedding_bag.h"

#include "declare/embedding_bag.h"
#include "ops/common.h"
#include "shim.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

// Contiguous, and of int64 unless both are int32 already.
Tensor* as_indices(Tensor* source, bool wide) {
  if (source->dtype != AOTPACK_DTYPE_INT64 && source->dtype != AOTPACK_DTYPE_INT32) {
    throw_invalid(std::string("embedding_bag does not support indices of ") + dtype_name(source->dtype));
  }
  if (!wide || source->dtype == AOTPACK_DTYPE_INT64) return contiguous(source);
  Owned copy(Call::current().empty_contiguous(source->rank, source->sizes, AOTPACK_DTYPE_INT64));
  aoti_torch_copy_(copy.get(), source, 0);
  return copy.release();
}

}  // namespace

void aoti_torch_cpu_embedding_bag(AotpackTensor weight, AotpackTensor indices, AotpackTensor offsets, int64_t mode,
                                  AotpackTensor* per_sample_weights, int32_t include_last_offset, int64_t padding_idx,
                                  AotpackTensor* ret0) {
  Call& call = Call::current();
  const bool wide = indices->dtype == AOTPACK_DTYPE_INT64 || offsets->dtype == AOTPACK_DTYPE_INT64;
  Owned table(with_inner_dense(weight)), ids(as_indices(indices, wide)), starts(as_indices(offsets, wide));
  Tensor* sample_weights = optional(per_sample_weights);
  Owned factors(sample_weights == nullptr ? nullptr : contiguous(sample_weights));
  kernels::EmbeddingBagArgs args{};
  args.dtype = kernel_dtype(weight, "embedding_bag");
  Trace trace("embedding_bag");
  trace.tensor("weight", weight, table.get());
  trace.tensor("indices", indices, ids.get());
  trace.tensor("offsets", offsets, starts.get());
  trace.tensor("per_sample_weights", sample_weights, factors.get());
  args.mode = static_cast<kernels::BagMode>(mode);
  args.weight = table->data;
  args.rows = table->sizes[0];
  args.dim = table->sizes[1];
  args.weight_stride = table->strides[0];
  args.wide_indices = wide;
  args.indices = ids->data;
  args.num_indices = ids->numel();
  args.offsets = starts->data;
  args.num_offsets = starts->numel();
  args.include_last_offset = include_last_offset != 0;
  args.per_sample_weights = factors.get() == nullptr ? nullptr : factors->data;
  args.padding_idx = padding_idx;
  const int64_t sizes[2] = {kernels::embedding_bag_count(args), args.dim};
  Owned y(call.empty_contiguous(2, sizes, weight->dtype));
  args.y = y->data;
  args.y_stride = args.dim;
  args.num_threads = call.num_threads();
  switch (kernels::embedding_bag(args)) {
    case kernels::BagStatus::ok:
      break;
    case kernels::BagStatus::index_out_of_range:
      throw_invalid("embedding_bag: an index is out of range for a table of " + std::to_string(args.rows) + " rows");
    case kernels::BagStatus::bad_offsets:
      throw_invalid("embedding_bag: offsets must begin with 0, not fall, and not exceed the number of indices");
  }
  *ret0 = y.release();
}
