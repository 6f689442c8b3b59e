// The operators on tensors of any meaning: scans, sorts, indexing.
#include "driver.h"

#include "declare/index.h"
#include "declare/mask.h"
#include "declare/scan.h"
#include "declare/scatter.h"
#include "declare/sort.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    {"cumsum",
     {1,
      [](Arguments& a, Tensor** r) {
        int32_t dtype = a.ints.size() > 1 ? static_cast<int32_t>(a.ints[1]) : 0;
        aoti_torch_cpu_cumsum(a.tensors[0], a.ints[0], a.ints.size() > 1 ? &dtype : nullptr, &r[0]);
      }}},
    {"cumprod",
     {1,
      [](Arguments& a, Tensor** r) {
        int32_t dtype = a.ints.size() > 1 ? static_cast<int32_t>(a.ints[1]) : 0;
        aoti_torch_cpu_cumprod(a.tensors[0], a.ints[0], a.ints.size() > 1 ? &dtype : nullptr, &r[0]);
      }}},
    {"logcumsumexp",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_logcumsumexp(a.tensors[0], a.ints[0], &r[0]); }}},
    {"cummax", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_cummax(a.tensors[0], a.ints[0], &r[0], &r[1]); }}},
    {"cummin", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_cummin(a.tensors[0], a.ints[0], &r[0], &r[1]); }}},
    {"sort",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_sort(a.tensors[0], a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1]);
      }}},
    {"sort_stable",
     {2,
      [](Arguments& a, Tensor** r) {
        int32_t stable = 1;
        aoti_torch_cpu_sort_stable(a.tensors[0], &stable, a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1]);
      }}},
    {"topk",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_topk(a.tensors[0], a.ints[0], a.ints[1], static_cast<int32_t>(a.ints[2]),
                            static_cast<int32_t>(a.ints[3]), &r[0], &r[1]);
      }}},
    {"kthvalue",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_kthvalue(a.tensors[0], a.ints[0], a.ints[1], static_cast<int32_t>(a.ints[2]), &r[0], &r[1]);
      }}},
    {"searchsorted",
     {1,
      [](Arguments& a, Tensor** r) {
        const char* side = a.text;
        aoti_torch_cpu_searchsorted_Tensor(a.tensors[0], a.tensors[1], static_cast<int32_t>(a.ints[0]),
                                           static_cast<int32_t>(a.ints[1]), *side == '\0' ? nullptr : &side,
                                           a.optional(2), &r[0]);
      }}},
    {"searchsorted_scalar",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_searchsorted_Scalar(a.tensors[0], a.real, 0, static_cast<int32_t>(a.ints[0]), nullptr, nullptr,
                                           &r[0]);
      }}},
    {"bucketize",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_bucketize_Tensor(a.tensors[0], a.tensors[1], static_cast<int32_t>(a.ints[0]),
                                        static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
    {"index",
     {1,
      [](Arguments& a, Tensor** r) {
        auto indices = a.list(1, a.tensors.size() - 1);
        aoti_torch_cpu_index_Tensor(a.tensors[0], indices.data(), static_cast<int64_t>(indices.size()), &r[0]);
      }}},
    {"index_put",
     {1,
      [](Arguments& a, Tensor** r) {
        auto indices = a.list(2, a.tensors.size() - 2);
        aoti_torch_cpu_index_put(a.tensors[0], indices.data(), static_cast<int64_t>(indices.size()), a.tensors[1],
                                 static_cast<int32_t>(a.ints[0]), &r[0]);
      }}},
    {"index_put_out",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_index_put_out(a.tensors[0], a.tensors[0], a.tensors.data() + 2,
                                 static_cast<int64_t>(a.tensors.size()) - 2, a.tensors[1],
                                 static_cast<int32_t>(a.ints[0]));
        r[0] = again(a.tensors[0]);
      }}},
    {"nonzero", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_nonzero(a.tensors[0], &r[0]); }}},
    {"nonzero_static",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_nonzero_static(a.tensors[0], a.ints[0], a.ints[1], &r[0]); }}},
    {"masked_select",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_masked_select(a.tensors[0], a.tensors[1], &r[0]); }}},
    {"masked_scatter",
     {1, [](Arguments& a,
            Tensor** r) { aoti_torch_cpu_masked_scatter(a.tensors[0], a.tensors[1], a.tensors[2], &r[0]); }}},
    {"repeat_interleave",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_repeat_interleave_Tensor(a.tensors[0], a.ints.empty() ? nullptr : &a.ints[0], &r[0]);
      }}},
    {"scatter_src",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_scatter_src_out(a.tensors[0], a.tensors[1], a.ints[0], a.tensors[2], a.tensors[3]);
        r[0] = again(a.tensors[0]);
      }}},
    {"scatter_value",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_scatter_value_out(a.tensors[0], a.tensors[1], a.ints[0], a.tensors[2], a.real);
        r[0] = again(a.tensors[0]);
      }}},
    {"scatter_reduce",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_scatter_reduce_two_out(a.tensors[0], a.tensors[1], a.ints[0], a.tensors[2], a.tensors[3], a.text,
                                              static_cast<int32_t>(a.ints[1]));
        r[0] = again(a.tensors[0]);
      }}},
    {"index_reduce",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_index_reduce(a.tensors[0], a.ints[0], a.tensors[1], a.tensors[2], a.text,
                                    static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
};

}  // namespace
