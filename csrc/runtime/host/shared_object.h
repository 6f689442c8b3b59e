// Shared objects that are loaded from memory.
#pragma once

#include <string>

#include "host/sealed_file.h"

namespace aotpack::runtime {

// Unloads itself. Immutable and thread-safe once made.
class SharedObject {
 public:
  SharedObject() noexcept = default;
  // Loads it and whatever libraries it needs. `what` starts the messages. Throws IO_ERROR where the operating system
  // refuses to execute files in memory, MISSING_IMPORT where a library or symbol that it needs is not there, and
  // MALFORMED_ARCHIVE where the dynamic linker does not accept it for another reason.
  SharedObject(SealedFile file, const std::string& what);
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  // NULL when it exports no symbol of this name.
  void* find(const char* symbol) const noexcept;

 private:
  SealedFile file_;
  void* handle_ = nullptr;
};

}  // namespace aotpack::runtime
