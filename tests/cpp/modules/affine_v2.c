/* The same for another variant or target: y = 3 * x + w, and it says that it is for x86-64-v2. */
#define FACTOR 3.0f
#define TARGET "x86-64-v2"
#include "affine.c"
