/* A shared object that is no module. */
__attribute__((visibility("default"))) int something_else(void);
int something_else(void) { return 1; }
