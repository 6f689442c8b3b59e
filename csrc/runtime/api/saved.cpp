// The functions of the C interface that concern forwards and their backwards.
#include "call/saved.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "aotpack/aotpack.h"
#include "api/handles.h"
#include "base/status.h"

using aotpack::runtime::Context;
using aotpack::runtime::fail;
using aotpack::runtime::guarded;
using aotpack::runtime::Model;
using aotpack::runtime::require;
using aotpack::runtime::Saved;
using aotpack::runtime::unwrap;

namespace {

Saved* unwrap(aotpack_saved* saved) { return reinterpret_cast<Saved*>(saved); }
const Saved* unwrap(const aotpack_saved* saved) { return reinterpret_cast<const Saved*>(saved); }

// Failures leave no result behind.
void clear(DLManagedTensorVersioned** outputs, size_t count) {
  if (outputs != nullptr) std::fill(outputs, outputs + count, nullptr);
}

}  // namespace

extern "C" {

const aotpack_backward_info* aotpack_model_backward(const aotpack_model* model, size_t entry) {
  if (model == nullptr || entry >= unwrap(model)->entries().size()) return nullptr;
  return unwrap(model)->entries()[entry].infos.backward();
}

aotpack_status* aotpack_context_forward(aotpack_context* context, size_t entry, const DLTensor* const* inputs,
                                        size_t num_inputs, DLManagedTensorVersioned** out_outputs, size_t num_outputs,
                                        aotpack_saved** out_saved) {
  clear(out_outputs, num_outputs);
  if (out_saved != nullptr) *out_saved = nullptr;
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(out_saved != nullptr, "out_saved is NULL");
    auto saved = run_forward(unwrap(context), entry, inputs, num_inputs, out_outputs, num_outputs);
    *out_saved = reinterpret_cast<aotpack_saved*>(saved.release());
  });
}

aotpack_status* aotpack_context_backward(aotpack_context* context, const aotpack_saved* saved,
                                         const DLTensor* const* gradients, size_t num_gradients,
                                         DLManagedTensorVersioned** out_outputs, size_t num_outputs) {
  clear(out_outputs, num_outputs);
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(saved != nullptr, "saved is NULL");
    run_backward(unwrap(context), *unwrap(saved), gradients, num_gradients, out_outputs, num_outputs);
  });
}

size_t aotpack_saved_nbytes(const aotpack_saved* saved) { return saved != nullptr ? unwrap(saved)->nbytes() : 0; }

void aotpack_saved_release(aotpack_saved* saved) { delete unwrap(saved); }

}  // extern "C"
