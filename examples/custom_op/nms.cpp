// Non-maximum suppression: among overlapping boxes, only the box with the best score is kept.
#include <algorithm>
#include <numeric>

#include "aotpack/operator.h"

using aotpack::op::Call;
using aotpack::op::check;
using aotpack::op::Tensor;

namespace vision {

namespace {

struct Box {
  float x1, y1, x2, y2;
  float area() const { return (x2 - x1) * (y2 - y1); }
};

float overlap(const Box& a, const Box& b) {
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  return std::max(width, 0.0f) * std::max(height, 0.0f);
}

}  // namespace

// vision::nms(Tensor boxes, Tensor scores, float iou) -> Tensor
Tensor nms(Call& call, const Tensor& boxes, const Tensor& scores, double iou) {
  check(boxes.rank() == 2 && boxes.size(1) == 4, "boxes must be [n, 4]");
  check(scores.rank() == 1 && scores.size(0) == boxes.size(0), "there must be a score for every box");
  const int64_t count = boxes.size(0);
  const auto* corners = call.contiguous(boxes).data<float>();
  const auto* score = call.contiguous(scores).data<float>();

  const auto order = call.scratch<int64_t>(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[a] > score[b]; });
  const auto sorted = call.scratch<Box>(count);
  for (int64_t i = 0; i < count; ++i) {
    const float* corner = corners + 4 * order[i];
    sorted[i] = {corner[0], corner[1], corner[2], corner[3]};
  }

  // float32, like the overlaps that are compared with it.
  const auto limit = static_cast<float>(iou);
  const auto suppressed = call.scratch<uint8_t>(count);
  std::fill(suppressed.begin(), suppressed.end(), uint8_t{0});
  const auto kept = call.scratch<int64_t>(count);
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (suppressed[i] != 0) continue;
    kept[found++] = order[i];
    const Box best = sorted[i];
    call.parallel_for(count - i - 1, 16384, [&](int64_t begin, int64_t end) {
      for (int64_t j = i + 1 + begin; j < i + 1 + end; ++j) {
        const float shared = overlap(best, sorted[j]);
        if (shared > limit * (best.area() + sorted[j].area() - shared)) suppressed[j] = 1;
      }
    });
  }

  // The number of boxes is known only now: the fake implementation returns a data-dependent size here.
  const Tensor result = call.empty({found}, aotpack::op::DType::int64);
  std::copy_n(kept.begin(), found, result.mutable_data<int64_t>());
  return result;
}

}  // namespace vision
