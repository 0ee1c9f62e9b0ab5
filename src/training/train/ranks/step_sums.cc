#include "step_sums.h"

#include <cmath>
#include <cstddef>

#include "headroom/ops/optimizers.h"

namespace headroom::train {

Gathered add_reports(std::vector<StepMessage>& all, std::int64_t micro_batches,
                     const std::map<std::string, at::Tensor>& buffers) {
  std::vector<Report*> order(static_cast<std::size_t>(micro_batches));
  Gathered step;
  for (StepMessage& message : all) {
    step.stop = step.stop || message.stop;
    for (Report& report : message.reports) {
      order[static_cast<std::size_t>(report.micro_batch)] = &report;
    }
  }
  bool first = true;
  for (Report* report : order) {
    step.loss = first ? report->cross_entropy.item<double>() : step.loss + report->cross_entropy.item<double>();
    first = false;
    for (auto& [name, update] : report->updates) {
      update.buffer = buffers.at(name);
      nn::report(step.updates, name, update);
    }
  }
  first = true;
  for (const Report* report : order) {
    if (report->regulariser.defined()) {
      const double value = report->regulariser.item<double>();
      step.regulariser = first ? value : step.regulariser + value;
      first = false;
    }
  }
  return step;
}

double gradient_norm(const std::vector<StepMessage>& all, const Layout& layout) {
  std::vector<std::size_t> next(all.size(), 0);
  double sum = 0.0, of_tensor = 0.0;
  for (const Piece& piece : layout.pieces) {
    const auto owner = static_cast<std::size_t>(piece.owner);
    const std::int64_t numbers = layout.places[piece.tensor].count;
    const bool whole = piece.count() == numbers;
    of_tensor = piece.begin == 0 ? 0.0 : of_tensor;
    for (std::int64_t left = whole ? 1 : piece.count() / ops::kSquareBlock + 1; left > 0; --left) {
      of_tensor += all[owner].squares.at(next[owner]++);
    }
    sum += piece.end == numbers ? of_tensor : 0.0;
  }
  return std::sqrt(sum);
}

}  // namespace headroom::train
