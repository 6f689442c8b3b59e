/* The contract between a compiled module and the runtime that loads it.
 *
 * A module is a shared object that exports exactly one symbol, AOTPACK_MODULE_QUERY_SYMBOL. It depends only on libc,
 * libm and the OpenMP runtime. It lists the functions that it requires from the runtime in `import_names`; the runtime
 * passes an array of function pointers in the same order with every call. See docs/abi.md for the log of versions.
 *
 * Plain C; depends only on <stdint.h> and <stddef.h>.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AOTPACK_MODULE_ABI_VERSION 2u
#define AOTPACK_MODULE_QUERY_SYMBOL "aotpack_module_query"
#define AOTPACK_MAX_RANK 16
/* Every block that `alloc` returns and every constant starts at a multiple of this many bytes. */
#define AOTPACK_ALIGNMENT 64

/* Element types. The numbers are part of the ABI and never change meaning. */
enum {
  AOTPACK_DTYPE_UINT8 = 0,
  AOTPACK_DTYPE_INT8 = 1,
  AOTPACK_DTYPE_INT16 = 2,
  AOTPACK_DTYPE_INT32 = 3,
  AOTPACK_DTYPE_INT64 = 4,
  AOTPACK_DTYPE_FLOAT16 = 5,
  AOTPACK_DTYPE_FLOAT32 = 6,
  AOTPACK_DTYPE_FLOAT64 = 7,
  AOTPACK_DTYPE_COMPLEX64 = 9,
  AOTPACK_DTYPE_COMPLEX128 = 10,
  AOTPACK_DTYPE_BOOL = 11,
  AOTPACK_DTYPE_BFLOAT16 = 15,
  AOTPACK_DTYPE_FLOAT8_E5M2 = 23,
  AOTPACK_DTYPE_FLOAT8_E4M3FN = 24,
  AOTPACK_DTYPE_FLOAT8_E5M2FNUZ = 25,
  AOTPACK_DTYPE_FLOAT8_E4M3FNUZ = 26,
  AOTPACK_DTYPE_UINT16 = 27,
  AOTPACK_DTYPE_UINT32 = 28,
  AOTPACK_DTYPE_UINT64 = 29
};

/* The return values of `run`, and the codes for `fail`. */
enum {
  AOTPACK_MODULE_OK = 0,
  AOTPACK_MODULE_INVALID_ARGUMENT = 1, /* the inputs are invalid, e.g. an index out of range */
  AOTPACK_MODULE_OUT_OF_MEMORY = 2,
  AOTPACK_MODULE_FAILED = 3 /* anything else */
};

/* A strided view. Sizes and strides count elements; `data` points at element (0, ..., 0). */
typedef struct aotpack_module_tensor {
  void* data;
  /* Outputs only: the block from `alloc` that contains `data`. The module passes one reference to that block to the
   * runtime; several outputs may refer to the same block. NULL: `data` is in an input or a constant, and the runtime
   * copies it. */
  void* block;
  int32_t dtype;
  int32_t rank;
  int64_t sizes[AOTPACK_MAX_RANK];
  int64_t strides[AOTPACK_MAX_RANK];
} aotpack_module_tensor;

/* A device: kind and number as DLPack has them (DLDeviceType and device_id; 1 and 0: the CPU). */
typedef struct aotpack_module_device {
  int32_t type;
  int32_t index;
} aotpack_module_device;

/* A named byte range of the archive that goes with a module, such as code for a device. */
typedef struct aotpack_module_asset {
  const void* data; /* `size` bytes in host memory, read-only, at a multiple of AOTPACK_ALIGNMENT */
  uint64_t size;
  void* handle; /* what the device made of them when the module was loaded; NULL on the CPU */
} aotpack_module_asset;

/* Bits of `features`: what a module needs, and what a runtime provides. */
enum {
  AOTPACK_MODULE_FEATURE_ASYNC = 1, /* "async": work that `run` gave to the stream may go on after it has returned */
  /* "host_steps": `run` waits for the stream and computes on the host in between, so that its work cannot be recorded
   */
  AOTPACK_MODULE_FEATURE_HOST_STEPS = 2
};

/* All of them, X(name, bit) each, by the names that manifests have. The only list. */
#define AOTPACK_MODULE_FEATURES(X) \
  X(async, AOTPACK_MODULE_FEATURE_ASYNC) X(host_steps, AOTPACK_MODULE_FEATURE_HOST_STEPS)

/* Imports, by their names in `import_names`. They are called on the thread that called `run`, never inside a parallel
 * region. */

/* "alloc": `bytes` of uninitialised memory, aligned to AOTPACK_ALIGNMENT; NULL on failure. bytes may be 0. */
typedef void* (*aotpack_import_alloc_fn)(void* runtime, size_t bytes);
/* "free": releases a block of `alloc`. */
typedef void (*aotpack_import_free_fn)(void* runtime, void* block);
/* "fail": records the error of this call; `code` is one of AOTPACK_MODULE_*, `message` need not outlive the call. */
typedef void (*aotpack_import_fail_fn)(void* runtime, int32_t code, const char* message, size_t length);
/* "seed": a new seed for the random operators of this call. */
typedef uint64_t (*aotpack_import_seed_fn)(void* runtime);

/* All of them, X(name) each, in the order in which compiled modules list them; the type of the function `name` is
 * aotpack_import_<name>_fn. The only list: runtime, modules and build are written or read from it. */
#define AOTPACK_MODULE_IMPORTS(X) X(alloc) X(free) X(fail) X(seed)

/* Imports for modules that are built to record when their kernels run. */

/* "mark": the kernel of this index in the manifest's list of the module begins (`end` 0) or ends (`end` 1). */
typedef void (*aotpack_import_mark_fn)(void* runtime, uint32_t kernel, uint32_t end);

/* X(name) each, like AOTPACK_MODULE_IMPORTS; such modules list them after those. */
#define AOTPACK_PROFILE_IMPORTS(X) X(mark)

/* Of a launch: before the kernel reads or writes memory, it waits itself for the work that was submitted before it. It
 * may be started earlier. */
#define AOTPACK_LAUNCH_WAITS 1u

/* A kernel launch, as the driver of the device takes it. */
typedef struct aotpack_module_launch {
  size_t struct_size;
  const aotpack_module_asset* code; /* of the call's assets: code of the device, with one kernel */
  const char* kernel;               /* the name of that kernel in the code */
  uint32_t grid[3];                 /* blocks; if one is 0, nothing runs */
  uint32_t block[3];                /* threads of a block */
  uint32_t shared_bytes;            /* dynamic shared memory of a block */
  uint32_t flags;                   /* AOTPACK_LAUNCH_*; a runtime that does not know one may ignore it */
  void* const* arguments;           /* the address of each argument's value; the values are read before it returns */
  uint32_t num_arguments;
  uint32_t reserved; /* 0 */
} aotpack_module_launch;

/* Imports for modules that run on a device whose memory the host does not access. All submit work to the call's stream
 * and return AOTPACK_MODULE_OK, or another code after they have recorded the error of the call, like "fail". Device
 * memory is what the module got in inputs, constants and from `alloc`. */

/* "launch": runs a kernel. */
typedef int32_t (*aotpack_import_launch_fn)(void* runtime, const aotpack_module_launch* launch);
/* "copy": copies `bytes` within the device. */
typedef int32_t (*aotpack_import_copy_fn)(void* runtime, void* to, const void* from, size_t bytes);
/* "upload": copies `bytes` of the host to the device. They are read before it returns. */
typedef int32_t (*aotpack_import_upload_fn)(void* runtime, void* to, const void* from, size_t bytes);
/* "download": copies `bytes` of the device to the host; they are there when it returns, and all work submitted before
 * has ended. */
typedef int32_t (*aotpack_import_download_fn)(void* runtime, void* to, const void* from, size_t bytes);
/* "fill": writes `count` elements of `item` bytes each (1, 2, 4 or 8), all equal to the lowest bytes of `value`. */
typedef int32_t (*aotpack_import_fill_fn)(void* runtime, void* to, uint64_t value, size_t item, size_t count);

/* X(name) each, like AOTPACK_MODULE_IMPORTS; modules for devices list them after those. */
#define AOTPACK_DEVICE_IMPORTS(X) X(launch) X(copy) X(upload) X(download) X(fill)

/* Imports for modules with kernels that read tiles through the GPU's copy engine (TMA). */

/* A matrix in memory of the device, for kernels that read blocks of it. */
typedef struct aotpack_module_tensor_map {
  size_t struct_size;
  void* out;           /* 128 bytes at a multiple of 64: what a kernel takes as an argument */
  const void* address; /* of the device, a multiple of 16 */
  int64_t sizes[2];    /* rows and columns, at least 1; the elements of a row lie side by side */
  int64_t stride;      /* elements from row to row; in bytes a multiple of 16 */
  uint32_t box[2];     /* rows and columns of a block, at most 256 each; elements outside of the matrix are 0 */
  uint32_t item;       /* bytes of an element: 1, 2, 4 or 8 */
  uint32_t swizzle;    /* how blocks lie in shared memory: 32, 64 or 128 bytes are mixed, or 0 */
} aotpack_module_tensor_map;

/* "tensor_map": describes the matrix. */
typedef int32_t (*aotpack_import_tensor_map_fn)(void* runtime, const aotpack_module_tensor_map* map);

/* X(name) each, like AOTPACK_MODULE_IMPORTS; such modules list them after those for devices. */
#define AOTPACK_TENSOR_MAP_IMPORTS(X) X(tensor_map)

/* Work for a library of the device's vendor, such as a Fourier transform by cuFFT. docs/abi.md lists the operations. */
typedef struct aotpack_module_library_call {
  size_t struct_size;
  const char* operation;
  const aotpack_module_tensor* tensors; /* on the device; `block` is not read. What is written comes last */
  const int64_t* numbers;
  uint32_t num_tensors;
  uint32_t num_numbers;
} aotpack_module_library_call;

/* Imports for modules on devices that use such libraries where the host has them. */

/* "provide": submits work to the call's stream by means of a library. `*out_done` is 1 then. Otherwise it is 0, what
 * the operation writes is undefined, and the module does the work itself: the runtime does not know the operation, the
 * host has no library for it, or the library does not take these tensors. Returns AOTPACK_MODULE_OK or another code
 * like "launch". */
typedef int32_t (*aotpack_import_provide_fn)(void* runtime, const aotpack_module_library_call* call,
                                             uint32_t* out_done);

/* X(name) each, like AOTPACK_MODULE_IMPORTS; such modules list them after those of tensor maps, which they
 * list, too. */
#define AOTPACK_PROVIDER_IMPORTS(X) X(provide)

/* Kernels may have several ways to do the same work, of which the fastest depends on the processor, the sizes and the
 * number of threads. A *site* stands for all calls of a kernel with the same sizes in modules of one target. Its number
 * and the meaning of its choices are the module's: the runtime hands back what the module has recorded. */

/* The way that a site goes. Any choice is valid; 0 is what the kernel chooses by itself, as at sites without one. */
typedef struct aotpack_module_choice {
  uint64_t site;
  uint32_t choice;
  uint32_t reserved; /* 0 */
} aotpack_module_choice;

/* What a module records of one call of a kernel. */
typedef struct aotpack_module_site {
  size_t struct_size;
  uint64_t site;
  const char* kernel;     /* its name */
  const int64_t* numbers; /* num_numbers: the sizes and the like that the site is about; for people */
  uint32_t num_numbers;
  uint32_t choice;      /* the way that it went */
  uint8_t positions[8]; /* for each four bits of a choice, the lowest first: how many values there are to try; 0: 1 */
  uint64_t nanoseconds;
} aotpack_module_site;

/* "record" of a tuning: called after a kernel, on the thread that called `run`, outside of parallel regions. */
typedef void (*aotpack_module_record_fn)(void* recorder, const aotpack_module_site* site);

typedef struct aotpack_module_tuning {
  size_t struct_size;
  const aotpack_module_choice* choices; /* by ascending site, each once */
  uint64_t num_choices;
  aotpack_module_record_fn record; /* NULL: nothing is recorded */
  void* recorder;
} aotpack_module_tuning;

/* One part of a parallel region: `part` of `parts`. */
typedef void (*aotpack_module_body_fn)(void* argument, int32_t part, int32_t parts);

/* The threads of a call. */
typedef struct aotpack_module_team {
  size_t struct_size;
  void* state; /* the first argument of both functions */
  /* Calls body(argument, part, n) once for each part of 0 to n - 1, on any threads of the call, and returns when all
   * have returned. n is `parts`, or less where the system has no more threads. Only on the thread that called `run` of
   * the module, and outside of other regions. A body does not throw. */
  void (*run)(void* state, aotpack_module_body_fn body, void* argument, int32_t parts);
  /* In a body: waits until every part of the region is here. If one part calls it, all do, equally often. */
  void (*meet)(void* state);
} aotpack_module_team;

typedef struct aotpack_module_call {
  size_t struct_size;
  void* runtime;                          /* passed back as the first argument of every import */
  void* const* imports;                   /* function pointers, in the order of import_names */
  const aotpack_module_tensor* inputs;    /* num_inputs; borrowed; sizes and strides already checked */
  const aotpack_module_tensor* constants; /* num_constants; borrowed; never written unless the manifest says mutated */
  aotpack_module_tensor* outputs;         /* num_outputs; filled by the module on success */
  int32_t num_threads;                    /* at least 1; the module never uses more */

  /* The following members exist since version 2. A module of that version is never called without them. */

  const aotpack_module_device* input_devices;    /* num_inputs: where the data of each input is */
  const aotpack_module_device* constant_devices; /* num_constants */
  aotpack_module_device* output_devices;         /* num_outputs; filled by the module on success */
  void* stream;                                  /* of the device, e.g. a CUstream; NULL on the CPU */
  aotpack_module_device device;                  /* where the module runs; `alloc` gives memory of this device */
  const aotpack_module_asset* assets;            /* num_assets, in the order of asset_names */
  uint64_t features;                             /* AOTPACK_MODULE_FEATURE_* that the runtime provides */

  /* Of runtimes since 2026-11-27; `struct_size` says which are there. */

  const aotpack_module_tuning* tuning; /* NULL: every kernel chooses by itself */
  const aotpack_module_team* team;     /* NULL: the module has threads of its own, or uses one */
} aotpack_module_call;

typedef struct aotpack_module {
  uint32_t abi_version; /* at most the requested version */
  uint32_t struct_size;
  const char* target; /* e.g. "x86-64-v4" */
  uint32_t num_inputs;
  uint32_t num_outputs;
  uint32_t num_constants;
  uint32_t num_imports;
  const char* const* import_names;
  /* Thread-safe: calls with different `runtime` pointers may run concurrently. Returns AOTPACK_MODULE_*. On failure it
   * has called `fail` and freed its allocations, and `outputs` is undefined. Does not throw. */
  int32_t (*run)(const aotpack_module_call* call);

  /* The following members exist since version 2. */

  uint64_t features; /* AOTPACK_MODULE_FEATURE_* that the module needs */
  uint32_t num_assets;
  uint32_t reserved; /* 0 */
  const char* const* asset_names;
} aotpack_module;

/* NULL if the module has no table of an ABI version up to `max_abi_version`. */
typedef const aotpack_module* (*aotpack_module_query_fn)(uint32_t max_abi_version);

#ifdef __cplusplus
}
#endif
