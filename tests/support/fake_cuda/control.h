/* How tests steer the fake driver. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the n-th call of a function from now on, counted from 1, fail with `result`. */
void fake_cuda_fail(const char* function, int n, int result);
/* Takes that back, and the illegal addresses of devices. */
void fake_cuda_recover(void);
/* How often a function was called, and how often any. */
uint64_t fake_cuda_calls(const char* function);
uint64_t fake_cuda_all_calls(void);
/* Allocations that were not freed, of all devices; bytes of them; pinned allocations; streams; loaded libraries. */
size_t fake_cuda_live(void);
size_t fake_cuda_live_bytes(void);
size_t fake_cuda_pinned(void);
size_t fake_cuda_streams(void);
size_t fake_cuda_libraries(void);
/* Graphs that can be launched, and those that they were made from. */
size_t fake_cuda_execs(void);
size_t fake_cuda_graphs(void);
/* Kernels that might start before the kernel before them had ended, in launches of graphs or plain ones. */
uint64_t fake_cuda_early_starts(void);
/* Whether a stream says that a caller captures it. */
void fake_cuda_set_capturing(void* stream, int is_capturing);
/* Work that waits in the queue of a stream. */
size_t fake_cuda_pending(void* stream);
/* Allocates, frees, reads and writes memory of a device, past the rules. */
uint64_t fake_cuda_allocate(int device, size_t bytes);
void fake_cuda_free(uint64_t address);
void fake_cuda_read(void* to, uint64_t from, size_t bytes);
void fake_cuda_write(uint64_t to, const void* from, size_t bytes);

/* Work of a library in a stream: `run` returns a CUresult when it is its turn; `drop` frees `data` afterwards. */
int fake_cuda_submit(void* stream, int (*run)(void* data), void* data, void (*drop)(void* data));
/* Where the host reads and writes bytes of a device; NULL outside of live allocations. */
void* fake_cuda_access(uint64_t address, size_t bytes);

/* What runs the kernels of real cubins, such as Triton's interpreter. It is called within the calls of the driver that
 * wait for work; addresses among the arguments are those of the device. */
typedef struct fake_cuda_interpreter {
  /* The number of a kernel, -1 where it is not known; writes how many parameters it has (64 at most) and the bytes of
   * each. `code` is a whole ELF file. */
  int (*find)(const void* code, const char* name, size_t* out_sizes, size_t* out_count);
  /* Runs one launch. Returns a CUresult; others than 0 stay the result of all calls. */
  int (*run)(int kernel, const unsigned* grid, const void* const* arguments);
} fake_cuda_interpreter;
void fake_cuda_set_interpreter(const fake_cuda_interpreter* interpreter);
/* Where the host reads and writes the byte at an address of a device; `address` itself where it is none. */
uint64_t fake_cuda_shadow(uint64_t address);
/* Live allocations of all devices: the shadow of the first byte, and the size. Returns how many there are, of which
 * `capacity` are written. */
size_t fake_cuda_blocks(uint64_t* out_begins, uint64_t* out_sizes, size_t capacity);

#ifdef __cplusplus
}
#endif
