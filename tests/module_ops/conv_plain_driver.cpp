// Convolutions and products of doubles and integers.
#include "declare/conv.h"
#include "declare/gemm.h"
#include "driver.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    // x, weight, bias?; transposed, groups, then stride, padding, dilation, output padding
    {"convolution",
     {1,
      [](Arguments& a, Tensor** r) {
        const int64_t d = a.tensors[0]->rank - 2;
        const int64_t* lists = a.ints.data() + 2;
        aoti_torch_cpu_convolution(a.tensors[0], a.tensors[1], a.optional(2), lists, d, lists + d, d, lists + 2 * d, d,
                                   static_cast<int32_t>(a.ints[0]), lists + 3 * d, d, a.ints[1], &r[0]);
      }}},
    {"mm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_mm_out(a.tensors[0], a.tensors[1], a.tensors[2]);
        r[0] = again(a.tensors[0]);
      }}},
    {"baddbmm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_baddbmm_out(a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3], 2.0, 3.0);
        r[0] = again(a.tensors[0]);
      }}},
    {"_int_mm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu__int_mm_out(a.tensors[0], a.tensors[1], a.tensors[2]);
        r[0] = again(a.tensors[0]);
      }}},
};

}  // namespace
