#define FOLD
#include "updatable.c"
