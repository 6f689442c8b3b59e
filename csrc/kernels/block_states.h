// Which blocks of keys the rows of a task look at (score_rules.h), and the functions applied to the scores of a row.
#pragma once

#include <limits>

#include "score_rules.h"

namespace aotpack::kernels {

// Of a block of keys, for a row.
enum class BlockState : uint8_t { none = 0, partial = 1, full = 2 };

// The states of the rows of one task, in rows order: those of one head and block of queries share them.
class BlockStates {
 public:
  // Room for tasks of at most `rows` rows, which run through the queries of one head after the other.
  static int64_t bytes(const ScoreRules* rules, int64_t rows, int64_t q_len, int64_t kv_len) {
    if (rules == nullptr || rules->q_block == 0) return 0;
    const int64_t heads = rows / max64(q_len, 1) + 2;
    return min64(rows, rows / rules->q_block + 2 * heads) * blocks(*rules, kv_len);
  }
  static int64_t places(const ScoreRules* rules, int64_t rows) {
    return rules == nullptr || rules->q_block == 0 ? 0 : rows;
  }

  BlockStates(const ScoreRules* rules, int64_t kv_len, uint8_t* states, int32_t* of_row)
      : rules_(rules), states_(states), of_row_(of_row) {
    if (rules_ != nullptr) blocks_ = blocks(*rules_, kv_len);
  }

  // The next row of the task; rows come in order, numbered from 0.
  void add(int64_t row, int64_t batch, int64_t head, int64_t query) {
    if (rules_ == nullptr || rules_->q_block == 0) return;
    const int64_t block = query / rules_->q_block;
    if (row == 0 || head != head_ || block != block_) {
      head_ = head;
      block_ = block;
      uint8_t* mine = states_ + used_++ * blocks_;
      std::memset(mine, 0, static_cast<size_t>(blocks_));
      list(rules_->full, BlockState::full, batch, mine);
      list(rules_->partial, BlockState::partial, batch, mine);
    }
    of_row_[row] = static_cast<int32_t>(used_ - 1);
  }

  // Whether [from, to) holds keys that the row looks at; from < to. Then these are the first and, past the last, the
  // last of them, in whole blocks.
  bool narrow(int64_t row, int64_t& from, int64_t& to) const {
    if (rules_ == nullptr || rules_->q_block == 0) return true;
    const uint8_t* mine = states(row);
    const int64_t size = rules_->kv_block;
    int64_t first = from / size, last = (to - 1) / size;
    while (first <= last && mine[first] == 0) ++first;
    while (last >= first && mine[last] == 0) --last;
    from = max64(from, first * size);
    to = min64(to, (last + 1) * size);
    return first <= last;
  }

  // Applies the functions to the scores of the keys [from, to) of a row.
  template <class A>
  void apply(const ScoreRow& at, int64_t row, int64_t from, int64_t to, A* scores) const {
    if (rules_ == nullptr) return;
    const auto score = reinterpret_cast<ScoreFunction<A>>(rules_->score);
    const auto mask = reinterpret_cast<ScoreFunction<A>>(rules_->mask);
    bool fine = true;
    for (int64_t j = from; j < to;) {
      int64_t end = to;
      BlockState state = BlockState::partial;
      if (rules_->q_block != 0) {
        const uint8_t* mine = states(row);
        const int64_t size = rules_->kv_block;
        int64_t block = j / size;
        state = static_cast<BlockState>(mine[block]);
        // As many as have the same state.
        while (++block * size < to && mine[block] == static_cast<uint8_t>(state)) {
        }
        end = min64(to, block * size);
      }
      A* here = scores + (j - from);
      if (state == BlockState::none) {
        for (int64_t c = 0; c < end - j; ++c) here[c] = -std::numeric_limits<A>::infinity();
      } else {
        if (score != nullptr) fine &= score(at, j, end - j, here);
        if (mask != nullptr && state == BlockState::partial) fine &= mask(at, j, end - j, here);
      }
      j = end;
    }
    if (!fine) rules_->failed->store(true, std::memory_order_relaxed);
  }

 private:
  static int64_t blocks(const ScoreRules& rules, int64_t kv_len) {
    return rules.q_block == 0 ? 0 : ceil_div(kv_len, rules.kv_block);
  }
  const uint8_t* states(int64_t row) const { return states_ + of_row_[row] * blocks_; }

  void list(const BlockList& from, BlockState state, int64_t batch, uint8_t* mine) {
    if (from.counts == nullptr) return;
    const int64_t count =
        from.counts[batch * from.counts_strides[0] + head_ * from.counts_strides[1] + block_ * from.counts_strides[2]];
    const int32_t* indices = from.indices + batch * from.indices_strides[0] + head_ * from.indices_strides[1] +
                             block_ * from.indices_strides[2];
    bool fine = count >= 0 && count <= from.places;
    for (int64_t i = 0; fine && i < count; ++i) {
      const int64_t block = indices[i * from.indices_strides[3]];
      fine = block >= 0 && block < blocks_;
      if (fine) mine[block] = static_cast<uint8_t>(state);
    }
    if (!fine) rules_->failed->store(true, std::memory_order_relaxed);
  }

  const ScoreRules* rules_;
  uint8_t* states_;
  int32_t* of_row_;
  int64_t blocks_ = 0, used_ = 0, head_ = -1, block_ = -1;
};

}  // namespace aotpack::kernels
