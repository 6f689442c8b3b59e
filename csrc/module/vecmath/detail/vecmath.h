// Elementary functions of vectors, by overload on float and double lanes.
#pragma once

#include "float_lanes.h"
#include "libm_lanes.h"
