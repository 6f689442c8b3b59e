// Errors inside the runtime are exceptions of one type; the C interface turns them into aotpack_status objects.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "aotpack/aotpack.h"

struct aotpack_status {
  aotpack_code code;
  std::string message;
};

namespace aotpack::runtime {

class Error : public std::exception {
 public:
  Error(aotpack_code code, std::string message) : code_(code), message_(std::move(message)) {}
  aotpack_code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  aotpack_code code_;
  std::string message_;
};

// printf into a string.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

[[noreturn]] void fail(aotpack_code code, const char* pattern, ...) __attribute__((format(printf, 2, 3)));

// Never NULL: when even the status cannot be allocated, a static out-of-memory one is returned.
aotpack_status* make_status(aotpack_code code, const std::string& message) noexcept;
void release_status(aotpack_status* status) noexcept;

// The exception that is being handled, as a status. For catch blocks only.
aotpack_status* status_of_current_exception() noexcept;

// Runs `body`; whatever it throws becomes the status that is returned.
template <typename Body>
aotpack_status* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return status_of_current_exception();
  }
}

}  // namespace aotpack::runtime
