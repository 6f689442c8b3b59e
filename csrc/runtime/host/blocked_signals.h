// Threads that are not the program's own.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace aotpack::runtime {

// Signals of the process are for the threads that the program made itself: those made while one exists block them.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace aotpack::runtime
