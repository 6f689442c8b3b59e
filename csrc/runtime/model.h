// A loaded archive: entries with their plans, and for each variant the module that suits this host best.
#ifndef AOTPACK_RUNTIME_MODEL_H_
#define AOTPACK_RUNTIME_MODEL_H_

#include <atomic>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "archive.h"
#include "loader.h"
#include "plan.h"

namespace aotpack::runtime {

struct Variant {
  const VariantRecord* record = nullptr;
  const ModuleRecord* module_record = nullptr;
  const Module* module = nullptr;
  std::vector<aotpack_module_tensor> constants;  // in the archive's pages, in the order that the module expects
  bool mutates_constants = false;                // then every context needs copies of its own
};

struct ModelEntry {
  EntryPlan plan;
  std::vector<Variant> variants;
};

// Immutable after construction and thread-safe; counts its references.
class Model {
 public:
  // With one reference. Throws what Archive and Module throw, or UNSUPPORTED_TARGET.
  Model(const char* path, aotpack_verify verify);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const Archive& archive() const noexcept { return archive_; }
  const std::vector<ModelEntry>& entries() const noexcept { return entries_; }
  // Throws NOT_FOUND.
  size_t find_entry(std::string_view name) const;

 private:
  ~Model() = default;

  void add_entry(const EntryRecord& record);
  Variant make_variant(const EntryRecord& entry, const VariantRecord& record);
  aotpack_module_tensor map_constant(const ConstantRecord& record) const;

  std::atomic<size_t> references_{1};
  Archive archive_;
  std::map<uint32_t, std::unique_ptr<Module>> modules_;  // by file
  std::vector<ModelEntry> entries_;
};

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_MODEL_H_
