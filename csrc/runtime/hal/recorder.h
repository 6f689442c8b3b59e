// Records what a module submits, instead of running it.
#pragma once

#include <vector>

#include "hal/device.h"
#include "hal/recording.h"
#include "hal/stream.h"

namespace aotpack::runtime {

// A stream for one call of a module. The call sees addresses at which there is no memory, of inputs and of what it
// allocates; so it computes nothing, and what depends on results of the device or on seeds cannot be recorded: those
// functions throw, and the recorder is refused from then on. Belongs to one thread.
class Recorder final : public Stream {
 public:
  // Two recorders of different rounds see different addresses.
  enum class Round : uint8_t { kFirst, kSecond };
  // An address as an object of the call and an offset: inputs first, then allocations in their order.
  struct Place {
    uint32_t object;
    uint64_t offset;
  };
  struct Allocation {
    size_t bytes;
    bool is_live;
  };
  // Allocations and frees in their order.
  struct Event {
    uint32_t allocation;
    bool is_free;
  };

  Recorder(Device& device, size_t num_inputs, Round round);

  void* input(size_t index) const noexcept { return address(static_cast<uint32_t>(index)); }
  // NULL, and refused, when there are too many.
  void* allocate(size_t bytes);
  void free(void* memory) noexcept;
  // Called when the module asks for what no recording has.
  void refuse() noexcept { is_refused_ = true; }
  bool is_refused() const noexcept { return is_refused_; }

  void* handle() noexcept override { return nullptr; }
  void copy(void* to, const void* from, size_t bytes) override;
  void copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                    const int64_t* sizes, int32_t rank, size_t item) override;
  void wait() override;
  void launch(const aotpack_module_launch& launch) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  void fill(void* to, uint64_t value, size_t item, size_t count) override;
  void tensor_map(const aotpack_module_tensor_map& map) override;
  bool provide(const aotpack_module_library_call& call, WorkMemory& memory) override;

  // What the module returned.
  std::vector<aotpack_module_tensor> outputs;

  // Where an address lies in this round; object kNone: it is none of this round.
  Place place_of(uint64_t address) const noexcept;
  void* address(uint32_t object) const noexcept;
  size_t num_inputs() const noexcept { return num_inputs_; }
  const std::vector<Allocation>& allocations() const noexcept { return allocations_; }
  const std::vector<Event>& events() const noexcept { return events_; }
  // Operations and words as they were submitted, addresses as they are in this round.
  const Recording& raw() const noexcept { return raw_; }

 private:
  [[noreturn]] void refuse(const char* what);
  Recording::Operation& add(Recording::Operation::Kind kind);

  Device& device_;
  const size_t num_inputs_;
  const uint64_t base_;
  const int shift_;
  bool is_refused_ = false;
  std::vector<Allocation> allocations_;
  std::vector<Event> events_;
  Recording raw_;
  std::vector<uint32_t> sizes_;  // of the arguments of one launch
};

}  // namespace aotpack::runtime
