#include "history.h"

#include <limits>
#include <string>
#include <utility>

namespace headroom::compare {
namespace {

constexpr std::int64_t kAllSteps = std::numeric_limits<std::int64_t>::max();

std::string text_of(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_string() ? line.at(key).get<std::string>() : "";
}

}  // namespace

History read_history(const std::filesystem::path& folder, const tasks::Task& task) {
  train::History logged = train::read_history(folder, kAllSteps, task.figures());
  for (train::ValidationPoint& point : logged.validations) {
    tasks::complete(point.figures, task.figures());
  }
  const std::int64_t peak = logged.peak_memory_bytes();
  History history{.training = std::move(logged.training),
                  .validation = std::move(logged.validations),
                  .samples = {},
                  .peak_memory_bytes = peak};
  for (const Json& line : train::lines_until(folder / "samples.jsonl", kAllSteps)) {
    history.samples.push_back({.step = line.at("step").get<std::int64_t>(),
                               .prompt = text_of(line, "prompt"),
                               .text = text_of(line, "text")});
  }
  return history;
}

}  // namespace headroom::compare
