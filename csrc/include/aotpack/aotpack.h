/* The public C interface of the aotpack runtime.
 *
 * Objects are opaque. The caller releases an object that a function creates with the matching *_release, which accepts
 * NULL. Every fallible call returns a status: NULL on success, otherwise an object with a code and a message. Results
 * are returned through `out_` parameters, which are set to NULL on failure. Returned strings and structs are owned by
 * the object that returned them and live as long as it does, unless stated otherwise. No function throws or aborts the
 * process.
 *
 * Structs begin with `struct_size`, so that members can be added at their end. In structs that the caller fills, it is
 * the size that the caller knows. In structs that the library fills, it is the size that the library knows: a member
 * that ends beyond it is not there. The library passes these by pointer only.
 *
 * Threads: any number of threads may use an aotpack_model; only its weights change, between calls. An aotpack_context
 * may be used by one thread at a time. A returned tensor may be released on any thread, also after its context and
 * model.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aotpack/dlpack.h"

#if defined(AOTPACK_STATIC)
#define AOTPACK_API
#else
#define AOTPACK_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Changes that break callers bump it; see the log in docs/abi.md. */
#define AOTPACK_ABI_VERSION 3u
AOTPACK_API uint32_t aotpack_abi_version(void);
/* The version of the package, e.g. "0.1.0". */
AOTPACK_API const char* aotpack_version(void);
/* The best target that this host supports, e.g. "x86-64-v4"; a static string. */
AOTPACK_API const char* aotpack_host_target(void);

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum aotpack_code {
  AOTPACK_OK = 0,
  AOTPACK_INVALID_ARGUMENT = 1,    /* an invalid input, index, name or option */
  AOTPACK_NOT_FOUND = 2,           /* the file or entry does not exist */
  AOTPACK_IO_ERROR = 3,            /* an error of the operating system */
  AOTPACK_FOREIGN_ARCHIVE = 4,     /* not an aotpack archive */
  AOTPACK_TRUNCATED_ARCHIVE = 5,   /* the file is incomplete */
  AOTPACK_MALFORMED_ARCHIVE = 6,   /* structure or manifest violates the format */
  AOTPACK_TAMPERED_ARCHIVE = 7,    /* a hash does not match */
  AOTPACK_UNSUPPORTED_VERSION = 8, /* format or module ABI newer than this runtime */
  AOTPACK_UNSUPPORTED_TARGET = 9,  /* the archive has no module for this host or device */
  AOTPACK_MISSING_IMPORT = 10,     /* a module imports something that is not available */
  AOTPACK_OUT_OF_MEMORY = 11,
  AOTPACK_EXECUTION_FAILED = 12, /* the model cannot compute with these values */
  AOTPACK_INTERNAL = 13,
  AOTPACK_DEVICE_FAILED = 14,   /* the model's device or its driver; the message says if the device stays unusable */
  AOTPACK_MISSING_WEIGHTS = 15, /* the archive is code-only; `aotpack pack` adds weights */
  AOTPACK_CANCELLED = 16        /* the pipeline was closed before the call had ended */
} aotpack_code;

typedef struct aotpack_status aotpack_status;
AOTPACK_API aotpack_code aotpack_status_code(const aotpack_status* status);   /* AOTPACK_OK for NULL */
AOTPACK_API const char* aotpack_status_message(const aotpack_status* status); /* "" for NULL */
AOTPACK_API void aotpack_status_release(aotpack_status* status);
/* "OK", "INVALID_ARGUMENT", ... */
AOTPACK_API const char* aotpack_code_name(aotpack_code code);

/* ---- model ----------------------------------------------------------------------------------------------------- */

typedef enum aotpack_verify {
  AOTPACK_VERIFY_CODE = 0, /* structure, manifest and executable code; always done */
  AOTPACK_VERIFY_FULL = 1  /* every byte, including weights, goldens and padding */
} aotpack_verify;

typedef enum aotpack_load_mode {
  AOTPACK_LOAD_DEFAULT = 0, /* the environment variable AOTPACK_LOAD, "map" or "copy"; default: map */
  /* The file's pages are used in place and shared by all processes. Replace the file by renaming: writing to it
   * changes the weights, and truncating it terminates the process (SIGBUS) at the next call. */
  AOTPACK_LOAD_MAP = 1,
  AOTPACK_LOAD_COPY = 2 /* copy into sealed memory of this process, of the size of the file */
} aotpack_load_mode;

typedef struct aotpack_load_options {
  size_t struct_size; /* sizeof(aotpack_load_options) */
  aotpack_verify verify;
  aotpack_load_mode mode;
  DLDevice device; /* where the model runs; {0, 0}: the default, the CPU; {kDLCUDA, N}: cuda:N */
  /* CUDA graphs that each context keeps at most, up to 4096; 0: the default, 8; -1: none. Ignored on the CPU. */
  int32_t graphs;
  int32_t reserved; /* not read */
  /* Folders with libraries that archives may ask for, such as cuFFT, separated by ':'; they are searched after those of
   * the environment variable AOTPACK_PROVIDER_PATH and before those of the system. For all models of the process. May
   * be NULL. */
  const char* provider_path;
  /* Not 0: threads map the pages of a file that is mapped while the model loads and after it, so that the first call
   * does not wait for page faults. All pages count in the resident set then. Not read where the file is copied. */
  int32_t prefetch;
  int32_t reserved_2; /* not read */
} aotpack_load_options;

typedef struct aotpack_model aotpack_model;

/* Maps the archive at `path` (UTF-8) and loads the best modules for the device. `options` may be NULL. A device that
 * this host or version lacks, or that the archive has no modules for, is AOTPACK_UNSUPPORTED_TARGET. */
AOTPACK_API aotpack_status* aotpack_model_load(const char* path, const aotpack_load_options* options,
                                               aotpack_model** out_model);
AOTPACK_API void aotpack_model_retain(aotpack_model* model);
AOTPACK_API void aotpack_model_release(aotpack_model* model);

/* Where the model runs. {0, 0} for NULL. */
AOTPACK_API DLDevice aotpack_model_device(const aotpack_model* model);
/* The manifest, UTF-8 JSON (docs/format.md), zero-terminated. `out_length` may be NULL. */
AOTPACK_API const char* aotpack_model_manifest(const aotpack_model* model, size_t* out_length);
AOTPACK_API size_t aotpack_model_entry_count(const aotpack_model* model);
AOTPACK_API const char* aotpack_model_entry_name(const aotpack_model* model, size_t entry);
AOTPACK_API aotpack_status* aotpack_model_find_entry(const aotpack_model* model, const char* name, size_t* out_entry);
/* The target of the modules that were selected for this entry, e.g. "x86-64-v4". If its variants have modules of
 * different targets, each of these once, in the order of the variants, e.g. "x86-64-v4, x86-64-v3". */
AOTPACK_API const char* aotpack_model_entry_target(const aotpack_model* model, size_t entry);

/* The variants of an entry, in the order in which a call tries them: modules for some of the sizes that the entry
 * accepts, e.g. "batch=1" and "general", or for inputs that are one tensor, e.g. "a is b". NULL if the index is out of
 * range. */
AOTPACK_API size_t aotpack_model_variant_count(const aotpack_model* model, size_t entry);
AOTPACK_API const char* aotpack_model_variant_name(const aotpack_model* model, size_t entry, size_t variant);
/* The target of the module that was selected for a variant. NULL if the index is out of range. */
AOTPACK_API const char* aotpack_model_variant_target(const aotpack_model* model, size_t entry, size_t variant);

/* One dimension. If `name` is NULL, it is static and its size is `size`. Otherwise the size is multiplier * D + offset,
 * where D is the value of the dim `name` in this call, which is in [min, max] and a multiple of `multiple_of`; max is
 * INT64_MAX without an upper bound. Any other size has an empty name, size -1, and `expression`: for inputs always, and
 * for outputs usually, a formula over dims; otherwise the size is known only after the call. */
typedef struct aotpack_dim_info {
  size_t struct_size;
  const char* name;
  int64_t size;
  int64_t multiplier;
  int64_t offset;
  int64_t min;
  int64_t max;
  int64_t multiple_of;    /* at least 1 */
  const char* expression; /* NULL where `name` is NULL or not empty */
} aotpack_dim_info;

/* The Python type of a value in the model's signature. For C callers a scalar is a tensor of rank 0. */
typedef enum aotpack_number {
  AOTPACK_NUMBER_NONE = 0,  /* a tensor */
  AOTPACK_NUMBER_INT = 1,   /* int64 */
  AOTPACK_NUMBER_FLOAT = 2, /* float64 */
  AOTPACK_NUMBER_BOOL = 3   /* bool */
} aotpack_number;

typedef struct aotpack_value_info {
  size_t struct_size;
  const char* name;
  DLDataType dtype;
  int32_t rank;
  const aotpack_dim_info* const* dims; /* rank of them */
  bool mutated;                        /* inputs only: the call writes to the caller's buffer */
  aotpack_number number;
  DLDevice device; /* where an input is expected and an output is made; scalars are on the CPU */
} aotpack_value_info;

AOTPACK_API size_t aotpack_model_input_count(const aotpack_model* model, size_t entry);
AOTPACK_API size_t aotpack_model_output_count(const aotpack_model* model, size_t entry);
AOTPACK_API const aotpack_value_info* aotpack_model_input(const aotpack_model* model, size_t entry, size_t index);
AOTPACK_API const aotpack_value_info* aotpack_model_output(const aotpack_model* model, size_t entry, size_t index);

/* ---- weights --------------------------------------------------------------------------------------------------- */

/* A tensor of an update, or of a state. */
typedef struct aotpack_weight_info {
  size_t struct_size;
  const char* name;
  DLDataType dtype;
  int32_t rank;
  const int64_t* sizes; /* rank of them */
  DLDevice device;      /* of an update: where its tensor is expected; of a state: where it is */
} aotpack_weight_info;

/* A low-rank change of a weight W: W + scale * up * down, as adapters such as LoRA store it (A is `down`, B is `up`).
 * W is [out, in...] of a floating-point dtype; `down` is [rank, in...], `up` is [out, rank] or [out, rank, 1...]. Both
 * may have any floating-point dtype and any strides; pass a transposed view to transpose a factor. */
typedef struct aotpack_weight_delta {
  size_t struct_size; /* sizeof(aotpack_weight_delta) */
  const char* name;   /* of the weight */
  const DLTensor* down;
  const DLTensor* up;
  double scale; /* finite */
} aotpack_weight_delta;

enum {
  /* Weights that are not given keep their values; without this flag a missing weight is an error. */
  AOTPACK_UPDATE_PARTIAL = 1,
  /* These weights, and the weights under deltas, start from the archive's values instead of the last update's. */
  AOTPACK_UPDATE_FROM_ARCHIVE = 2,
  /* Frees memory: a weight that is needed only to compute others is not kept. A later partial update that needs such a
   * weight is rejected unless it contains the weight or starts from the archive. */
  AOTPACK_UPDATE_DISCARD_ORIGINALS = 4
};

typedef struct aotpack_update_options {
  size_t struct_size;  /* sizeof(aotpack_update_options) */
  int32_t num_threads; /* threads that compute derived weights; 0: one */
  int32_t reserved;    /* not read */
  uint64_t flags;      /* a combination of AOTPACK_UPDATE_… */
  /* delta_count of them, added to the given weights, otherwise to those that are kept. */
  const aotpack_weight_delta* const* deltas;
  size_t delta_count;
} aotpack_update_options;

/* Whether the archive was built with updatable weights; otherwise it is frozen. */
AOTPACK_API bool aotpack_model_is_updatable(const aotpack_model* model);
/* The number of tensors in the source model's state dict, which an update replaces; 0 if the archive is frozen. */
AOTPACK_API size_t aotpack_model_weight_count(const aotpack_model* model);
AOTPACK_API const aotpack_weight_info* aotpack_model_weight(const aotpack_model* model, size_t index);

/* Replaces all weights, or some of them (`options`). `tensors[i]` has the name `names[i]`, is on the CPU or the
 * model's device, and may have any strides and alignment; tensors are borrowed for the call. A tensor on a CUDA device
 * must be complete, or its work be ordered with the legacy default stream. For tied weights at least one of the names
 * must be given; if several are given, their bytes must be equal. All tensors are checked first. The message lists the
 * first ten errors, and an update that fails changes nothing. Calls may run concurrently on other threads: each uses
 * either the old weights or the new ones. Updates wait for each other. `options` may be NULL. */
AOTPACK_API aotpack_status* aotpack_model_update_weights(aotpack_model* model, const char* const* names,
                                                         const DLTensor* const* tensors, size_t count,
                                                         const aotpack_update_options* options);
/* Restores the weights of the archive. */
AOTPACK_API aotpack_status* aotpack_model_reset_weights(aotpack_model* model);
/* 0 after loading; incremented by every update or reset of the weights. */
AOTPACK_API uint64_t aotpack_model_weight_generation(const aotpack_model* model);

/* ---- context --------------------------------------------------------------------------------------------------- */

typedef struct aotpack_context_options {
  size_t struct_size;  /* sizeof(aotpack_context_options) */
  int32_t num_threads; /* threads per call; 0: one per core available to this process (affinity, CPU quotas) */
  int32_t reserved;    /* not read */
  /* cpu_count CPUs that calls run on: the threads of the context are bound to them, the thread that calls during a
   * call. Models on the CPU only. None: the CPUs of the thread that calls. */
  const int32_t* cpus;
  size_t cpu_count;
} aotpack_context_options;

typedef struct aotpack_context aotpack_context;

/* A context keeps its model alive. `options` may be NULL. */
AOTPACK_API aotpack_status* aotpack_context_create(aotpack_model* model, const aotpack_context_options* options,
                                                   aotpack_context** out_context);
AOTPACK_API void aotpack_context_release(aotpack_context* context);
/* At most the requested number; less if the system cannot create as many threads. */
AOTPACK_API int32_t aotpack_context_num_threads(const aotpack_context* context);
AOTPACK_API aotpack_status* aotpack_context_set_num_threads(aotpack_context* context, int32_t num_threads);
/* Seeds the random operators: the sequence of calls that follows is reproducible. */
AOTPACK_API void aotpack_context_set_seed(aotpack_context* context, uint64_t seed);

/* Sets the stream of the model's device that calls of this context use; it is borrowed, and used until another is set
 * or the context is released. NULL: one of the context's own. Waits until the work of earlier calls has ended. The CPU
 * has no streams: there only NULL is valid. */
AOTPACK_API aotpack_status* aotpack_context_set_stream(aotpack_context* context, void* stream);
/* The stream that calls use; NULL on the CPU. */
AOTPACK_API void* aotpack_context_stream(const aotpack_context* context);
/* Returns when the work of all calls has ended. On the CPU it has ended when a call returns. */
AOTPACK_API aotpack_status* aotpack_context_synchronize(aotpack_context* context);

/* Runs an entry. `inputs` are borrowed for the call and may have any strides and alignment. A mutated input must not
 * share elements with another input, unless the variant is for inputs that are one tensor, and its own elements must
 * not overlap. Each of the `num_outputs` results is a new tensor with the strides of the model's output; release it
 * with its deleter. On failure every element of `out_outputs` is NULL. */
AOTPACK_API aotpack_status* aotpack_context_run(aotpack_context* context, size_t entry, const DLTensor* const* inputs,
                                                size_t num_inputs, DLManagedTensorVersioned** out_outputs,
                                                size_t num_outputs);

/* The same, with results written to the caller's buffers: `outputs[i]` must have the dtype and sizes of the result and
 * may have any strides that do not overlap. */
AOTPACK_API aotpack_status* aotpack_context_run_into(aotpack_context* context, size_t entry,
                                                     const DLTensor* const* inputs, size_t num_inputs,
                                                     const DLTensor* const* outputs, size_t num_outputs);

/* The name of the variant that the last call of this entry selected in this context; NULL if no call has selected
 * one. */
AOTPACK_API const char* aotpack_context_variant(const aotpack_context* context, size_t entry);

/* ---- profiles -------------------------------------------------------------------------------------------------- */

/* Of an event: all kernels (a step), or all steps (the call). */
#define AOTPACK_PROFILE_ALL UINT32_MAX

/* A part of a call. Times count from the begin of the call. */
typedef struct aotpack_profile_event {
  size_t struct_size;
  uint32_t step; /* index in the implementation that ran; AOTPACK_PROFILE_ALL: the call */
  uint32_t
      kernel; /* index in the manifest's kernels of the step's module; AOTPACK_PROFILE_ALL: the step, or the call */
  uint64_t begin_ns;
  uint64_t end_ns;
} aotpack_profile_event;

/* Whether calls of this context record when they, their steps and, in modules with hooks, their kernels begin and end.
 * Off in a new context. */
AOTPACK_API aotpack_status* aotpack_context_set_profiling(aotpack_context* context, bool enabled);
/* The events of the last call, in the order in which they began; at most 1,048,576. None if it has failed. */
AOTPACK_API size_t aotpack_context_profile_count(const aotpack_context* context);
/* Valid until the next call; NULL for an index out of range. */
AOTPACK_API const aotpack_profile_event* aotpack_context_profile_event(const aotpack_context* context, size_t index);

/* ---- tuning ---------------------------------------------------------------------------------------------------- */

/* Kernels may have several ways to do the same work; an archive says which one each takes on a processor, where it has
 * been tuned there (docs/tuning.md). These are the functions with which `aotpack tune` finds out. */

/* The way that a site, all calls of a kernel with the same sizes, goes. */
typedef struct aotpack_choice {
  uint64_t site;
  uint32_t choice; /* 0: what the kernel chooses by itself */
  uint32_t reserved;
} aotpack_choice;

/* One call of a kernel that has several ways. */
typedef struct aotpack_site {
  size_t struct_size;
  uint64_t site;
  const char* kernel;     /* its name */
  const char* target;     /* of the module */
  const int64_t* numbers; /* num_numbers: sizes and the like, for people */
  uint32_t num_numbers;
  uint32_t choice;      /* the way that it went */
  uint8_t positions[8]; /* for each four bits of a choice, the lowest first: how many values there are to try; 0: 1 */
  uint64_t nanoseconds;
} aotpack_site;

/* The processor of this host, as archives name the one on which they were tuned: "GenuineIntel-6-207-2". Empty where
 * the system does not tell. */
AOTPACK_API const char* aotpack_host_processor(void);
/* From now on, calls of this context on the CPU go these ways instead of the archive's; sites that are not among
 * `choices` go as 0. With `record`, they record how long each kernel took. INVALID_ARGUMENT for a site that is there
 * twice. */
AOTPACK_API aotpack_status* aotpack_context_set_choices(aotpack_context* context, const aotpack_choice* choices,
                                                        size_t count, bool record);
/* Back to the archive's choices. */
AOTPACK_API aotpack_status* aotpack_context_clear_choices(aotpack_context* context);
/* What the last call recorded, in the order of the kernels; at most 65,536. */
AOTPACK_API size_t aotpack_context_site_count(const aotpack_context* context);
/* Valid until the next call; NULL for an index out of range. */
AOTPACK_API const aotpack_site* aotpack_context_site(const aotpack_context* context, size_t index);

/* Copies a tensor into another of the same dtype and sizes, with any strides that do not overlap; each may be on the
 * CPU or on a device. Returns when the copy is complete. Work of other streams on the tensors must have ended before.
 */
AOTPACK_API aotpack_status* aotpack_tensor_copy(const DLTensor* from, const DLTensor* to);
/* A row-major copy, on the model's device, of a tensor on the CPU or that device; release it with its deleter. Returns
 * when the copy is complete. */
AOTPACK_API aotpack_status* aotpack_context_to_device(aotpack_context* context, const DLTensor* from,
                                                      DLManagedTensorVersioned** out_tensor);

/* ---- state ----------------------------------------------------------------------------------------------------- */

/* The tensors that the model writes to (caches, counters, running statistics). Every context has its own copies, whose
 * initial values are those of the model's weights at the first call of the context. */
AOTPACK_API size_t aotpack_model_state_count(const aotpack_model* model);
AOTPACK_API const aotpack_weight_info* aotpack_model_state(const aotpack_model* model, size_t index);

/* A row-major copy of the state tensor `index`; release it with its deleter. */
AOTPACK_API aotpack_status* aotpack_context_get_state(aotpack_context* context, size_t index,
                                                      DLManagedTensorVersioned** out_tensor);
/* A tensor over the context's own copy of the state tensor `index`: calls read what is written to it, and it shows what
 * they write. It has the strides of the model's tensor, which may have gaps. Use it as the context, by one thread at a
 * time. While the context has shared a tensor, the state stays where it is: loading a state writes to this memory, and
 * a reset restores the values of the model's weights at once. The tensor keeps the memory, also after the context;
 * release it with its deleter. */
AOTPACK_API aotpack_status* aotpack_context_share_state(aotpack_context* context, size_t index,
                                                        DLManagedTensorVersioned** out_tensor);
/* The number of times that the state was loaded or reset. */
AOTPACK_API uint64_t aotpack_context_state_generation(const aotpack_context* context);
/* Replaces the whole state: all tensors must be given. On failure nothing changes. */
AOTPACK_API aotpack_status* aotpack_context_load_state(aotpack_context* context, const char* const* names,
                                                       const DLTensor* const* tensors, size_t count);

enum {
  /* Tensors of the state that the file does not have keep their values. */
  AOTPACK_STATE_ALLOW_MISSING = 1,
  /* Tensors of the file that the state does not have are ignored. */
  AOTPACK_STATE_ALLOW_UNEXPECTED = 2
};

/* Writes the state, and the state of the random generator, to a `.safetensors` file. The file at `path` is replaced
 * with a rename when the new one is on the disk: at any moment it is the old one or the new one. On failure it is the
 * old one, unless the message says that the file is written. */
AOTPACK_API aotpack_status* aotpack_context_save_state_file(aotpack_context* context, const char* path);
/* Replaces the state by that of a `.safetensors` file, and the random generator's if the file has it. `flags` is a
 * combination of AOTPACK_STATE_..., 0 for a file that must match. On failure nothing changes. */
AOTPACK_API aotpack_status* aotpack_context_load_state_file(aotpack_context* context, const char* path, uint64_t flags);

/* Whether a call of this context that fails leaves the state and the random generator as they were before it. Off in a
 * new context. A call then copies what its modules may write to before they run: it takes as much memory, and waits for
 * its results also on a stream of the caller's. Inputs that the model writes to are not restored. */
AOTPACK_API aotpack_status* aotpack_context_set_atomic(aotpack_context* context, bool enabled);
/* Whether calls fail, with AOTPACK_EXECUTION_FAILED and the name of the output, when an output of a floating-point or
 * complex dtype has an infinite element or a NaN. Such calls are atomic, as above. Off in a new context. */
AOTPACK_API aotpack_status* aotpack_context_set_check_finite(aotpack_context* context, bool enabled);

/* Restores the initial values: those of the model's weights at the next call. */
AOTPACK_API aotpack_status* aotpack_context_reset(aotpack_context* context);

/* ---- forward and backward -------------------------------------------------------------------------------------- */

/* The backward of an entry, of archives that were captured with mode="forward_backward" (docs/autograd.md). */
typedef struct aotpack_backward_info {
  size_t struct_size;
  size_t entry;              /* the entry that computes the gradients; its outputs are the gradients */
  size_t result_count;       /* the outputs of the forward that its caller gets: the first ones */
  size_t gradient_count;     /* the outputs of the forward that have gradients */
  const uint32_t* gradients; /* gradient_count of them: which outputs these are */
} aotpack_backward_info;

/* NULL for an entry without a backward. */
AOTPACK_API const aotpack_backward_info* aotpack_model_backward(const aotpack_model* model, size_t entry);

/* What a forward has kept for its backward. It belongs to the context that made it, and is used as that context, by one
 * thread at a time. Any number of them may be in use. */
typedef struct aotpack_saved aotpack_saved;

/* Runs an entry that has a backward, as aotpack_context_run does, and keeps what the backward reads. `num_outputs` is
 * the result_count of its backward. Nothing is copied, except scalars: outputs that are kept share their memory with
 * those of the caller, and of inputs that the backward reads the memory is used again. Neither must change, and the
 * memory of the inputs must exist, until the last backward. */
AOTPACK_API aotpack_status* aotpack_context_forward(aotpack_context* context, size_t entry,
                                                    const DLTensor* const* inputs, size_t num_inputs,
                                                    DLManagedTensorVersioned** out_outputs, size_t num_outputs,
                                                    aotpack_saved** out_saved);
/* The gradients, outputs of the backward. gradients[i] is that of output `gradients[i]` of the info; NULL counts as
 * zeros. A handle may be used again. AOTPACK_INVALID_ARGUMENT for a handle of another context, and if the context's
 * state was loaded or reset, or the model's weights were updated, after the forward. */
AOTPACK_API aotpack_status* aotpack_context_backward(aotpack_context* context, const aotpack_saved* saved,
                                                     const DLTensor* const* gradients, size_t num_gradients,
                                                     DLManagedTensorVersioned** out_outputs, size_t num_outputs);
/* The size of the kept tensors in bytes, inputs included. */
AOTPACK_API size_t aotpack_saved_nbytes(const aotpack_saved* saved);
/* On any thread, also after the context. */
AOTPACK_API void aotpack_saved_release(aotpack_saved* saved);

/* ---- pipeline -------------------------------------------------------------------------------------------------- */

/* A pipeline runs the steps of an entry on threads of its own. Several calls are under way at the same time, each in
 * another stage: stage i runs step i of the variant that a call selected. The model runs on the CPU.
 *
 * Any number of threads may use a pipeline and its calls. Each stage starts calls in the order in which they were
 * submitted, and the error of a call reaches that call only. In the child of a fork the threads do not exist: there
 * functions return AOTPACK_INVALID_ARGUMENT, and releasing a pipeline or a call does nothing. */

/* A thread that runs a stage. */
typedef struct aotpack_pipeline_worker {
  size_t struct_size; /* sizeof(aotpack_pipeline_worker) */
  size_t stage;
  /* cpu_count CPUs that the thread, and the threads of its parallel regions, are bound to. None: a share of the CPUs of
   * the thread that creates the pipeline, which are divided evenly among such workers. */
  const int32_t* cpus;
  size_t cpu_count;
  int32_t num_threads; /* threads per step; 0: one per CPU, within CPU quotas */
  int32_t reserved;    /* not read */
} aotpack_pipeline_worker;

typedef struct aotpack_pipeline_options {
  size_t struct_size; /* sizeof(aotpack_pipeline_options) */
  size_t entry;
  /* worker_count of them, at least one for each stage. None: one per stage. A stage that uses the model's state can
   * have one worker only. */
  const aotpack_pipeline_worker* const* workers;
  size_t worker_count;
  size_t max_in_flight; /* calls that are under way at most, up to 65,536; 0: two per worker */
  /* Of the random operators, if `seeded`: call n has a seed that follows from this one and n. */
  uint64_t seed;
  bool seeded;
} aotpack_pipeline_options;

typedef struct aotpack_pipeline aotpack_pipeline;
typedef struct aotpack_call aotpack_call;

/* The number of stages of an entry: the steps of its variant that has most. 0 if the index is out of range. */
AOTPACK_API size_t aotpack_model_stage_count(const aotpack_model* model, size_t entry);

/* A pipeline keeps its model alive. `options` may be NULL. */
AOTPACK_API aotpack_status* aotpack_pipeline_create(aotpack_model* model, const aotpack_pipeline_options* options,
                                                    aotpack_pipeline** out_pipeline);
/* Closes the pipeline, cancelling calls, and waits for the steps that are running. Not while another function uses it.
 */
AOTPACK_API void aotpack_pipeline_release(aotpack_pipeline* pipeline);

/* Starts a call, as aotpack_context_run does, when fewer than max_in_flight are under way; until then it waits. Invalid
 * inputs are reported here. Inputs are copied, except those that the model writes to: these are borrowed, and must not
 * be used otherwise, until the call has ended. AOTPACK_CANCELLED once the pipeline is closed. */
AOTPACK_API aotpack_status* aotpack_pipeline_submit(aotpack_pipeline* pipeline, const DLTensor* const* inputs,
                                                    size_t num_inputs, aotpack_call** out_call);
/* Accepts no more calls, and returns when all have ended. With `cancel`, calls that wait for their next stage end with
 * AOTPACK_CANCELLED. */
AOTPACK_API aotpack_status* aotpack_pipeline_close(aotpack_pipeline* pipeline, bool cancel);

/* Whether a call has ended, after waiting for at most `timeout_ns`; a negative timeout: until it has ended. */
AOTPACK_API aotpack_status* aotpack_call_wait(aotpack_call* call, int64_t timeout_ns, bool* out_ended);
/* Waits, and moves out the results, once. Returns the error of a call that has failed. Each result is a new tensor;
 * release it with its deleter. */
AOTPACK_API aotpack_status* aotpack_call_take(aotpack_call* call, DLManagedTensorVersioned** out_outputs,
                                              size_t num_outputs);
/* Valid before the call has ended, and after its pipeline. Waits for calls that write to borrowed inputs. */
AOTPACK_API void aotpack_call_release(aotpack_call* call);

/* The state of a pipeline, as that of a context. These wait for all calls that were submitted before. */
AOTPACK_API aotpack_status* aotpack_pipeline_get_state(aotpack_pipeline* pipeline, size_t index,
                                                       DLManagedTensorVersioned** out_tensor);
AOTPACK_API aotpack_status* aotpack_pipeline_load_state(aotpack_pipeline* pipeline, const char* const* names,
                                                        const DLTensor* const* tensors, size_t count);
AOTPACK_API aotpack_status* aotpack_pipeline_reset(aotpack_pipeline* pipeline);

#ifdef __cplusplus
}
#endif
