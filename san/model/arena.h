// Memory of one computation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "san/kernels/kernels.h"

namespace san {

// Memory by the piece, given back all at once and kept for the next time. Each piece ends in zeros that kernels may read.
class Arena {
 public:
  float* take(int64_t count) {
    const int64_t size = (count + kPad + 15) / 16 * 16;
    while (current_ < blocks_.size() && blocks_[current_].used + size > blocks_[current_].size) ++current_;
    if (current_ == blocks_.size()) {
      const int64_t wanted = std::max(size, int64_t{1} << 18);
      blocks_.push_back({std::unique_ptr<float, Free>(static_cast<float*>(
                             ::operator new (static_cast<size_t>(wanted) * sizeof(float), std::align_val_t{64}))),
                         wanted, 0});
    }
    Block& block = blocks_[current_];
    float* out = block.data.get() + block.used;
    block.used += size;
    std::fill(out + count, out + size, 0.0F);
    return out;
  }
  float* zeros(int64_t count) {
    float* out = take(count);
    std::fill(out, out + count, 0.0F);
    return out;
  }
  // Pieces taken since mark() are given back by rewind().
  struct Mark {
    size_t block;
    int64_t used;
  };
  Mark mark() const { return {current_, current_ < blocks_.size() ? blocks_[current_].used : 0}; }
  void rewind(Mark to) {
    for (size_t i = to.block; i < blocks_.size(); ++i) blocks_[i].used = i == to.block ? to.used : 0;
    current_ = to.block;
  }
  void reset() {
    // What came in pieces comes in one piece next time.
    if (blocks_.size() > 1) {
      int64_t total = 0;
      for (const Block& block : blocks_) total += block.size;
      blocks_.clear();
      blocks_.push_back({std::unique_ptr<float, Free>(static_cast<float*>(
                             ::operator new (static_cast<size_t>(total) * sizeof(float), std::align_val_t{64}))),
                         total, 0});
    }
    for (Block& block : blocks_) block.used = 0;
    current_ = 0;
  }
  int64_t bytes() const {
    int64_t total = 0;
    for (const Block& block : blocks_) total += block.size * static_cast<int64_t>(sizeof(float));
    return total;
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  struct Block {
    std::unique_ptr<float, Free> data;
    int64_t size, used;
  };
  std::vector<Block> blocks_;
  size_t current_ = 0;
};

}  // namespace san
