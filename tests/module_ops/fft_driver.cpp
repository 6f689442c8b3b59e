// Fourier transforms.
#include "declare/fft.h"
#include "driver.h"

namespace {

// ints: the number of dims, dims, normalization, and forward, onesided or the last dim's size, and the order.
template <typename F>
Operator entry(F) {
  return [](Arguments& a, Tensor** r) {
    const int64_t count = a.ints[0];
    const int64_t* rest = a.ints.data() + 1 + count;
    F{}(a.tensors[0], a.ints.data() + 1, count, rest[0], rest[1], rest + 2,
        static_cast<int64_t>(a.ints.size()) - 3 - count, &r[0]);
  };
}

struct C2c {
  void operator()(Tensor* x, const int64_t* dim, int64_t dims, int64_t mode, int64_t flag, const int64_t* order,
                  int64_t orders, Tensor** r) const {
    aoti_torch_cpu_fft_c2c(x, dim, dims, mode, static_cast<int32_t>(flag), order, orders, r);
  }
};
struct R2c {
  void operator()(Tensor* x, const int64_t* dim, int64_t dims, int64_t mode, int64_t flag, const int64_t* order,
                  int64_t orders, Tensor** r) const {
    aoti_torch_cpu_fft_r2c(x, dim, dims, mode, static_cast<int32_t>(flag), order, orders, r);
  }
};
struct C2r {
  void operator()(Tensor* x, const int64_t* dim, int64_t dims, int64_t mode, int64_t size, const int64_t* order,
                  int64_t orders, Tensor** r) const {
    aoti_torch_cpu_fft_c2r(x, dim, dims, mode, size, order, orders, r);
  }
};

const std::map<std::string, Entry> kOperators = {
    {"fft_c2c", {1, entry(C2c{})}},
    {"fft_r2c", {1, entry(R2c{})}},
    {"fft_c2r", {1, entry(C2r{})}},
};

}  // namespace
