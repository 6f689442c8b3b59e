// A module whose table and function are the fuzzer's own (fuzz_run.cpp); ID says which of its tables.
#include "aotpack/module_abi.h"

extern const aotpack_module* fuzz_table(int id);

__attribute__((visibility("default"))) const aotpack_module* aotpack_module_query(uint32_t version) {
  (void)version;
  return fuzz_table(ID);
}
