/* The same for another target: y = 3 * x + w. */
#define FACTOR 3.0f
#define TARGET "cuda-sm_80"
#include "cuda_affine.c"
