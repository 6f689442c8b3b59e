// What TorchInductor's generated wrapper expects of torch's C shim and aoti_runtime headers, answered over
// module::Tensor.
//
// The headers under shadow/ have the names that generated code includes and all lead here. Functions keep torch's names
// because generated code calls them, but they are hidden symbols of the module: nothing is resolved against libtorch,
// and both can live in one process. Instead of returning error codes they throw module::Error, which the entry of the
// module turns into the error of the call.
#pragma once

// Generated code relies on these.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shim/arithmetic.h"
#include "shim/constants.h"
#include "shim/failures.h"
#include "shim/handles.h"
#include "shim/host_data.h"
#include "shim/scalars.h"
#include "shim/tensors.h"
#include "tensor.h"
#include "vecmath/erf.h"
