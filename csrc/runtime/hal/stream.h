// Work on a device, one piece after another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotpack::runtime {

// Belongs to one thread at a time. Work begins in the order in which it was given, and may end after the function that
// gives it has returned: memory that it reads or writes stays as it is until wait().
class Stream {
 public:
  virtual ~Stream() = default;

  // What modules and drivers know the stream by; NULL where all work ends before the function that gives it returns.
  virtual void* handle() noexcept = 0;

  // Copies bytes. Either side may be memory of the host or of the stream's device. Throws INTERNAL.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Copies every element of a view into another of the same sizes, as strided_copy (base/strided.h) does. Sizes and
  // strides are read before it returns. Throws INTERNAL.
  virtual void copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                            const int64_t* sizes, int32_t rank, size_t item) = 0;

  // Returns when all work has ended. Throws INTERNAL where some of it has failed.
  virtual void wait() = 0;
};

}  // namespace aotpack::runtime
