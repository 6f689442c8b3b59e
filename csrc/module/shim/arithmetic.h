// Arithmetic on sizes that generated wrappers compute.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor.h"

// Sizes that generated wrappers compute, by Python's rules. Kernels have torch's own functions of these names, which
// answer 0 for a division by zero; where the model's sizes are computed, Python would have raised.
namespace c10 {

inline int64_t div_floor_integer(int64_t a, int64_t b) {
  if (b == 0) aotpack::module::throw_invalid("division by zero while the model computes a size");
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  const int64_t quotient = a / b;
  return quotient - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
}
inline int64_t div_mod(int64_t a, int64_t b) {
  if (b == 0) aotpack::module::throw_invalid("division by zero while the model computes a size");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline double div_floor_floating(double a, double b) {
  if (b == 0) aotpack::module::throw_invalid("division by zero while the model computes a number");
  return std::floor(a / b);
}

}  // namespace c10

inline int64_t align(int64_t nbytes) { return (nbytes + 63) & -64; }
