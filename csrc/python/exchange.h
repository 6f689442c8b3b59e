// DLPack's C function table for Python types (DLPack 1.3, `__dlpack_c_exchange_api__`): what torch and others offer
// to pass tensors without a Python call. Layout per https://github.com/dmlc/dlpack (Apache-2.0).
#pragma once

#include "aotpack/dlpack.h"

namespace aotpack::python {

struct ExchangeApi {
  DLPackVersion version;
  const ExchangeApi* previous;
  int (*allocate)(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*from_object)(void* object, DLManagedTensorVersioned** out);
  int (*to_object)(DLManagedTensorVersioned* tensor, void** out_object);  // takes the tensor over
  int (*borrow)(void* object, DLTensor* out);                             // may be null
  int (*current_stream)(DLDeviceType device_type, int32_t device_id, void** out_stream);
};

}  // namespace aotpack::python
