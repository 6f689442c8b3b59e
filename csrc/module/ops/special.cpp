// Special functions that Triton does not have, by torch's code for CPUs: elementwise, for modules of GPUs.
#include "declare/special.h"

#include <ATen/native/Math.h>

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// Nanoseconds per element: they range from ten to some hundred.
constexpr double kCost = 100.0;

template <typename T>
T polygamma(T x, T n) {
  if (n == 0) return calc_digamma(x);
  return n == 1 ? static_cast<T>(trigamma(x)) : calc_polygamma(x, static_cast<int>(n));
}

// The numbers are those of NAMES in aotpack/export/ops/special.py.
template <typename T>
T value(int64_t function, T x, T y) {
  switch (function) {
    case 0:  // airy_ai
      return airy_ai_forward(x);
    case 1:  // digamma
      return calc_digamma(x);
    case 2:  // igamma
      return calc_igamma(x, y);
    case 3:  // igammac
      return calc_igammac(x, y);
    case 4:  // i0e
      return calc_i0e(x);
    case 5:  // i1e
      return calc_i1e(x);
    case 6:  // log_ndtr
      return calc_log_ndtr(x);
    case 7:  // ndtri
      return calc_ndtri(x);
    case 8:  // polygamma
      return polygamma(x, y);
    case 9:  // modified_bessel_k0
      return modified_bessel_k0_forward(x);
    case 10:  // modified_bessel_k1
      return modified_bessel_k1_forward(x);
    case 11:  // scaled_modified_bessel_k0
      return scaled_modified_bessel_k0_forward(x);
    case 12:  // scaled_modified_bessel_k1
      return scaled_modified_bessel_k1_forward(x);
    case 13:  // spherical_bessel_j0
      return spherical_bessel_j0_forward(x);
    case 14:  // zeta
      return zeta(x, y);
    case 15:  // chebyshev_polynomial_t
      return chebyshev_polynomial_t_forward(x, y);
    case 16:  // chebyshev_polynomial_u
      return chebyshev_polynomial_u_forward(x, y);
    case 17:  // chebyshev_polynomial_v
      return chebyshev_polynomial_v_forward(x, y);
    case 18:  // chebyshev_polynomial_w
      return chebyshev_polynomial_w_forward(x, y);
    case 19:  // legendre_polynomial_p
      return legendre_polynomial_p_forward(x, y);
    case 20:  // shifted_chebyshev_polynomial_t
      return shifted_chebyshev_polynomial_t_forward(x, y);
    case 21:  // shifted_chebyshev_polynomial_u
      return shifted_chebyshev_polynomial_u_forward(x, y);
    case 22:  // shifted_chebyshev_polynomial_v
      return shifted_chebyshev_polynomial_v_forward(x, y);
    case 23:  // shifted_chebyshev_polynomial_w
      return shifted_chebyshev_polynomial_w_forward(x, y);
    case 24:  // hermite_polynomial_h
      return hermite_polynomial_h_forward(x, y);
    case 25:  // hermite_polynomial_he
      return hermite_polynomial_he_forward(x, y);
    case 26:  // laguerre_polynomial_l
      return laguerre_polynomial_l_forward(x, y);
    default:
      return x;
  }
}

}  // namespace

void aoti_torch_cpu_special_function(AotpackTensor a, AotpackTensor b, int64_t function, AotpackTensor* ret0) {
  Owned x(contiguous(a)), y(contiguous(b));
  if (a->dtype != b->dtype || x->numel() != y->numel()) throw_invalid("numbers of one dtype and shape are expected");
  Owned result(Call::current().empty_contiguous(a->rank, a->sizes, a->dtype));
  const int64_t n = x->numel(), parts = parts_for(n, kCost);
  dispatch(a->dtype, "special_function", [&]<typename T>(T) {
    if constexpr (!std::is_same_v<T, float> && !std::is_same_v<T, double>) {
      throw_invalid(std::string("float32 or float64 is expected, not ") + dtype_name(a->dtype));
    } else {
      for_parts(parts, n, [&](int64_t, int64_t begin, int64_t end) {
        const T *p = x->as<T>(), *q = y->as<T>();
        T* to = result->as<T>();
        for (int64_t i = begin; i < end; ++i) to[i] = value(function, p[i], q[i]);
      });
    }
  });
  *ret0 = result.release();
}
