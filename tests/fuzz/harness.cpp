#include "harness.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "aotpack/module_abi.h"
#include "choices.h"

namespace aotpack::fuzz {

CallInProgress call_in_progress;

namespace {

constexpr int kTables = 3;
constexpr int64_t kLargest = 1 << 20;  // elements of an output

struct Table {
  aotpack_module module = {};
  std::vector<std::string> imports;
  std::vector<const char*> import_names;
  std::string target;
  std::vector<int> outputs;  // by output of its step: the entry's; -1: a value
};
Table tables[kTables];
volatile uint64_t sink;

int64_t size_of(int32_t dtype) {
  switch (dtype) {
    case AOTPACK_DTYPE_UINT8:
    case AOTPACK_DTYPE_INT8:
    case AOTPACK_DTYPE_BOOL:
    case AOTPACK_DTYPE_FLOAT8_E4M3FN:
    case AOTPACK_DTYPE_FLOAT8_E4M3FNUZ:
    case AOTPACK_DTYPE_FLOAT8_E5M2:
    case AOTPACK_DTYPE_FLOAT8_E5M2FNUZ:
      return 1;
    case AOTPACK_DTYPE_INT16:
    case AOTPACK_DTYPE_FLOAT16:
    case AOTPACK_DTYPE_BFLOAT16:
    case AOTPACK_DTYPE_UINT16:
      return 2;
    case AOTPACK_DTYPE_INT32:
    case AOTPACK_DTYPE_FLOAT32:
    case AOTPACK_DTYPE_UINT32:
      return 4;
    case AOTPACK_DTYPE_INT64:
    case AOTPACK_DTYPE_FLOAT64:
    case AOTPACK_DTYPE_COMPLEX64:
    case AOTPACK_DTYPE_UINT64:
      return 8;
    case AOTPACK_DTYPE_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

int32_t dtype_of(DLDataType type) {
  static const struct {
    uint8_t code, bits;
    int32_t dtype;
  } kTypes[] = {{1, 8, 0},   {0, 8, 1},   {0, 16, 2},   {0, 32, 3},  {0, 64, 4},  {2, 16, 5},  {2, 32, 6},
                {2, 64, 7},  {5, 64, 9},  {5, 128, 10}, {6, 8, 11},  {4, 16, 15}, {10, 8, 24}, {11, 8, 26},
                {12, 8, 23}, {13, 8, 25}, {1, 16, 27},  {1, 32, 28}, {1, 64, 29}};
  for (const auto& known : kTypes) {
    if (known.code == type.code && known.bits == type.bits) {
      return known.dtype;
    }
  }
  return AOTPACK_DTYPE_FLOAT32;
}

// What a module may read of its arguments: the corners, places at random, and all of a small one. What must hold of
// them is checked.
void touch(const aotpack_module_tensor& tensor) {
  const int64_t item = size_of(tensor.dtype);
  if (tensor.rank < 0 || tensor.rank > AOTPACK_MAX_RANK || item == 0) {
    abort();
  }
  bool empty = false;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.sizes[i] < 0) {
      abort();
    }
    empty = empty || tensor.sizes[i] == 0;
  }
  // The strides of what has no element mean nothing.
  if (empty) {
    return;
  }
  int64_t last = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.sizes[i] > 1) {
      if (tensor.strides[i] < 0) {
        abort();
      }
      last += (tensor.sizes[i] - 1) * tensor.strides[i];
    }
  }
  const char* bytes = static_cast<const char*>(tensor.data);
  uint64_t sum = 0;
  const auto read = [&](int64_t element) {
    for (int64_t i = 0; i < item; ++i) {
      sum += static_cast<unsigned char>(bytes[element * item + i]);
    }
  };
  read(0);
  read(last);
  for (int round = 0; round < 4; ++round) {
    int64_t element = 0;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.sizes[i] > 1) {
        element += static_cast<int64_t>(pick(static_cast<uint64_t>(tensor.sizes[i]))) * tensor.strides[i];
      }
    }
    read(element);
  }
  for (int64_t i = 0; last < 4096 && i <= last; ++i) {
    read(i);
  }
  sink = sink + sum;
}

struct Imports {
  aotpack_import_alloc_fn alloc = nullptr;
  aotpack_import_free_fn release = nullptr;
  aotpack_import_fail_fn fail = nullptr;
  aotpack_import_seed_fn seed = nullptr;

  Imports(const Table& table, const aotpack_module_call& call) {
    for (size_t i = 0; i < table.imports.size(); ++i) {
      const std::string& name = table.imports[i];
      if (name == "alloc") {
        alloc = reinterpret_cast<aotpack_import_alloc_fn>(call.imports[i]);
      } else if (name == "free") {
        release = reinterpret_cast<aotpack_import_free_fn>(call.imports[i]);
      } else if (name == "fail") {
        fail = reinterpret_cast<aotpack_import_fail_fn>(call.imports[i]);
      } else if (name == "seed") {
        seed = reinterpret_cast<aotpack_import_seed_fn>(call.imports[i]);
      }
    }
  }
};

// The shape that the manifest promises; sizes out of the data are any.
void promised_shape(const aotpack_value_info& info, aotpack_module_tensor& output) {
  output.dtype = dtype_of(info.dtype);
  output.rank = info.rank;
  for (int i = 0; i < info.rank; ++i) {
    const aotpack_dim_info& dim = *info.dims[i];
    int64_t size = dim.size;
    if (dim.name != nullptr && dim.name[0] != '\0') {
      const auto known = call_in_progress.dims.find(dim.name);
      size = known == call_in_progress.dims.end() ? 1 : known->second;
      if (__builtin_mul_overflow(size, dim.multiplier, &size) || __builtin_add_overflow(size, dim.offset, &size)) {
        size = 0;
      }
    } else if (dim.name != nullptr) {
      static const int64_t kSizes[] = {0, 1, 2, 4, 8};
      size = one_of(kSizes);
    }
    output.sizes[i] = size < 0 ? 0 : size;
  }
}

// Row-major strides; the elements, or -1 where there are too many.
int64_t lay_out(aotpack_module_tensor& output) {
  int64_t count = 1;
  bool empty = false;
  for (int i = output.rank; i-- > 0;) {
    output.strides[i] = count;
    empty |= output.sizes[i] == 0;
    if (__builtin_mul_overflow(count, output.sizes[i] == 0 ? 1 : output.sizes[i], &count) || count > kLargest) {
      return -1;
    }
  }
  return empty ? 0 : count;
}

void output_of(const aotpack_module_call& call, const Table& table, uint32_t index, aotpack_module_tensor& output) {
  const uint32_t inputs = table.module.num_inputs;
  const uint32_t constants = table.module.num_constants;
  const aotpack_value_info* info = nullptr;
  if (table.outputs[index] >= 0 && chance(90)) {
    info =
        aotpack_model_output(call_in_progress.model, call_in_progress.entry, static_cast<size_t>(table.outputs[index]));
  }
  if (info != nullptr) {
    promised_shape(*info, output);
  } else if (inputs + constants > 0) {
    const uint64_t chosen = pick(inputs + constants);
    const aotpack_module_tensor& like = chosen < inputs ? call.inputs[chosen] : call.constants[chosen - inputs];
    output.dtype = like.dtype;
    output.rank = like.rank;
    memcpy(output.sizes, like.sizes, sizeof output.sizes);
  } else {
    output.dtype = AOTPACK_DTYPE_INT64;
    output.rank = static_cast<int32_t>(pick(3));
    for (int i = 0; i < output.rank; ++i) {
      output.sizes[i] = static_cast<int64_t>(pick(4));
    }
  }
}

int32_t run(const Table& table, const aotpack_module_call* call) {
  const Imports imports(table, *call);
  if (imports.seed != nullptr) {
    sink = sink + imports.seed(call->runtime);
  }
  for (uint32_t i = 0; i < table.module.num_inputs; ++i) {
    touch(call->inputs[i]);
  }
  for (uint32_t i = 0; i < table.module.num_constants; ++i) {
    touch(call->constants[i]);
  }
  if (imports.alloc != nullptr && imports.release != nullptr && chance(30)) {
    if (void* block = imports.alloc(call->runtime, pick(5000)); block != nullptr) {
      imports.release(call->runtime, block);
    }
  }
  if (chance(5)) {
    if (imports.fail != nullptr && chance(70)) {
      imports.fail(call->runtime, static_cast<int32_t>(pick(6)), "boom", 4);
    }
    return 1 + static_cast<int32_t>(pick(5));
  }
  for (uint32_t i = 0; i < table.module.num_outputs; ++i) {
    aotpack_module_tensor& output = call->outputs[i];
    output = {};
    const uint32_t total = table.module.num_inputs + table.module.num_constants;
    if (total > 0 && (imports.alloc == nullptr || chance(10))) {
      // A view of an argument.
      const uint64_t chosen = pick(total);
      output =
          chosen < table.module.num_inputs ? call->inputs[chosen] : call->constants[chosen - table.module.num_inputs];
      output.block = nullptr;
      continue;
    }
    static char place[16];
    output_of(*call, table, i, output);
    const int64_t count = lay_out(output);
    if (count < 0 || imports.alloc == nullptr) {
      // One element, again and again.
      memset(output.strides, 0, sizeof output.strides);
      output.data = place;
      continue;
    }
    const size_t bytes = static_cast<size_t>(count * size_of(output.dtype));
    output.block = output.data = imports.alloc(call->runtime, bytes);
    if (output.block == nullptr) {
      for (uint32_t j = 0; j < i; ++j) {
        if (call->outputs[j].block != nullptr && imports.release != nullptr) {
          imports.release(call->runtime, call->outputs[j].block);
        }
      }
      return AOTPACK_MODULE_OUT_OF_MEMORY;
    }
    memset(output.data, 1, bytes);
    if (output.rank > 1 && chance(20)) {
      int64_t stride = 1;
      for (int j = 0; j < output.rank; ++j) {
        output.strides[j] = stride;
        stride *= output.sizes[j] == 0 ? 1 : output.sizes[j];
      }
    }
  }
  return AOTPACK_MODULE_OK;
}

template <int id>
int32_t run_table(const aotpack_module_call* call) {
  const uint32_t count = tables[id].module.num_outputs;
  // Nearly always where they have to be.
  for (uint32_t i = 0; i < count; ++i) {
    call->output_devices[i] = chance(1) ? aotpack_module_device{2, 0} : call->device;
  }
  return run(tables[id], call);
}

uint32_t length(Json& json) { return json.is_array() ? static_cast<uint32_t>(json.items().size()) : 0; }

// What a string's JSON says, without escapes.
std::string text_of(Json& json) {
  const std::string text = json.dump();
  return text.size() > 2 && text[0] == '"' ? text.substr(1, text.size() - 2) : "";
}

void set_table(Table& table, int id, Json& step, Json& module) {
  static int32_t (*const kRuns[kTables])(const aotpack_module_call*) = {run_table<0>, run_table<1>, run_table<2>};
  table.target = text_of(module["target"]);
  table.imports.clear();
  table.import_names.clear();
  if (module["imports"].is_array()) {
    for (Json& name : module["imports"].items()) {
      table.imports.push_back(text_of(name));
    }
  }
  for (const std::string& name : table.imports) {
    table.import_names.push_back(name.c_str());
  }
  table.outputs.assign(length(step["outputs"]), -1);
  for (size_t i = 0; i < table.outputs.size(); ++i) {
    Json& reference = step["outputs"].items()[i];
    if (reference.is_object() && reference.members().contains("output")) {
      table.outputs[i] = std::atoi(reference["output"].dump().c_str());
    }
  }
  table.module = {AOTPACK_MODULE_ABI_VERSION,
                  sizeof(aotpack_module),
                  table.target.c_str(),
                  length(step["inputs"]),
                  length(step["outputs"]),
                  length(module["constants"]),
                  static_cast<uint32_t>(table.imports.size()),
                  table.import_names.data(),
                  kRuns[id],
                  0,
                  0,
                  0,
                  nullptr};
}

}  // namespace

void set_tables(Json& manifest) {
  for (Table& table : tables) {
    table.module = {};
  }
  if (!manifest.is_object() || !manifest["entries"].is_array()) {
    return;
  }
  bool set[kTables] = {};
  for (Json& entry : manifest["entries"].items()) {
    if (!entry.is_object() || !entry["variants"].is_array()) {
      continue;
    }
    for (Json& variant : entry["variants"].items()) {
      if (!variant.is_object() || !variant["targets"].is_array()) {
        continue;
      }
      for (Json& target : variant["targets"].items()) {
        if (!target.is_object() || !target["steps"].is_array()) {
          continue;
        }
        for (Json& step : target["steps"].items()) {
          if (!step.is_object() || !step["module"].is_object() || text_of(step["module"]["target"]) == "aarch64") {
            continue;
          }
          const std::string file = step["module"]["file"].dump();
          const int id = file == "1" ? 0 : file == "2" ? 1 : file == "4" ? 2 : -1;
          if (id >= 0 && !set[id]) {
            set[id] = true;
            set_table(tables[id], id, step, step["module"]);
          }
        }
      }
    }
  }
}

void read_all(const DLTensor& tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) {
      return;
    }
  }
  for (int i = 0; i < tensor.ndim; ++i) {
    count *= tensor.shape[i];
  }
  const int64_t bytes = count * tensor.dtype.bits / 8;
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes; ++i) {
    sum += static_cast<const unsigned char*>(tensor.data)[i];
  }
  sink = sink + sum;
}

}  // namespace aotpack::fuzz

extern "C" __attribute__((visibility("default"))) const aotpack_module* fuzz_table(int id) {
  return &aotpack::fuzz::tables[id].module;
}
