// Elementwise functions of two integers that take a loop each.
#include "declare/integers.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// Signed numbers wrap, as in torch: the least one is its own absolute value.
template <typename T>
T wrapping_product(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

template <typename T>
T magnitude(T value) {
  return value < 0 ? static_cast<T>(-static_cast<uint64_t>(value)) : value;
}

// Euclid's algorithm.
template <typename T>
T common_divisor(T first, T second) {
  T a = magnitude(first), b = magnitude(second);
  while (a != 0) {
    // The least number over -1 would trap.
    const T rest = std::is_signed_v<T> && a == static_cast<T>(-1) ? T(0) : static_cast<T>(b % a);
    b = a;
    a = rest;
  }
  return b;
}

// By squaring. A negative power of a whole number is whole for 1 and -1 alone, and 0 otherwise.
template <typename T>
T power(T base, T exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == static_cast<T>(-1)) return exponent % 2 == 0 ? T(1) : static_cast<T>(-1);
    return 0;
  }
  T result = 1;
  for (T rest = exponent; rest != 0; rest = static_cast<T>(rest / 2)) {
    if (rest % 2 != 0) result = wrapping_product(result, base);
    base = wrapping_product(base, base);
  }
  return result;
}

}  // namespace

void aoti_torch_cpu_integer_binary(AotpackTensor a, AotpackTensor b, int64_t operation, AotpackTensor* ret0) {
  Owned x(contiguous(a)), y(contiguous(b));
  if (a->dtype != b->dtype || x->numel() != y->numel()) throw_invalid("integers of one dtype and shape are expected");
  Owned result(Call::current().empty_contiguous(a->rank, a->sizes, a->dtype));
  const int64_t n = x->numel(), parts = parts_for(n, 50.0);
  dispatch(a->dtype, operation == 0 ? "gcd" : "pow", [&]<typename T>(T) {
    if constexpr (!std::is_integral_v<T> || std::is_same_v<T, bool>) {
      throw_invalid(std::string("integers are expected, not ") + dtype_name(a->dtype));
    } else {
      for_parts(parts, n, [&](int64_t, int64_t begin, int64_t end) {
        const T *p = x->as<T>(), *q = y->as<T>();
        T* to = result->as<T>();
        for (int64_t i = begin; i < end; ++i) to[i] = operation == 0 ? common_divisor(p[i], q[i]) : power(p[i], q[i]);
      });
    }
  });
  *ret0 = result.release();
}
