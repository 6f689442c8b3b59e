// How the libraries get at the streams and the memory of the fake driver.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

namespace fake_providers {

template <typename Function>
Function find_driver(const char* name) {
  static void* const driver = dlopen(std::getenv("AOTPACK_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(driver, name));
}

// What an access outside of live allocations throws.
struct Fault {};

template <typename T>
T* access(const void* address, size_t count) {
  static const auto find = find_driver<void* (*)(uint64_t, size_t)>("fake_cuda_access");
  void* memory = find(reinterpret_cast<uint64_t>(address), count * sizeof(T));
  if (memory == nullptr) throw Fault();
  return static_cast<T*>(memory);
}

// Whether the driver has taken the work.
inline bool submit(void* stream, std::function<void()> work) {
  static const auto queue = find_driver<int (*)(void*, int (*)(void*), void*, void (*)(void*))>("fake_cuda_submit");
  const auto run = [](void* data) {
    try {
      (*static_cast<std::function<void()>*>(data))();
      return 0;
    } catch (const Fault&) {
      return 700;
    }
  };
  const auto drop = [](void* data) { delete static_cast<std::function<void()>*>(data); };
  return queue(stream, run, new std::function<void()>(std::move(work)), drop) == 0;
}

inline int version() {
  const char* text = std::getenv("FAKE_PROVIDER_VERSION");
  return text != nullptr ? std::atoi(text) : 12000;
}

inline bool fails(const char* function) {
  const char* text = std::getenv("FAKE_PROVIDER_FAIL");
  return text != nullptr && std::strcmp(text, function) == 0;
}

inline void spoil(const void* memory, size_t bytes) { std::memset(access<char>(memory, bytes), 0x7f, bytes); }

}  // namespace fake_providers

#define EXPORT extern "C" __attribute__((visibility("default")))
