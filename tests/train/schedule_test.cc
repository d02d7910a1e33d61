// The learning rate against PyTorch's ReduceLROnPlateau(factor 0.5, threshold 1e-4, rel).
#include <cmath>

#include "san/train/optimiser.h"
#include "tests/testing.h"

namespace san {
namespace {

std::vector<double> rates(const std::vector<double>& scores, int patience) {
  TrainConfig config;
  config.schedule = ScheduleKind::kPlateau;
  config.lr = 1;
  config.factor = 0.5;
  config.patience = patience;
  Schedule schedule;
  std::vector<double> out;
  for (const double score : scores) {
    schedule.epoch_done(config, score);
    out.push_back(schedule.rate(config, 0));
  }
  return out;
}

TEST(Schedule, FallsAfterMoreThanPatienceEpochsWithoutProgress) {
  EXPECT_EQ(rates({1, 1, 1, 1, 1, 1, 1}, 2), (std::vector<double>{1, 1, 1, 0.5, 0.5, 0.5, 0.25}));
  // 1e-4 of the best is not progress, more is.
  EXPECT_EQ(rates({1, 0.99995, 0.9998, 0.9998}, 0), (std::vector<double>{1, 0.5, 0.5, 0.25}));
}

TEST(Schedule, NegativeScoresAreComparedAsPyTorchDoes) {
  // best * (1 - 1e-4) lies above a negative best: the same score again counts as progress.
  EXPECT_EQ(rates({-0.5, -0.5, -0.49999, -0.4}, 0), (std::vector<double>{1, 1, 1, 0.5}));
}

TEST(Schedule, AScoreThatIsNotANumberIsNoProgress) {
  EXPECT_EQ(rates({std::nan(""), 3, std::nan(""), 2}, 0), (std::vector<double>{0.5, 0.5, 0.25, 0.25}));
}

}  // namespace
}  // namespace san
