/* Needs a library that is not installed: absent.c, which lies where the dynamic linker does not look. */
int aotpack_test_absent(void);

__attribute__((visibility("default"))) int aotpack_test_call(void) { return aotpack_test_absent(); }
