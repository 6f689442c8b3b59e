// How many threads a call may really use: OpenMP runtimes neither survive a fork nor take a refusal.
#pragma once

#include <cstdint>

namespace aotpack::runtime {

// The threads that parallel regions of the calling thread may have, of `wanted`; at least 1.
//
// libgomp ends the process where it cannot create a thread (a limit on processes, on address space). So before a thread
// has more of them than it ever had, as many are created at once and joined, and the number is capped at what the
// system gives. The answer is remembered for the thread.
int32_t possible_threads(int32_t wanted) noexcept;

// The same for a parallel region that begins now.
//
// libgomp keeps idle threads for each thread that runs parallel regions. In the child of a fork they do not exist, and
// it would wait for them forever: there the thread that called fork has one thread from then on, if it had used more
// before. Threads that are created in the child have all.
int32_t begin_team(int32_t wanted) noexcept;

// How many forks lie between the process that asked first and this one: threads that another process has made are not
// here.
uint32_t count_forks() noexcept;

// How many threads besides the calling one can exist at once, up to `wanted`: creates and joins them.
int32_t creatable_threads(int32_t wanted) noexcept;

}  // namespace aotpack::runtime
