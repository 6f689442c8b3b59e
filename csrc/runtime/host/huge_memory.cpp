#include "host/huge_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace aotpack::runtime {

namespace {

// For the whole pages of a range. What fails only costs time or memory.
void advise(void* memory, size_t bytes, size_t page, int advice) noexcept {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void advise_huge(void* memory, size_t bytes) noexcept { advise(memory, bytes, kHugePage, MADV_HUGEPAGE); }

void return_pages(void* memory, size_t bytes) noexcept {
  advise(memory, bytes, static_cast<size_t>(::sysconf(_SC_PAGESIZE)), MADV_DONTNEED);
}

Mapping map_zeros(size_t bytes) noexcept {
  if (bytes == 0 || bytes > SIZE_MAX - kHugePage) return {};
  const size_t size = bytes + kHugePage;
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return {};
  auto* data = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base) + kHugePage - 1) / kHugePage * kHugePage);
  advise_huge(data, bytes);
  return {base, size, data};
}

}  // namespace aotpack::runtime
