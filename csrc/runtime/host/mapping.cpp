#include "host/mapping.h"

#include <sys/mman.h>

namespace aotpack::runtime {

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(base_, size_);
}

}  // namespace aotpack::runtime
