// Calls the kernel of examples/custom_op through its glue, as generated code does, on memory that is as large as it
// must be and no larger. For test_custom.py, which puts the glue into glue.h and runs this under the sanitizers.
//
// stdin: count, row stride, score stride, iou, then the boxes and the scores. stdout: the indices that stay.
#include <cstdio>
#include <iostream>

#include "custom.h"
#include "entry.h"
#include "glue.h"

using namespace aotpack::module;

namespace {

void* alloc(void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
void release(void*, void* block) { std::free(block); }
void fail(void*, int32_t, const char*, size_t) {}
uint64_t seed(void*) { return 1; }

// Element by element into exactly the memory that the strides reach.
std::vector<float> strided(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const int64_t last = rows == 0 ? -1 : (rows - 1) * row_stride + (columns - 1) * column_stride;
  std::vector<float> memory(static_cast<size_t>(last + 1));
  memory.shrink_to_fit();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) std::cin >> memory[static_cast<size_t>(r * row_stride + c * column_stride)];
  }
  return memory;
}

int64_t kept(Call& call, float* boxes, const int64_t* strides, float* scores, int64_t score_stride, int64_t count,
             int64_t score_count, double iou) {
  const int64_t box_sizes[2] = {count, 4};
  Owned box_tensor(call.borrow(boxes, 2, box_sizes, strides, AOTPACK_DTYPE_FLOAT32));
  Owned score_tensor(call.borrow(scores, 1, &score_count, &score_stride, AOTPACK_DTYPE_FLOAT32));
  Tensor* result = nullptr;
  aoti_torch_cpu_custom_vision__nms(box_tensor.get(), score_tensor.get(), iou, &result);
  torch::aot_inductor::RAIIAtenTensorHandle handle(result);
  custom_conform(handle, AOTPACK_DTYPE_INT64, {handle.size(0)}, {1}, "vision::nms");
  for (int64_t i = 0; i < handle.size(0); ++i) std::printf("%ld ", static_cast<long>(handle.get()->as<int64_t>()[i]));
  return handle.size(0);
}

}  // namespace

int main() {
  int64_t count = 0, row_stride = 0, score_stride = 0;
  double iou = 0;
  std::cin >> count >> row_stride >> score_stride >> iou;
  auto boxes = strided(count, 4, row_stride, 1), scores = strided(count, 1, score_stride, 1);
  void* imports[] = {reinterpret_cast<void*>(alloc), reinterpret_cast<void*>(release), reinterpret_cast<void*>(fail),
                     reinterpret_cast<void*>(seed)};
  aotpack_module_call abi{};
  abi.imports = imports;
  abi.num_threads = 4;
  const int64_t strides[2] = {row_stride, 1};
  Call call(&abi);
  kept(call, boxes.data(), strides, scores.data(), score_stride, count, count, iou);
  try {
    kept(call, boxes.data(), strides, scores.data(), score_stride, count, count + 1, iou);
  } catch (const Error& error) {
    std::printf("\n%s", error.message().c_str());
  }
  return 0;
}
