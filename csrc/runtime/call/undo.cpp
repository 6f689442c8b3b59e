#include "call/undo.h"

#include <set>

#include "base/status.h"

namespace aotpack::runtime {
namespace {

// What the modules of a variant may write to.
std::set<uint32_t> written_constants(const Model& model, const Variant& variant) {
  const std::vector<ConstantRecord>& records = model.archive().manifest().constants;
  std::set<uint32_t> written;
  for (const Step& step : variant.steps) {
    if (!step.mutates_constants) continue;
    for (const uint32_t constant : step.module->constants) {
      if (records[constant].mutated) written.insert(constant);
    }
  }
  return written;
}

}  // namespace

void Undo::keep(const Model& model, const Variant& variant) {
  if (workspace_.stream().is_captured()) {
    fail(AOTPACK_INVALID_ARGUMENT,
         "a call that changes the state as a whole or not at all waits for its results, which cannot be captured");
  }
  was_initial_ = state_.is_initial();
  seed_ = call_.seed;
  if (!was_initial_) {
    const std::vector<ConstantRecord>& records = model.archive().manifest().constants;
    const std::set<uint32_t> written = written_constants(model, variant);
    copies_.reserve(written.size());
    for (const uint32_t constant : written) {
      const size_t bytes = extent_bytes(records[constant]);
      const bool on_host = model.is_on_host(constant);
      void* block = workspace_.allocator_of(on_host)->allocate(bytes);
      if (block == nullptr) no_state_memory(bytes, records[constant]);
      copies_.push_back({constant, block, bytes});
      workspace_.stream().copy(Allocator::data(block), state_.data(constant), bytes);
    }
  }
  kept_ = true;
}

Undo::~Undo() {
  if (kept_) {
    call_.seed = seed_;
    if (was_initial_) {
      state_.reset();
    } else {
      try {
        for (const Copy& copy : copies_) {
          workspace_.stream().copy(state_.data(copy.constant), Allocator::data(copy.block), copy.bytes);
        }
        workspace_.stream().wait();
      } catch (...) {  // the device is lost, and with it the state
      }
    }
  }
  for (const Copy& copy : copies_) Allocator::release_block(copy.block);
}

}  // namespace aotpack::runtime
