// Random integers.
#include "declare/random.h"

using namespace aotpack::module;

namespace {

// SplitMix64 (Steele, Lea and Flood 2014): one step of the stream that `state` names.
uint64_t next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

void aoti_torch_cpu_randint_low_out(AotpackTensor out, int64_t low, int64_t high, const int64_t*, int64_t) {
  if (low >= high) throw_invalid("randint: low must be below high");
  if (out->dtype != AOTPACK_DTYPE_INT64 || !out->is_contiguous()) {
    throw_invalid(std::string("randint into ") + dtype_name(out->dtype));
  }
  uint64_t state = Call::current().seed();
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  int64_t* values = out->as<int64_t>();
  for (int64_t i = 0, n = out->numel(); i < n; ++i) {
    // The high part of a 128-bit product is uniform to within 2^-64 of the span.
    const uint64_t offset = static_cast<uint64_t>((static_cast<unsigned __int128>(next(&state)) * span) >> 64);
    values[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
  }
}
