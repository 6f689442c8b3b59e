// A loaded archive: entries with their plans, and for each variant the module that suits this host best.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "archive/archive.h"
#include "archive/assets.h"
#include "hal/device.h"
#include "model/devices.h"
#include "model/infos.h"
#include "model/plan.h"
#include "model/tunings.h"
#include "model/variant.h"
#include "model/weights.h"

namespace aotpack::runtime {

struct ModelEntry {
  EntryPlan plan;
  EntryInfos infos;
  std::vector<Variant> variants;
  std::string targets;  // of the chosen implementations, each once, in the order of the variants
};

// Immutable after construction but for its weights, and thread-safe; counts its references.
class Model {
 public:
  static constexpr size_t kDefaultGraphs = 8;
  static constexpr int32_t kMostGraphs = 4096;

  // With one reference. Throws what Archive and Executable throw, or UNSUPPORTED_TARGET.
  Model(const char* path, aotpack_verify verify, FileMap::Mode mode, Device& device = default_device());
  // The same by the name of the device. UNSUPPORTED_TARGET also where there is none of that name.
  Model(const char* path, aotpack_verify verify, FileMap::Mode mode, DLDevice device);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const Archive& archive() const noexcept { return archive_; }
  Device& device() const noexcept { return device_; }
  // How many graphs each context keeps at most. Set before the model is used.
  size_t graphs() const noexcept { return graphs_; }
  void set_graphs(size_t graphs) noexcept { graphs_ = graphs; }
  const std::vector<ModelEntry>& entries() const noexcept { return entries_; }
  // Throws NOT_FOUND.
  size_t find_entry(std::string_view name) const;

  bool is_updatable() const noexcept { return archive_.manifest().weights.has_value(); }
  // The tensors that an update brings; none for a frozen archive.
  const std::vector<aotpack_weight_info>& weight_infos() const noexcept { return weight_infos_; }
  // The constants that every context has copies of, and what they look like from outside.
  const std::vector<uint32_t>& state() const noexcept { return state_; }
  const std::vector<aotpack_weight_info>& state_infos() const noexcept { return state_infos_; }
  // Whether a mutated constant is read by steps that run on the host, while the model's device is another.
  bool is_on_host(uint32_t constant) const noexcept { return on_host_[constant]; }
  // Whether calls read a constant on the model's device, and on the host while the model's device is another.
  bool reads_on_device(size_t constant) const noexcept { return device_reads_[constant]; }
  bool reads_on_host(size_t constant) const noexcept { return host_reads_[constant]; }

  // The weights of a call that begins now.
  WeightsInUse weights() const;
  // How often they have been replaced.
  uint64_t weight_generation() const noexcept { return generation_.load(std::memory_order_acquire); }
  // Values by constant, made from others.
  using Values = std::vector<ConstantValue>;
  using MakeValues = std::function<Values(const Values& base)>;
  enum class Base : uint8_t { kCurrent, kArchive };
  // Replaces the weights by those that `make` makes of a base; when it throws, or the device has no memory for them,
  // nothing changes. Values that calls read on another device than the host need only be in memory of the host: they
  // are uploaded, and released there unless calls read them there too. Calls go on meanwhile, on the weights that they
  // began with; updates wait for each other. Throws INVALID_ARGUMENT for a frozen archive.
  void replace_weights(Base base, const MakeValues& make);
  void reset_weights();

 private:
  ~Model() = default;

  // A module on a device: its file, and whether that device is the host while the model's is another.
  using ExecutableKey = std::pair<uint32_t, bool>;

  void add_entry(const EntryRecord& record);
  void load_modules();
  std::string describe_step(const EntryRecord& entry, const Variant& variant, const Step& step) const;
  void place_state();
  void find_readers();
  Values archived_values() const;
  // The values, uploaded where calls read them on the device.
  std::shared_ptr<const WeightSet> make_weights(Values values, uint64_t id);
  std::string describe(const EntryRecord& entry, const VariantRecord& variant) const;
  void add_infos();
  void require_updatable() const;
  void swap_weights(std::shared_ptr<const WeightSet> next);

  std::atomic<size_t> references_{1};
  Device& device_;
  Archive archive_;
  Assets assets_;  // of the executables
  std::map<ExecutableKey, std::unique_ptr<Executable>> executables_;
  Tunings tunings_;
  std::vector<ModelEntry> entries_;
  std::vector<aotpack_weight_info> weight_infos_;
  std::vector<uint32_t> state_;
  std::vector<bool> on_host_;  // by constant, as the next two
  std::vector<bool> device_reads_;
  std::vector<bool> host_reads_;
  std::vector<aotpack_weight_info> state_infos_;
  // The archive's own. NULL in an updatable model on another device than the host: copies there, of what an update
  // replaces, would only take room.
  std::shared_ptr<const WeightSet> original_;
  std::shared_ptr<const WeightSet> current_;  // guarded by weights_mutex_; NULL in a frozen model
  mutable std::mutex weights_mutex_;
  std::mutex update_mutex_;  // held throughout an update
  uint64_t next_id_ = 1;     // guarded by update_mutex_
  std::atomic<uint64_t> generation_{0};
  size_t graphs_ = kDefaultGraphs;
};

}  // namespace aotpack::runtime
