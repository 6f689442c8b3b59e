__attribute__((visibility("default"))) int aotpack_test_absent(void) { return 1; }
