// Libraries of NVIDIA's that hosts may have beside the driver, such as cuFFT. Nothing is linked: they are opened when a
// call first asks for one.
#pragma once

#include <initializer_list>
#include <string>

namespace aotpack::runtime::cuda {

// Folders to look in, separated by ':', after those that the environment variable AOTPACK_PROVIDER_PATH names and
// before those of the dynamic linker. For the whole process, for libraries that are not open yet. Thread-safe.
void add_library_folders(const std::string& folders);

// A handle of dlopen for the first of these file names that is found; NULL where there is none. It stays open until the
// process ends.
void* open_library(std::initializer_list<const char*> names);

void* find_symbol(void* library, const char* symbol) noexcept;

// The function of a library; false, and NULL, where it has none of this name.
template <typename Function>
bool find_function(void* library, const char* symbol, Function* out) {
  *out = reinterpret_cast<Function>(find_symbol(library, symbol));
  return *out != nullptr;
}

}  // namespace aotpack::runtime::cuda
