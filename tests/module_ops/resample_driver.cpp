// Resampling and sampling by grids.
#include "declare/grid_sampler.h"
#include "declare/resample.h"
#include "driver.h"

namespace {

// size..., mode, align_corners, then the scales as thousandths.
struct Options {
  std::vector<int64_t> size;
  std::vector<double> scales;
  int64_t mode, align_corners;
  explicit Options(const Arguments& a) {
    const size_t spatial = (a.ints.size() - 2) / 2;
    size.assign(a.ints.begin(), a.ints.begin() + static_cast<int64_t>(spatial));
    mode = a.ints[spatial];
    align_corners = a.ints[spatial + 1];
    for (size_t i = spatial + 2; i < a.ints.size(); ++i) scales.push_back(static_cast<double>(a.ints[i]) / 1000.0);
  }
};

template <auto function>
void resampled(Arguments& a, Tensor** r) {
  const Options o(a);
  const auto count = static_cast<int64_t>(o.size.size());
  function(a.tensors[0], o.size.data(), count, o.mode, static_cast<int32_t>(o.align_corners), o.scales.data(), count,
           &r[0]);
}

template <auto function>
void sampled_backward(Arguments& a, Tensor** r) {
  const int32_t mask[2] = {1, 1};
  function(a.tensors[0], a.tensors[1], a.tensors[2], a.ints[0], a.ints[1], static_cast<int32_t>(a.ints[2]), mask, 2,
           &r[0], &r[1]);
}

const std::map<std::string, Entry> kOperators = {
    {"resample", {1, resampled<aoti_torch_cpu_resample>}},
    {"resample_backward", {1, resampled<aoti_torch_cpu_resample_backward>}},
    {"grid_sampler_3d",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_grid_sampler_3d(a.tensors[0], a.tensors[1], a.ints[0], a.ints[1],
                                       static_cast<int32_t>(a.ints[2]), &r[0]);
      }}},
    {"grid_sampler_2d_backward", {2, sampled_backward<aoti_torch_cpu_grid_sampler_2d_backward>}},
    {"grid_sampler_3d_backward", {2, sampled_backward<aoti_torch_cpu_grid_sampler_3d_backward>}},
};

}  // namespace
