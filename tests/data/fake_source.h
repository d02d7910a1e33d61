// A GraphSource over graphs in memory.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "san/data/source.h"

namespace san::testing {

class FakeSource : public GraphSource {
 public:
  explicit FakeSource(std::vector<Graph> graphs, std::string content = "fake")
      : graphs_(std::move(graphs)), content_(std::move(content)) {}

  bool next(Record& record) override {
    if (before_next) before_next(index_);
    if (index_ >= static_cast<int64_t>(graphs_.size())) return false;
    record = {};
    record.graph = graphs_[static_cast<size_t>(index_)];
    record.where = "fake:" + std::to_string(index_ + 1);
    record.index = index_++;
    return true;
  }
  Graph convert(Record record) const override {
    ++converted;
    if (record.graph.id == "bad") throw RecordError(record.where + ": a bad graph");
    return std::move(record.graph);
  }
  std::string name() const override { return "fake"; }
  std::string fingerprint(const FileFingerprints&) const override { return content_; }

  std::function<void(int64_t)> before_next;
  mutable std::atomic<int64_t> converted = 0;

 private:
  std::vector<Graph> graphs_;
  std::string content_;
  int64_t index_ = 0;
};

}  // namespace san::testing
