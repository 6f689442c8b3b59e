/* Says that its code was executed, whatever becomes of it then. */
#include <stdlib.h>

__attribute__((constructor)) static void announce(void) { setenv("AOTPACK_TEST_INTRUDER", "1", 1); }
