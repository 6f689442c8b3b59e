// Lookup in a table that is stored as a packed linear weight [rows/32][k][32].
#include "declare/embedding.h"

#include <omp.h>

#include "ops/common.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;

namespace {

template <typename T>
void lookup(const T* packed, const int64_t* indices, int64_t count, int64_t k, T* y, int num_threads) {
#pragma omp parallel for num_threads(num_threads) if (count * k > 65536)
  for (int64_t i = 0; i < count; ++i) {
    const T* row = packed + (indices[i] / 32) * k * 32 + indices[i] % 32;
    for (int64_t j = 0; j < k; ++j) y[i * k + j] = row[j * 32];
  }
}

}  // namespace

void aoti_torch_cpu_packed_embedding(AotpackTensor weight, AotpackTensor indices, int64_t rows, AotpackTensor* ret0) {
  Call& call = Call::current();
  const int64_t k = weight->sizes[1];
  Owned dense(contiguous(indices));
  Trace trace("packed_embedding");
  trace.in_place("weight", weight);
  trace.tensor("indices", indices, dense.get());
  const int64_t count = dense->numel();
  Scratch wide(indices->dtype == AOTPACK_DTYPE_INT64 ? 0 : count * 8);
  const int64_t* ids = dense->as<int64_t>();
  if (indices->dtype == AOTPACK_DTYPE_INT32) {
    for (int64_t i = 0; i < count; ++i) wide.as<int64_t>()[i] = dense->as<int32_t>()[i];
    ids = wide.as<int64_t>();
  } else if (indices->dtype != AOTPACK_DTYPE_INT64) {
    throw_invalid(std::string("embedding does not support indices of ") + dtype_name(indices->dtype));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      throw_invalid("embedding: index " + std::to_string(ids[i]) + " is out of range for a table of " +
                    std::to_string(rows) + " rows");
    }
  }
  int64_t sizes[AOTPACK_MAX_RANK];
  for (int32_t d = 0; d < indices->rank; ++d) sizes[d] = indices->sizes[d];
  sizes[indices->rank] = k;
  Owned y(call.empty_contiguous(indices->rank + 1, sizes, weight->dtype));
  switch (element_size(weight->dtype)) {
    case 2:
      lookup(weight->as<uint16_t>(), ids, count, k, y->as<uint16_t>(), call.num_threads());
      break;
    case 4:
      lookup(weight->as<uint32_t>(), ids, count, k, y->as<uint32_t>(), call.num_threads());
      break;
    default:
      throw_invalid(std::string("embedding does not support a packed table of ") + dtype_name(weight->dtype));
  }
  *ret0 = y.release();
}
