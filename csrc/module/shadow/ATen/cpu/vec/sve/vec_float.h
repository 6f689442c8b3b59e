// Torch's vectors of floats for SVE, with another tanh: theirs is a difference of exponentials, which is 0 for small
// arguments, where eager returns x.
#pragma once

#include <ATen/cpu/vec/sve/sve_helper.h>
#include <ATen/cpu/vec/vec_base.h>
#include <sleef.h>

#include <cmath>

#define tanh()                                                            \
  tanh() const { return Vectorized<float>(Sleef_tanhfx_u10sve(values)); } \
  Vectorized<float> tanh_of_exponentials()
#include_next <ATen/cpu/vec/sve/vec_float.h>
#undef tanh
