// What the files of the C interface share: handles, and checks of arguments.
#pragma once

#include "aotpack/aotpack.h"
#include "base/status.h"
#include "call/context.h"
#include "model/model.h"

namespace aotpack::runtime {

// The handles are never defined: they are the classes under another name.
inline Model* unwrap(aotpack_model* model) { return reinterpret_cast<Model*>(model); }
inline const Model* unwrap(const aotpack_model* model) { return reinterpret_cast<const Model*>(model); }
inline Context* unwrap(aotpack_context* context) { return reinterpret_cast<Context*>(context); }
inline const Context* unwrap(const aotpack_context* context) { return reinterpret_cast<const Context*>(context); }

inline void require(bool condition, const char* what) {
  if (!condition) fail(AOTPACK_INVALID_ARGUMENT, "%s", what);
}

}  // namespace aotpack::runtime
