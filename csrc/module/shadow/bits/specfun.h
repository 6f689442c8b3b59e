// Shadows libstdc++'s header of this name, which <cmath> includes: Bessel functions and the like, for float and long
// double. Nothing here calls them, and to instantiate them takes longer than to compile most kernels.
#pragma once

// Others rely on what it includes.
#include <bits/stl_algobase.h>

#include <limits>
#include <type_traits>
