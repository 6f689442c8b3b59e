// Modes, histograms, the order of rows, functions of two integers.
#include "declare/histogram.h"
#include "declare/integers.h"
#include "declare/lexsort.h"
#include "declare/mode.h"
#include "declare/sort.h"
#include "driver.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    {"mode",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_mode(a.tensors[0], a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1]);
      }}},
    // bins, min, max
    {"histc",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_histc(a.tensors[0], a.ints[0], static_cast<double>(a.ints[1]), static_cast<double>(a.ints[2]),
                             &r[0]);
      }}},
    // dims, bins of each; then the bounds of each, if there are any
    {"histogram_edges",
     {1,
      [](Arguments& a, Tensor** r) {
        const int64_t dims = a.ints[0];
        const std::vector<double> range(a.ints.begin() + 1 + dims, a.ints.end());
        aoti_torch_cpu_histogram_edges(a.tensors[0], &a.ints[1], dims, range.data(), static_cast<int64_t>(range.size()),
                                       &r[0]);
      }}},
    // points, edges, weight?; bins
    {"histogram_counts",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_histogram_counts(a.tensors[0], a.tensors[1], a.ints.data(), static_cast<int64_t>(a.ints.size()),
                                        a.optional(2), &r[0]);
      }}},
    {"sort_rows", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_sort_rows(a.tensors[0], &r[0]); }}},
    {"integer_binary",
     {1,
      [](Arguments& a, Tensor** r) { aoti_torch_cpu_integer_binary(a.tensors[0], a.tensors[1], a.ints[0], &r[0]); }}},
    {"topk",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_topk(a.tensors[0], a.ints[0], a.ints[1], static_cast<int32_t>(a.ints[2]),
                            static_cast<int32_t>(a.ints[3]), &r[0], &r[1]);
      }}},
};

}  // namespace
