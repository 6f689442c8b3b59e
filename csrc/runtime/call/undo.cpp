#include "call/undo.h"

#include <cstring>
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
      copies_.push_back({constant, on_host, block, bytes});
      copy_value(on_host, Allocator::data(block), state_.data(constant), bytes);
    }
  }
  kept_ = true;
}

void Undo::copy_value(bool on_host, void* to, const void* from, size_t bytes) {
  // At once: what modules of the host write to, they write in no order with the stream.
  if (on_host) {
    std::memcpy(to, from, bytes);
  } else {
    workspace_.stream().copy_on_device(to, from, bytes);
  }
}

Undo::~Undo() {
  if (kept_) {
    call_.seed = seed_;
    if (was_initial_) {
      state_.reset();
    } else {
      try {
        for (const Copy& copy : copies_) {
          copy_value(copy.on_host, state_.data(copy.constant), Allocator::data(copy.block), copy.bytes);
        }
        workspace_.stream().wait();
      } catch (...) {  // the device is lost, and with it the state
      }
    }
  }
  for (const Copy& copy : copies_) Allocator::release_block(copy.block);
}

}  // namespace aotpack::runtime
