#include "base/status.h"

#include <cstdarg>
#include <cstdio>

namespace aotpack::runtime {
namespace {

// An out-of-memory status must not need memory. The message fits std::string's inline buffer for the same reason.
aotpack_status& out_of_memory_status() noexcept {
  static aotpack_status status{AOTPACK_OUT_OF_MEMORY, "out of memory"};
  return status;
}

// Ends a list of arguments, also where formatting runs out of memory.
struct ListEnd {
  va_list& arguments;
  ~ListEnd() { va_end(arguments); }
};

std::string format_list(const char* pattern, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, again);
  va_end(again);
  if (length < 0) return pattern;
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, arguments);
  return text;
}

}  // namespace

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  const ListEnd end{arguments};
  return format_list(pattern, arguments);
}

void fail(aotpack_code code, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  const ListEnd end{arguments};
  throw Error(code, format_list(pattern, arguments));
}

aotpack_status* make_status(aotpack_code code, const std::string& message) noexcept {
  try {
    return new aotpack_status{code, message};
  } catch (...) {
    return &out_of_memory_status();
  }
}

void release_status(aotpack_status* status) noexcept {
  if (status != &out_of_memory_status()) delete status;
}

aotpack_status* status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return make_status(error.code(), error.message());
  } catch (const std::bad_alloc&) {
    return &out_of_memory_status();
  } catch (const std::exception& error) {
    try {
      return make_status(AOTPACK_INTERNAL, std::string("internal error: ") + error.what());
    } catch (...) {
      return &out_of_memory_status();
    }
  } catch (...) {
    return make_status(AOTPACK_INTERNAL, "internal error");
  }
}

}  // namespace aotpack::runtime
