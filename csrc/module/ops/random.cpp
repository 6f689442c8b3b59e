// Random integers.
#include "declare/random.h"

#include "split_mix.h"
#include "tensor.h"

using namespace aotpack::module;

void aoti_torch_cpu_randint_low_out(AotpackTensor out, int64_t low, int64_t high, const int64_t*, int64_t) {
  if (low >= high) throw_invalid("randint: low must be below high");
  if (out->dtype != AOTPACK_DTYPE_INT64 || !out->is_contiguous()) {
    throw_invalid(std::string("randint into ") + dtype_name(out->dtype));
  }
  SplitMix64 generator(Call::current().seed());
  int64_t* values = out->as<int64_t>();
  for (int64_t i = 0, n = out->numel(); i < n; ++i) values[i] = generator.between(low, high);
}
