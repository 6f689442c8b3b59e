// The work of one call of a module, for a graph of the device: launched again with other memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "aotpack/module_abi.h"

namespace aotpack::runtime {

class Recorder;

// Memory of a call comes in slots: the inputs, then the blocks that outputs are in, then one block for all other memory
// that the module allocates. Work is stored in words of 8 bytes, of which some are addresses.
struct Recording {
  struct Operation {
    enum class Kind : uint8_t { kLaunch, kCopy, kFill };
    Kind kind;
    // kLaunch: the arguments one after the other, each from a new word on. kCopy: to, from. kFill: to.
    uint32_t first_word;
    uint32_t first_argument;       // kLaunch: in argument_words
    aotpack_module_launch launch;  // kLaunch, without `arguments`
    uint64_t value;                // kFill
    size_t item;                   // kFill
    size_t count;                  // kFill: elements; kCopy: bytes
  };
  // A word that is the address of a slot, plus an offset.
  struct Relocation {
    uint32_t operation;
    uint32_t word;
    uint32_t slot;
    uint64_t offset;
  };
  struct Output {
    aotpack_module_tensor tensor;  // as the module returns it
    // What `tensor.data` and `tensor.block` are relative to; kNone: `data` as it is, and no block.
    uint32_t data_slot;
    uint64_t data_offset;
    uint32_t block_slot;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  std::vector<Operation> operations;
  std::vector<uint64_t> words;
  std::vector<uint32_t> argument_words;  // where each argument of each launch begins
  std::vector<Relocation> relocations;   // by operation
  std::vector<Output> outputs;
  size_t num_inputs = 0;
  std::vector<size_t> kept_bytes;  // of the blocks that outputs are in
  size_t arena_bytes = 0;          // of the block for everything else

  size_t num_slots() const noexcept { return num_inputs + kept_bytes.size() + 1; }
  size_t arena_slot() const noexcept { return num_slots() - 1; }
};

// One recording of two of the same call, at addresses that differ in everything: what differs is an address, and says
// of what. Nothing when a difference is not explained by that.
std::optional<Recording> combine(const Recorder& first, const Recorder& second);

}  // namespace aotpack::runtime
