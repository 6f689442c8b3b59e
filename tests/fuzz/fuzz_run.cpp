// Loads archives with changes and uses everything of what loads: runs with tensors of any layout, results into given
// memory, state, updates of weights. The modules are the fuzzer's own (harness.cpp), which check what they are given.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "aotpack/aotpack.h"
#include "arguments.h"
#include "choices.h"
#include "harness.h"
#include "seeds.h"

using namespace aotpack;
using fuzz::Argument;
using fuzz::chance;
using fuzz::pick;

namespace {

constexpr size_t kMany = 200;
using Arguments = std::vector<std::unique_ptr<Argument>>;

// Whether the call succeeded.
bool ok(aotpack_status* status) {
  if (status == nullptr) {
    return true;
  }
  if (aotpack_status_code(status) == AOTPACK_OK || aotpack_status_message(status) == nullptr) {
    abort();
  }
  aotpack_status_release(status);
  return false;
}

std::vector<const DLTensor*> tensors_of(const Arguments& arguments) {
  std::vector<const DLTensor*> tensors;
  for (const auto& argument : arguments) {
    tensors.push_back(argument->tensor());
  }
  return tensors;
}

int64_t size_of(const aotpack_dim_info& dim) {
  if (dim.name == nullptr) {
    return dim.size;
  }
  if (dim.name[0] == '\0') {
    static const int64_t kSizes[] = {0, 1, 2, 4, 8, 12, 16};
    return fuzz::one_of(kSizes);
  }
  auto [known, added] = fuzz::call_in_progress.dims.try_emplace(dim.name, 0);
  if (added) {
    const int64_t step = dim.multiple_of < 1000 ? dim.multiple_of : 1;
    const int64_t low = std::max<int64_t>(dim.min, 0);
    int64_t size = low < 100000 ? (low + step - 1) / step * step + static_cast<int64_t>(pick(4)) * step : low;
    known->second = std::min(size, dim.max);
  }
  int64_t size = 0;
  if (__builtin_mul_overflow(known->second, dim.multiplier, &size) || __builtin_add_overflow(size, dim.offset, &size)) {
    return INT64_MAX;
  }
  return chance(2) && size < INT64_MAX ? size + 1 : size;
}

Arguments inputs_of(aotpack_model* model, size_t entry, bool plain) {
  Arguments inputs;
  for (size_t i = 0; i < aotpack_model_input_count(model, entry); ++i) {
    const aotpack_value_info* info = aotpack_model_input(model, entry, i);
    std::vector<int64_t> shape;
    for (int d = 0; d < info->rank; ++d) {
      shape.push_back(size_of(*info->dims[d]));
    }
    if (i > 0 && chance(5)) {
      inputs.push_back(std::make_unique<Argument>(*inputs[pick(i)]));
    } else {
      inputs.push_back(std::make_unique<Argument>(info->dtype, shape, plain));
    }
    if (info->number == AOTPACK_NUMBER_INT) {
      inputs.back()->set(chance(70) ? static_cast<int64_t>(pick(5)) : static_cast<int64_t>(fuzz::draw()));
    }
    if (chance(3)) {
      inputs.back()->spoil();
    }
  }
  return inputs;
}

void run_into(aotpack_context* context, aotpack_model* model, size_t entry, const Arguments& inputs,
              const std::vector<DLManagedTensorVersioned*>& results) {
  Arguments outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const DLTensor& result = results[i]->dl_tensor;
    if (!inputs.empty() && chance(10)) {
      outputs.push_back(std::make_unique<Argument>(*inputs[pick(inputs.size())]));
    } else {
      const std::vector<int64_t> shape(result.shape, result.shape + result.ndim);
      outputs.push_back(std::make_unique<Argument>(aotpack_model_output(model, entry, i)->dtype, shape, chance(60)));
    }
  }
  const auto given = tensors_of(inputs);
  const auto taken = tensors_of(outputs);
  ok(aotpack_context_run_into(context, entry, given.data(), given.size(), taken.data(), taken.size()));
}

void run(aotpack_context* context, aotpack_model* model, size_t entry) {
  const size_t count = aotpack_model_output_count(model, entry);
  if (aotpack_model_input_count(model, entry) > kMany || count > kMany) {
    return;
  }
  for (int round = 0; round < 3; ++round) {
    fuzz::call_in_progress = {model, entry, {}};
    const Arguments inputs = inputs_of(model, entry, round == 0);
    const auto given = tensors_of(inputs);
    std::vector<DLManagedTensorVersioned*> results(count, nullptr);
    if (ok(aotpack_context_run(context, entry, given.data(), given.size(), results.data(), count))) {
      for (const DLManagedTensorVersioned* result : results) {
        fuzz::read_all(result->dl_tensor);
      }
      if (chance(70)) {
        run_into(context, model, entry, inputs, results);
      }
    } else if (std::any_of(results.begin(), results.end(), [](auto* result) { return result != nullptr; })) {
      abort();
    }
    if (chance(30)) {
      aotpack_context_reset(context);
    }
    for (DLManagedTensorVersioned* result : results) {
      if (result != nullptr) {
        result->deleter(result);
      }
    }
  }
}

void read_state(aotpack_context* context, aotpack_model* model) {
  for (size_t i = 0; i < std::min<size_t>(aotpack_model_state_count(model), 50); ++i) {
    DLManagedTensorVersioned* tensor = nullptr;
    if (ok(aotpack_context_get_state(context, i, &tensor))) {
      fuzz::read_all(tensor->dl_tensor);
      tensor->deleter(tensor);
    }
  }
}

// Names with tensors of their shapes, a few left out.
struct Named {
  std::vector<const char*> names;
  Arguments arguments;

  template <class Info>
  void add(const Info& info) {
    if (chance(5)) {
      return;
    }
    names.push_back(info.name);
    arguments.push_back(
        std::make_unique<Argument>(info.dtype, std::vector<int64_t>(info.sizes, info.sizes + info.rank), chance(50)));
    if (chance(2)) {
      arguments.back()->spoil();
    }
  }
};

void change_weights(aotpack_context* context, aotpack_model* model) {
  const size_t weights = aotpack_model_weight_count(model);
  if (weights > 0 && weights < kMany) {
    Named given;
    for (size_t i = 0; i < weights; ++i) {
      given.add(*aotpack_model_weight(model, i));
    }
    fuzz::call_in_progress = {model, 0, {}};
    ok(aotpack_model_find_entry(model, "fold", &fuzz::call_in_progress.entry));
    const auto tensors = tensors_of(given.arguments);
    ok(aotpack_model_update_weights(model, given.names.data(), tensors.data(), tensors.size(), nullptr));
    given.arguments.clear();
    read_state(context, model);
    if (chance(50)) {
      ok(aotpack_model_reset_weights(model));
    }
  }
  const size_t states = aotpack_model_state_count(model);
  if (states > 0 && states < kMany) {
    Named given;
    for (size_t i = 0; i < states; ++i) {
      given.add(*aotpack_model_state(model, i));
    }
    const auto tensors = tensors_of(given.arguments);
    ok(aotpack_context_load_state(context, given.names.data(), tensors.data(), tensors.size()));
    read_state(context, model);
  }
}

void use(aotpack_model* model) {
  const aotpack_context_options options = {sizeof options, 1, 0, nullptr, 0};
  aotpack_context* context = nullptr;
  if (!ok(aotpack_context_create(model, &options, &context))) {
    return;
  }
  for (size_t entry = 0; entry < aotpack_model_entry_count(model); ++entry) {
    run(context, model, entry);
  }
  read_state(context, model);
  change_weights(context, model);
  if (chance(30)) {
    run(context, model, 0);
  }
  aotpack_context_release(context);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<tests::ArchiveWriter> seeds = fuzz::seeds();
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  fuzz::start(data, size);
  tests::ArchiveWriter writer = seeds[pick(seeds.size())];
  for (size_t changes = chance(10) ? 0 : 1 + pick(chance(80) ? 2 : 6); changes > 0; --changes) {
    fuzz::mutate(writer.manifest);
  }
  fuzz::set_tables(writer.manifest);
  tests::Layout layout;
  std::string bytes = writer.build(&layout);
  for (size_t edits = chance(90) ? 0 : 1 + pick(3); edits > 0; --edits) {
    fuzz::damage(bytes, layout);
  }
  if (ftruncate(file, 0) != 0 || pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    perror("memfd");
    exit(2);
  }
  aotpack_load_options options = {};
  options.struct_size = sizeof options;
  options.verify = chance(30) ? AOTPACK_VERIFY_FULL : AOTPACK_VERIFY_CODE;
  aotpack_model* model = nullptr;
  if (ok(aotpack_model_load(path.c_str(), &options, &model))) {
    use(model);
    aotpack_model_release(model);
  } else if (model != nullptr) {
    abort();
  }
  return 0;
}
