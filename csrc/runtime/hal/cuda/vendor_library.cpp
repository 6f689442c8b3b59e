#include "hal/cuda/vendor_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace aotpack::runtime::cuda {
namespace {

// Never destroyed: contexts may be released while the process ends.
struct Folders {
  std::mutex mutex;
  std::vector<std::string> added;
};
Folders& folders() {
  static auto& all = *new Folders;
  return all;
}

void split(const std::string& text, std::vector<std::string>* out) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) out->push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

void add_library_folders(const std::string& text) {
  const std::lock_guard lock(folders().mutex);
  std::vector<std::string> given;
  split(text, &given);
  std::vector<std::string>& known = folders().added;
  for (std::string& folder : given) {
    if (std::find(known.begin(), known.end(), folder) == known.end()) known.push_back(std::move(folder));
  }
}

void* open_library(std::initializer_list<const char*> names) {
  std::vector<std::string> places;
  if (const char* path = std::getenv("AOTPACK_PROVIDER_PATH")) split(path, &places);
  {
    const std::lock_guard lock(folders().mutex);
    places.insert(places.end(), folders().added.begin(), folders().added.end());
  }
  const auto open = [](const std::string& file) { return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); };
  for (const std::string& folder : places) {
    for (const char* name : names) {
      if (void* library = open(folder + "/" + name)) return library;
    }
  }
  for (const char* name : names) {
    if (void* library = open(name)) return library;
  }
  return nullptr;
}

void* find_symbol(void* library, const char* symbol) noexcept { return dlsym(library, symbol); }

}  // namespace aotpack::runtime::cuda
