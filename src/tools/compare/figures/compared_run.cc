// A model's figures, over its seeds.
#include <algorithm>
#include <cmath>

#include "statistics.h"
#include "tools/compare/compare.h"

namespace headroom::compare {

const tasks::Task& ComparedRun::task() const {
  return tasks::task_for(config, "compare: " + name);
}

std::vector<double> ComparedRun::over_seeds(const std::string& figure) const {
  std::vector<double> all;
  for (const TrainedRun& run : trained) {
    all.push_back(tasks::figure(run.result.figures(), figure));
  }
  return all;
}

double ComparedRun::headline() const {
  return mean(over_seeds(tasks::headline(task().figures()).name));
}

bool ComparedRun::has_figure() const {
  return std::isfinite(headline());
}

double ComparedRun::mean_of(double train::TrainResult::*measured) const {
  std::vector<double> all;
  for (const TrainedRun& run : trained) {
    all.push_back(run.result.*measured);
  }
  return mean(all);
}

double ComparedRun::peak_memory_bytes() const {
  std::int64_t most = 0;
  for (const TrainedRun& run : trained) {
    most = std::max(most, run.result.peak_memory_bytes);
  }
  return static_cast<double>(most);
}

}  // namespace headroom::compare
