/* Needs a feature that no runtime has. */
#define FEATURES (AOTPACK_MODULE_FEATURE_ASYNC | 1ull << 40)
#include "devices.c"
