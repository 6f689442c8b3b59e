// Views of complex tensors, and running products.
#include "declare/complex.h"
#include "driver.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    {"view_as_real", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_view_as_real(a.tensors[0], &r[0]); }}},
    {"view_as_complex", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_view_as_complex(a.tensors[0], &r[0]); }}},
    {"permute",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_permute(a.tensors[0], a.ints.data(), static_cast<int64_t>(a.ints.size()), &r[0]);
      }}},
    {"store",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_complex_store(a.tensors[0], a.tensors[1]);
        r[0] = again(a.tensors[0]);
      }}},
    {"cumprod", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_complex_cumprod(a.tensors[0], a.ints[0], &r[0]); }}},
};

}  // namespace
