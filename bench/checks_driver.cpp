// Measures what the checks of a call cost (bench/checks.py builds and runs this).
//
//   aotpack_checks ARCHIVE time          prints nanoseconds: of the checks alone, of a whole call; best and median
//   aotpack_checks ARCHIVE count CALLS   only makes calls: callgrind counts what is below checks_bind
//
// The first letters of their names distinguish dims. Calls alternate between two sets of sizes, so that no call can
// profit from what the previous call computed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "call/context.h"

using namespace aotpack::runtime;

namespace {

constexpr int kRounds = 41;
constexpr int kCalls = 20000;

struct Tensors {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor*> pointers;
};

int64_t value_of(const std::string& dim, bool second) {
  const int64_t values[2][4] = {{2, 4, 6, 8}, {4, 2, 8, 6}};
  return values[second ? 1 : 0][(dim[0] - 'a') % 4];
}

Tensors make_tensors(const EntryInfos& entry, float* data, bool second, bool with_strides) {
  Tensors made;
  const auto& infos = entry.inputs();
  made.shapes.reserve(2 * infos.size());
  for (const aotpack_value_info& info : infos) {
    std::vector<int64_t> shape;
    for (int32_t i = 0; i < info.rank; ++i) {
      shape.push_back(info.dims[i]->name != nullptr ? value_of(info.dims[i]->name, second) : info.dims[i]->size);
    }
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    made.shapes.push_back(shape);
    made.shapes.push_back(strides);
    DLTensor tensor{};
    tensor.data = data;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = info.rank;
    tensor.dtype = info.dtype;
    tensor.shape = made.shapes[made.shapes.size() - 2].data();
    tensor.strides = with_strides ? made.shapes.back().data() : nullptr;
    made.tensors.push_back(tensor);
  }
  for (const DLTensor& tensor : made.tensors) made.pointers.push_back(&tensor);
  return made;
}

}  // namespace

// What callgrind looks for.
extern "C" __attribute__((noinline)) void checks_bind(BoundInputs* bound, const Tensors& tensors,
                                                      const Workspace& workspace) {
  bound->bind(tensors.pointers.data(), tensors.pointers.size(), workspace);
  bound->release();
}

namespace {

template <typename Call>
void report(const char* what, Call&& call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call(i % 2 != 0);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    rounds.push_back(spent.count() / kCalls);
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("%s %.1f %.1f\n", what, rounds.front(), rounds[rounds.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  auto* model = new Model(argv[1], AOTPACK_VERIFY_CODE, FileMap::Mode::kMap);
  Context context(model, 1);
  const EntryPlan& plan = model->entries()[0].plan;
  BoundInputs bound(plan);
  std::vector<float> data(1 << 16);
  const EntryInfos& infos = model->entries()[0].infos;
  const Tensors sets[2] = {make_tensors(infos, data.data(), false, true), make_tensors(infos, data.data(), true, true)};
  if (std::strcmp(argv[2], "count") == 0) {
    const int calls = argc > 3 ? std::atoi(argv[3]) : 1000;
    for (int i = 0; i < calls; ++i) checks_bind(&bound, sets[i % 2], context.workspace());
  } else {
    report("checks", [&](bool second) { checks_bind(&bound, sets[second ? 1 : 0], context.workspace()); });
    report("call", [&](bool second) {
      const Tensors& tensors = sets[second ? 1 : 0];
      DLManagedTensorVersioned* output = nullptr;
      context.run(0, tensors.pointers.data(), tensors.pointers.size(), &output, 1);
      output->deleter(output);
    });
  }
  model->release();
  return 0;
}
