/* Needs a symbol of some version of libc. */
#include <stdlib.h>

__attribute__((visibility("default"))) char* aotpack_test_call(const char* name) { return getenv(name); }
