#include "call/failure.h"

#include "aotpack/module_abi.h"
#include "base/status.h"

namespace aotpack::runtime {

void throw_failure(CallState* state, const std::string& what, int32_t code) {
  state->release_blocks();
  if (state->fail_code != 0) code = state->fail_code;
  if (state->allocation_failed) code = AOTPACK_MODULE_OUT_OF_MEMORY;
  aotpack_code public_code = AOTPACK_INTERNAL;
  const char* fallback = "the module returned an unknown code";
  switch (code) {
    case AOTPACK_MODULE_INVALID_ARGUMENT:
      public_code = AOTPACK_EXECUTION_FAILED;
      fallback = "the inputs are invalid";
      break;
    case AOTPACK_MODULE_OUT_OF_MEMORY:
      public_code = AOTPACK_OUT_OF_MEMORY;
      fallback = "out of memory";
      break;
    case AOTPACK_MODULE_FAILED:
      public_code = AOTPACK_EXECUTION_FAILED;
      fallback = "the module failed without giving a reason";
      break;
  }
  if (state->error != AOTPACK_OK) public_code = state->error;
  throw Error(public_code, what + ": " + (state->fail_message.empty() ? fallback : state->fail_message));
}

}  // namespace aotpack::runtime
