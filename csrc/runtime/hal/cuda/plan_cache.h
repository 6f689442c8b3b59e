// What a library has prepared for some sizes, kept for later calls with them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace aotpack::runtime::cuda {

// Keeps kMostPlans plans; the least recently used one makes room. Belongs to one thread at a time.
template <typename Key, typename Plan>
class PlanCache {
 public:
  static constexpr size_t kMostPlans = 64;

  // The plan of the key, which `make` returns if it is not kept: a std::unique_ptr, NULL where the library has none. It
  // is valid until the next call.
  template <typename Make>
  Plan* find(const Key& key, Make make) {
    auto known = plans_.find(key);
    if (known == plans_.end()) {
      if (plans_.size() >= kMostPlans) {
        plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
          return a.second.last_use < b.second.last_use;
        }));
      }
      known = plans_.emplace(key, Entry{make(), 0}).first;
    }
    known->second.last_use = ++uses_;
    return known->second.plan.get();
  }

  // From now on, the library has none.
  void refuse(const Key& key) { plans_[key].plan.reset(); }

 private:
  struct Entry {
    std::unique_ptr<Plan> plan;
    uint64_t last_use = 0;
  };
  std::map<Key, Entry> plans_;
  uint64_t uses_ = 0;
};

}  // namespace aotpack::runtime::cuda
