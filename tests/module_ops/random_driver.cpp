// The operators that draw random numbers, and checks of values.
#include "declare/bounds.h"
#include "declare/random_draws.h"
#include "driver.h"
#include "ops/philox.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    // seed; low, last, sizes
    {"integers",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_random_integers(a.ints[0], a.ints[1], a.ints.data() + 2, static_cast<int64_t>(a.ints.size()) - 2,
                                       a.tensors[0], &r[0]);
      }}},
    // seed; n, dtype
    {"permutation",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_random_permutation(a.ints[0], a.tensors[0], static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
    {"poisson",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_random_poisson(a.tensors[0], a.tensors[1], &r[0]); }}},
    {"binomial",
     {1, [](Arguments& a,
            Tensor** r) { aoti_torch_cpu_random_binomial(a.tensors[0], a.tensors[1], a.tensors[2], &r[0]); }}},
    {"gamma", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_random_gamma(a.tensors[0], a.tensors[1], &r[0]); }}},
    {"dirichlet",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_random_dirichlet(a.tensors[0], a.tensors[1], &r[0]); }}},
    // weights, seed; samples, replacement
    {"multinomial",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_random_multinomial(a.tensors[0], a.ints[0], static_cast<int32_t>(a.ints[1]), a.tensors[1],
                                          &r[0]);
      }}},
    // x; message; low, high
    {"check_bounds",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_check_bounds(a.tensors[0], static_cast<double>(a.ints[0]), static_cast<double>(a.ints[1]),
                                    a.text, &r[0]);
      }}},
    // One block of the generator as four int64; seed, stream, position
    {"philox",
     {1,
      [](Arguments& a, Tensor** r) {
        const int64_t sizes[1] = {4};
        r[0] = Call::current().empty_contiguous(1, sizes, AOTPACK_DTYPE_INT64);
        const auto block = aotpack::module::Philox::block(
            static_cast<uint64_t>(a.ints[0]), static_cast<uint64_t>(a.ints[1]), static_cast<uint64_t>(a.ints[2]));
        for (int i = 0; i < 4; ++i) r[0]->as<int64_t>()[i] = block[static_cast<size_t>(i)];
      }}},
};

}  // namespace
