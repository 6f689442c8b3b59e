/* y = 3 * x + w for cuda-sm_80, without PTX. */
#define FACTOR 3.0f
#define TARGET "cuda-sm_80"
#define ASSETS "affine.cubin"
#define NUM_ASSETS 1
#include "cuda_affine.c"
