// What the runtime uses of the CUDA driver's interface, as cuda.h of CUDA 12.0 declares it. NVIDIA's headers are not
// needed to build the runtime.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotpack::runtime::cuda {

using Result = int;
using Ordinal = int;       // CUdevice
using Address = uint64_t;  // CUdeviceptr
struct ContextObject;      // CUctx_st
struct StreamObject;       // CUstream_st
struct EventObject;        // CUevent_st
struct LibraryObject;      // CUlib_st
struct KernelObject;       // CUkern_st
struct GraphObject;        // CUgraph_st
struct NodeObject;         // CUgraphNode_st
struct GraphExecObject;    // CUgraphExec_st
using ContextHandle = ContextObject*;
using StreamHandle = StreamObject*;
using EventHandle = EventObject*;
using LibraryHandle = LibraryObject*;
using KernelHandle = KernelObject*;
using GraphHandle = GraphObject*;
using NodeHandle = NodeObject*;
using GraphExecHandle = GraphExecObject*;

static_assert(sizeof(Address) == sizeof(void*) && sizeof(Result) == 4 && sizeof(Ordinal) == 4);

// The oldest driver that has all functions below, as cuDriverGetVersion counts.
inline constexpr int kOldestDriver = 12000;

// CUresult
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kUnsupportedPtxVersion = 222;

// CUdevice_attribute
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
// CUfunction_attribute
inline constexpr int kMaxDynamicSharedSize = 8;
// CUpointer_attribute, and the value of CUmemorytype that it has for memory of a device
inline constexpr int kPointerMemoryType = 2;
inline constexpr unsigned kMemoryOfDevice = 2;
// CUstream_flags and CUevent_flags
inline constexpr unsigned kNonBlocking = 1;
inline constexpr unsigned kDisableTiming = 2;

// CUtensorMapDataType: integers of so many bits, as no arithmetic is done; CUtensorMapL2promotion
inline constexpr int kMapOf8 = 0;
inline constexpr int kMapOf16 = 1;
inline constexpr int kMapOf32 = 2;
inline constexpr int kMapOf64 = 4;
inline constexpr int kPromoteTo128 = 2;

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
  void* function;  // NULL: `kernel` is set
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  KernelHandle kernel;
  ContextHandle context;  // NULL: the current one
};
static_assert(sizeof(KernelNode) == 72);

// CUDA_MEMSET_NODE_PARAMS
struct FillNode {
  Address to;
  size_t pitch;  // of more than one row
  unsigned value;
  unsigned item;  // 1, 2 or 4 bytes
  size_t width;
  size_t height;
};
static_assert(sizeof(FillNode) == 40);

// CUDA_MEMCPY3D
struct CopyNode {
  struct Side {
    size_t x, y, z, level;
    unsigned memory_type;
    void* host;
    Address device;
    void* array;
    void* reserved;
    size_t pitch, height;
  };
  Side from, to;
  size_t width, height, depth;
};
static_assert(sizeof(CopyNode) == 200);

// X(symbol, parameters): all return a Result. The symbols are versioned where the driver versions them.
#define AOTPACK_CUDA_FUNCTIONS(X)                                                                                     \
  X(cuInit, (unsigned flags))                                                                                         \
  X(cuGetErrorName, (Result result, const char** out))                                                                \
  X(cuGetErrorString, (Result result, const char** out))                                                              \
  X(cuDeviceGetCount, (int* out))                                                                                     \
  X(cuDeviceGet, (Ordinal * out, int index))                                                                          \
  X(cuDeviceGetName, (char* out, int size, Ordinal device))                                                           \
  X(cuDeviceGetAttribute, (int* out, int attribute, Ordinal device))                                                  \
  X(cuDeviceTotalMem_v2, (size_t* out, Ordinal device))                                                               \
  X(cuDevicePrimaryCtxRetain, (ContextHandle * out, Ordinal device))                                                  \
  X(cuCtxGetCurrent, (ContextHandle * out))                                                                           \
  X(cuCtxPushCurrent_v2, (ContextHandle context))                                                                     \
  X(cuCtxPopCurrent_v2, (ContextHandle * out))                                                                        \
  X(cuMemAlloc_v2, (Address * out, size_t bytes))                                                                     \
  X(cuMemFree_v2, (Address address))                                                                                  \
  X(cuMemHostAlloc, (void** out, size_t bytes, unsigned flags))                                                       \
  X(cuMemFreeHost, (void* memory))                                                                                    \
  X(cuMemcpyAsync, (Address to, Address from, size_t bytes, StreamHandle stream))                                     \
  X(cuMemsetD8Async, (Address to, unsigned char value, size_t count, StreamHandle stream))                            \
  X(cuMemsetD16Async, (Address to, unsigned short value, size_t count, StreamHandle stream))                          \
  X(cuMemsetD32Async, (Address to, unsigned value, size_t count, StreamHandle stream))                                \
  X(cuMemsetD2D32Async, (Address to, size_t pitch, unsigned value, size_t width, size_t height, StreamHandle stream)) \
  X(cuPointerGetAttribute, (void* out, int attribute, Address address))                                               \
  X(cuStreamCreate, (StreamHandle * out, unsigned flags))                                                             \
  X(cuStreamDestroy_v2, (StreamHandle stream))                                                                        \
  X(cuStreamSynchronize, (StreamHandle stream))                                                                       \
  X(cuStreamGetCtx, (StreamHandle stream, ContextHandle * out))                                                       \
  X(cuStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))                                      \
  X(cuEventCreate, (EventHandle * out, unsigned flags))                                                               \
  X(cuEventDestroy_v2, (EventHandle event))                                                                           \
  X(cuEventRecord, (EventHandle event, StreamHandle stream))                                                          \
  X(cuEventSynchronize, (EventHandle event))                                                                          \
  X(cuLibraryLoadData,                                                                                                \
    (LibraryHandle * out, const void* code, int* jit_options, void** jit_values, unsigned num_jit_options,            \
     int* library_options, void** library_values, unsigned num_library_options))                                      \
  X(cuLibraryUnload, (LibraryHandle library))                                                                         \
  X(cuLibraryGetKernel, (KernelHandle * out, LibraryHandle library, const char* name))                                \
  X(cuKernelSetAttribute, (int attribute, int value, KernelHandle kernel, Ordinal device))                            \
  X(cuTensorMapEncodeTiled,                                                                                           \
    (void* out, int type, uint32_t rank, void* address, const uint64_t* sizes, const uint64_t* strides,               \
     const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int promotion, int out_of_bounds))      \
  X(cuLaunchKernel,                                                                                                   \
    (KernelHandle kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,      \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** arguments, void** extra))

// The same that drivers before kOldestGraphs lack: NULL then.
inline constexpr int kOldestGraphs = 12040;
#define AOTPACK_CUDA_GRAPH_FUNCTIONS(X)                                                                         \
  X(cuKernelGetParamInfo, (KernelHandle kernel, size_t index, size_t* out_offset, size_t* out_size))            \
  X(cuStreamIsCapturing, (StreamHandle stream, int* out))                                                       \
  X(cuGraphCreate, (GraphHandle * out, unsigned flags))                                                         \
  X(cuGraphDestroy, (GraphHandle graph))                                                                        \
  X(cuGraphAddKernelNode_v2,                                                                                    \
    (NodeHandle * out, GraphHandle graph, const NodeHandle* after, size_t num_after, const KernelNode* params)) \
  X(cuGraphAddMemcpyNode, (NodeHandle * out, GraphHandle graph, const NodeHandle* after, size_t num_after,      \
                           const CopyNode* params, ContextHandle context))                                      \
  X(cuGraphAddMemsetNode, (NodeHandle * out, GraphHandle graph, const NodeHandle* after, size_t num_after,      \
                           const FillNode* params, ContextHandle context))                                      \
  X(cuGraphInstantiateWithFlags, (GraphExecHandle * out, GraphHandle graph, unsigned long long flags))          \
  X(cuGraphExecDestroy, (GraphExecHandle exec))                                                                 \
  X(cuGraphExecKernelNodeSetParams_v2, (GraphExecHandle exec, NodeHandle node, const KernelNode* params))       \
  X(cuGraphExecMemcpyNodeSetParams,                                                                             \
    (GraphExecHandle exec, NodeHandle node, const CopyNode* params, ContextHandle context))                     \
  X(cuGraphExecMemsetNodeSetParams,                                                                             \
    (GraphExecHandle exec, NodeHandle node, const FillNode* params, ContextHandle context))                     \
  X(cuGraphLaunch, (GraphExecHandle exec, StreamHandle stream))

// CUlaunchAttribute: of a kernel that waits itself for the work before it
struct LaunchAttribute {
  static constexpr int kStartsEarly = 6;
  int id;
  char padding[4];
  union {
    int value;
    char all[64];
  };
};
static_assert(sizeof(LaunchAttribute) == 72);

// CUlaunchConfig
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56);

// CUgraphEdgeData: of an edge to such a kernel
struct EdgeData {
  static constexpr unsigned char kProgrammatic = 1;
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
};
static_assert(sizeof(EdgeData) == 8);

// What drivers before kOldestEarlyStarts lack, in graphs at least: NULL then.
inline constexpr int kOldestEarlyStarts = 12030;
#define AOTPACK_CUDA_EARLY_FUNCTIONS(X)                                                                  \
  X(cuLaunchKernelEx, (const LaunchConfig* config, KernelHandle kernel, void** arguments, void** extra)) \
  X(cuGraphAddDependencies_v2,                                                                           \
    (GraphHandle graph, const NodeHandle* from, const NodeHandle* to, const EdgeData* edges, size_t count))

}  // namespace aotpack::runtime::cuda
