// What declarations of operators have in common.
//
// declare/<group>.h has the operators that generated code may call, by the names and signatures that it uses; they are
// implemented in ops/<group>.cpp. The build reads the names declared there to know what is supported: an operator that
// is not listed stops a build before anything is compiled. A module compiles and links only the groups that its model
// calls. All operators throw module::Error. A `Tensor**` argument is an optional tensor: null pointer for none. Results
// come through the last arguments and belong to the caller. A tensor named `out` is one that the operator writes to:
// every element of it, and it reads none unless another argument is the same tensor.
#pragma once

#include "tensor_data.h"

using AotpackTensor = aotpack::module::Tensor*;
