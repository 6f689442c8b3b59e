#include "hal/cuda/device.h"

#include <map>

#include "base/status.h"
#include "hal/cuda/current.h"
#include "hal/cuda/executable.h"
#include "hal/cuda/graph.h"
#include "hal/cuda/kernel.h"
#include "hal/cuda/providers.h"
#include "hal/cuda/stream.h"
#include "hal/cuda/upload.h"

namespace aotpack::runtime::cuda {
namespace {

// The results after which a context runs nothing any more (cuda.h: "the process must be terminated and relaunched").
constexpr Result kFatal[] = {
    46,   // DEVICE_UNAVAILABLE
    214,  // ECC_UNCORRECTABLE
    220,  // NVLINK_UNCORRECTABLE
    226,  // CONTAINED
    700,  // ILLEGAL_ADDRESS
    702,  // LAUNCH_TIMEOUT
    709,  // CONTEXT_IS_DESTROYED
    710,  // ASSERT
    714,  // HARDWARE_STACK_ERROR
    715,  // ILLEGAL_INSTRUCTION
    716,  // MISALIGNED_ADDRESS
    717,  // INVALID_ADDRESS_SPACE
    718,  // INVALID_PC
    719,  // LAUNCH_FAILED
    721,  // TENSOR_MEMORY_LEAK
    809,  // MPS_CLIENT_TERMINATED
    999,  // UNKNOWN
};

bool is_fatal(Result result) {
  for (const Result fatal : kFatal) {
    if (result == fatal) return true;
  }
  return false;
}

}  // namespace

CudaDevice::CudaDevice(const Driver& driver, int index) : driver_(driver), index_(index) {
  if (index < 0 || index >= driver.device_count()) {
    fail(AOTPACK_UNSUPPORTED_TARGET, "there is no cuda:%d: the CUDA driver finds %d device%s%s", index,
         driver.device_count(), driver.device_count() == 1 ? "" : "s",
         driver.device_count() == 1 ? ", cuda:0" : format(", cuda:0 to cuda:%d", driver.device_count() - 1).c_str());
  }
  char name[256] = {};
  check(driver_.cuDeviceGet(&ordinal_, index), "finding the device");
  check(driver_.cuDeviceGetName(name, sizeof name - 1, ordinal_), "reading the device's name");
  check(driver_.cuDeviceGetAttribute(&capability_.major, kComputeCapabilityMajor, ordinal_),
        "reading the compute capability");
  check(driver_.cuDeviceGetAttribute(&capability_.minor, kComputeCapabilityMinor, ordinal_),
        "reading the compute capability");
  check(driver_.cuDeviceTotalMem_v2(&total_memory_, ordinal_), "reading the size of the memory");
  product_name_ = name;
  targets_ = runnable_targets(capability_);
}

std::string CudaDevice::description() const {
  return format("cuda:%d (%s, compute capability %d.%d)", index_, product_name_.c_str(), capability_.major,
                capability_.minor);
}

std::string CudaDevice::missing(std::string_view target) const { return missing_for(target, capability_); }

ContextHandle CudaDevice::context() {
  if (const ContextHandle known = context_.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(mutex_);
  if (const ContextHandle known = context_.load(std::memory_order_relaxed)) return known;
  ContextHandle made = nullptr;
  const Result result = driver_.cuDevicePrimaryCtxRetain(&made, ordinal_);
  if (result != kSuccess) {
    throw Error(result == kOutOfMemory ? AOTPACK_OUT_OF_MEMORY : AOTPACK_DEVICE_FAILED,
                format("cuda:%d: the device cannot be used: ", index_) + driver_.describe(result));
  }
  context_.store(made, std::memory_order_release);
  return made;
}

void CudaDevice::raise(Result result, const std::string& what) {
  const std::string text = format("cuda:%d: ", index_) + what + " failed: " + driver_.describe(result);
  if (result == kOutOfMemory) throw Error(AOTPACK_OUT_OF_MEMORY, text);
  if (is_fatal(result)) {
    const std::lock_guard lock(mutex_);
    if (!is_lost_.load(std::memory_order_relaxed)) {
      lost_ = text;
      is_lost_.store(true, std::memory_order_release);
    }
    throw Error(AOTPACK_DEVICE_FAILED, text + "; this process cannot use the device any more");
  }
  const char* hint = "";
  if (result == kNotInitialized) hint = "; a process that was forked after its parent used CUDA cannot use it";
  if (result == kUnsupportedPtxVersion) hint = "; the code is newer than the driver: update the driver";
  throw Error(AOTPACK_DEVICE_FAILED, text + hint);
}

void CudaDevice::throw_lost() const {
  const std::lock_guard lock(mutex_);
  throw Error(AOTPACK_DEVICE_FAILED,
              format("this process cannot use cuda:%d any more, since an earlier error: ", index_) + lost_);
}

// The pools of contexts keep what they have; so this may be slow, and need not follow the order of a stream: freeing
// waits for the device.
void* CudaDevice::allocate(size_t bytes, size_t) noexcept {
  try {
    const Current current(*this);
    Address address = 0;
    check(driver_.cuMemAlloc_v2(&address, bytes != 0 ? bytes : 1), "an allocation");
    return reinterpret_cast<void*>(address);
  } catch (...) {
    return nullptr;
  }
}

void CudaDevice::free(void* memory) noexcept {
  try {
    const Current current(*this);
    driver_.cuMemFree_v2(reinterpret_cast<Address>(memory));
  } catch (...) {  // the memory of a lost device is gone
  }
}

void CudaDevice::upload(const std::vector<Transfer>& transfers) { upload_all(*this, transfers); }

std::unique_ptr<Stream> CudaDevice::make_stream() { return std::make_unique<CudaStream>(*this); }

// The legacy one: it waits for all streams that are not made otherwise, and these for it.
std::unique_ptr<Stream> CudaDevice::default_stream() { return borrow_stream(reinterpret_cast<void*>(1)); }

std::unique_ptr<Stream> CudaDevice::borrow_stream(void* handle) { return std::make_unique<CudaStream>(*this, handle); }

std::unique_ptr<Executable> CudaDevice::load(ExecutableSource source) {
  return std::make_unique<CudaExecutable>(std::move(source), *this);
}

std::unique_ptr<Graph> CudaDevice::make_graph(Recording recording, void* const* slots) {
  if (!CudaGraph::can_have(recording)) return nullptr;
  return std::make_unique<CudaGraph>(*this, std::move(recording), slots);
}

bool CudaDevice::argument_sizes(const aotpack_module_launch& launch, std::vector<uint32_t>* out) {
  auto* kernel = static_cast<Kernel*>(launch.code->handle);
  if (kernel == nullptr) return false;
  const Current current(*this);
  const KernelHandle handle = kernel->get(launch.kernel, launch.shared_bytes);
  out->clear();
  for (uint32_t i = 0; i < launch.num_arguments; ++i) {
    size_t offset = 0, bytes = 0;
    if (driver_.cuKernelGetParamInfo(handle, i, &offset, &bytes) != kSuccess) return false;
    out->push_back(static_cast<uint32_t>(bytes));
  }
  return true;
}

void CudaDevice::tensor_map(const aotpack_module_tensor_map& map) {
  const int type = map.item == 1 ? kMapOf8 : map.item == 2 ? kMapOf16 : map.item == 4 ? kMapOf32 : kMapOf64;
  const int swizzle = map.swizzle == 128 ? 3 : map.swizzle == 64 ? 2 : map.swizzle == 32 ? 1 : 0;
  // The driver counts from the innermost dim.
  const uint64_t sizes[] = {static_cast<uint64_t>(map.sizes[1]), static_cast<uint64_t>(map.sizes[0])};
  const uint64_t strides[] = {static_cast<uint64_t>(map.stride) * map.item};
  const uint32_t box[] = {map.box[1], map.box[0]};
  const uint32_t steps[] = {1, 1};
  const Current current(*this);
  const Result result = driver_.cuTensorMapEncodeTiled(map.out, type, 2, const_cast<void*>(map.address), sizes, strides,
                                                       box, steps, 0, swizzle, kPromoteTo128, 0);
  if (result == kSuccess) return;
  raise(result, format("describing a matrix of %lld x %lld elements of %u bytes, %lld apart, for blocks of %u x %u",
                       static_cast<long long>(map.sizes[0]), static_cast<long long>(map.sizes[1]), map.item,
                       static_cast<long long>(map.stride), map.box[0], map.box[1]));
}

bool CudaDevice::has_library(std::string_view operation) { return Providers::can_run(operation); }

CudaDevice& cuda_device(int index) {
  const Driver& driver = Driver::get();
  // Never destroyed: tensors and contexts may be released while the process ends.
  static std::mutex& mutex = *new std::mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<CudaDevice>>;
  const std::lock_guard lock(mutex);
  if (const auto known = devices.find(index); known != devices.end()) return *known->second;
  return *devices.emplace(index, std::make_unique<CudaDevice>(driver, index)).first->second;
}

}  // namespace aotpack::runtime::cuda
