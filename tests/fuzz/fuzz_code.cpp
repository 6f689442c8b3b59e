// Codes: any items are a code or refused; a code runs within its stack, whatever the dims are, and a value of its type
// comes out. With `--emit COUNT SEED` it writes codes and their values as lines of JSON, which tests/fuzz/test_fuzz.py
// compares with Python's.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/status.h"
#include "choices.h"
#include "json_tree.h"
#include "manifest/json.h"
#include "shape/code.h"

using namespace aotpack;

namespace {

const char* const kDims[] = {"b", "l", "n", "m", "c", "h"};
constexpr size_t kDimCount = 6;

// Adds an item as the manifest's reader does; what is wrong with it, or NULL.
const char* add(runtime::CodeBuilder& builder, const runtime::json::Value& item) {
  switch (item.kind) {
    case runtime::json::Kind::kInt:
      return builder.push(item.integer);
    case runtime::json::Kind::kBool:
      return builder.push(item.boolean);
    case runtime::json::Kind::kObject: {
      const runtime::json::Value& number = *item.find("float");
      return builder.push(number.kind == runtime::json::Kind::kInt ? static_cast<double>(number.integer)
                                                                   : number.number);
    }
    case runtime::json::Kind::kString:
      break;
    default:
      return "no item";
  }
  if (item.string.substr(0, 1) != "$") {
    return builder.apply(item.string);
  }
  for (uint32_t i = 0; i < kDimCount; ++i) {
    if (item.string.substr(1) == kDims[i]) {
      return builder.push_dim(i);
    }
  }
  return "no dim";
}

struct Sample {
  std::string text;
  bool built = false;
  runtime::CodeType type = runtime::CodeType::kInt;
  runtime::Code code;
};

Sample sample_of(fuzz::Json& code) {
  Sample made;
  if (!code.is_array()) {
    return made;
  }
  made.text = code.dump();
  const std::string text = made.text + "\n";
  const runtime::json::Document document(text);
  for (const runtime::CodeType type : {runtime::CodeType::kInt, runtime::CodeType::kFloat, runtime::CodeType::kBool}) {
    runtime::CodeBuilder builder;
    const char* wrong = nullptr;
    for (const runtime::json::Value& item : document.root().items) {
      if (item.kind == runtime::json::Kind::kObject && item.find("float") == nullptr) {
        return made;
      }
      wrong = wrong == nullptr ? add(builder, item) : wrong;
    }
    if (wrong == nullptr && builder.finish(type, &made.code) == nullptr) {
      made.built = true;
      made.type = type;
      return made;
    }
  }
  return made;
}

Sample sample() {
  fuzz::Json code = fuzz::random_code();
  if (fuzz::chance(10)) {
    fuzz::mutate(code);
  }
  try {
    return sample_of(code);
  } catch (const runtime::Error&) {
    // Changed into something that is not JSON.
    return {};
  }
}

void random_dims(int64_t* dims) {
  static const int64_t kEdges[] = {0, 1, 2, 7, 64, 1 << 20, INT64_MAX, INT64_MIN, -1, INT64_MAX - 1, 3037000500};
  for (size_t i = 0; i < kDimCount; ++i) {
    dims[i] = fuzz::chance(70) ? static_cast<int64_t>(fuzz::pick(20)) : fuzz::one_of(kEdges);
  }
}

void print(const Sample& made, const int64_t* dims, bool defined, const runtime::CodeValue& value) {
  printf("{\"code\":%s,\"dims\":{", made.text.c_str());
  for (size_t i = 0; i < kDimCount; ++i) {
    printf("%s\"%s\":%" PRId64, i == 0 ? "" : ",", kDims[i], dims[i]);
  }
  printf("},\"value\":");
  if (!defined) {
    printf("null}\n");
  } else if (made.type == runtime::CodeType::kInt) {
    printf("%" PRId64 "}\n", value.integer);
  } else if (made.type == runtime::CodeType::kBool) {
    printf("%s}\n", value.truth ? "true" : "false");
  } else {
    uint64_t bits = 0;
    memcpy(&bits, &value.number, sizeof bits);
    printf("{\"bits\":%" PRIu64 "}}\n", bits);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::start(data, size);
  const Sample made = sample();
  for (int round = 0; made.built && round < 4; ++round) {
    int64_t dims[kDimCount];
    random_dims(dims);
    runtime::CodeValue value = {};
    unsigned char truth = 0;
    if (made.code.evaluate(dims, &value) && made.type == runtime::CodeType::kBool) {
      memcpy(&truth, &value.truth, 1);
    }
    if (truth > 1) {
      abort();
    }
  }
  return 0;
}

// Before main, so that it works beside libFuzzer's too.
__attribute__((constructor)) static void emit(int argc, char** argv) {
  if (argc != 4 || strcmp(argv[1], "--emit") != 0) {
    return;
  }
  const uint64_t count = strtoull(argv[2], nullptr, 10);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed[] = {strtoull(argv[3], nullptr, 10), i};
    fuzz::start(reinterpret_cast<const uint8_t*>(seed), sizeof seed);
    const Sample made = sample();
    if (made.built) {
      int64_t dims[kDimCount];
      random_dims(dims);
      runtime::CodeValue value = {};
      const bool defined = made.code.evaluate(dims, &value);
      print(made, dims, defined, value);
    }
  }
  fflush(stdout);
  exit(0);
}
