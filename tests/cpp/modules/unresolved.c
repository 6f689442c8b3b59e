/* Needs a symbol that no library has. */
int aotpack_test_absent(void);

__attribute__((visibility("default"))) int aotpack_test_call(void) { return aotpack_test_absent(); }
