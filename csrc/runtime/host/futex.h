// Sleeping until a word changes (futex(2)).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace aotpack::runtime {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Returns at once unless the word is `value`; may return for no reason.
inline void futex_wait(const std::atomic<uint32_t>* word, uint32_t value) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(const std::atomic<uint32_t>* word, int32_t count) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// In a loop that waits for another thread.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace aotpack::runtime
