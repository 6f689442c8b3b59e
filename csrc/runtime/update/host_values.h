// The values of a set of weights as the host reads them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "aotpack/dlpack.h"
#include "hal/stream.h"
#include "model/model.h"

namespace aotpack::runtime {

// Downloads what is on the model's device alone. Belongs to one thread; the values outlive it.
class HostValues {
 public:
  HostValues(const Model& model, const Model::Values& values) : model_(model), values_(values) {}

  // Whether the set has the value of a constant; NULL and false below if not.
  bool has(size_t constant) const noexcept { return there(constant) != nullptr || far(constant) != nullptr; }
  // The value of a constant in memory of the host. Valid as long as this. Throws std::bad_alloc and what streams throw.
  const void* get(size_t constant);
  // Whether the value of a constant is these bytes, all that it spans. Throws as above.
  bool equals(size_t constant, const void* bytes);

  // Copies a tensor on the model's device, which passed `match_given`, into a layout that spans `bytes`. The copy
  // follows the work of the device's default stream. Throws as above.
  void download(const DLTensor& tensor, void* to, const int64_t* strides, size_t item);

 private:
  const void* there(size_t constant) const noexcept {
    return model_.device().is_host() ? values_[constant].data : values_[constant].host;
  }
  // On the device, where the host cannot access it.
  const void* far(size_t constant) const noexcept {
    return model_.device().is_host() ? nullptr : values_[constant].data;
  }
  Stream& stream();

  const Model& model_;
  const Model::Values& values_;
  std::unique_ptr<Stream> stream_;  // made at the first use
  std::map<size_t, OwnedMemory> downloads_;
};

}  // namespace aotpack::runtime
