#include "history.h"

#include <fstream>
#include <string>

namespace headroom::analysis {
namespace {

double number_at(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_number() ? line.at(key).get<double>() : 0.0;
}

ExpertUse expert_use(const Json& line) {
  ExpertUse use{.step = line.at("step").get<std::int64_t>()};
  for (const auto& [layer, balance] : line.at("experts").items()) {
    if (balance.is_object() && balance.contains("entropy") && balance.at("entropy").is_number()) {
      use.evenness.push_back(balance.at("entropy").get<double>());
    }
  }
  return use;
}

void read_line(const Json& line, const tasks::Task& task, History& history) {
  if (!line.is_object() || !line.contains("step") || !line.at("step").is_number_integer()) {
    return;
  }
  const std::int64_t step = line.at("step").get<std::int64_t>();
  if (line.contains("loss") && line.at("loss").is_number()) {
    history.training.push_back({.step = step,
                                .seconds = number_at(line, "seconds"),
                                .loss = line.at("loss").get<double>(),
                                .tokens = number_at(line, "tokens")});
  }
  if (line.contains(task.figures().front().metric)) {
    train::ValidationPoint& point = history.validation.emplace_back();
    point.step = step;
    point.seconds = number_at(line, "seconds");
    point.figures = tasks::read_metrics(line, task.figures());
    task.complete(point.figures);
  }
  if (line.contains("experts") && line.at("experts").is_object()) {
    history.experts.push_back(expert_use(line));
  }
}

}  // namespace

History read_history(const std::filesystem::path& folder, const tasks::Task& task) {
  History history;
  std::ifstream file(folder / "metrics.jsonl", std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_discarded()) {
      read_line(json, task, history);
    }
  }
  return history;
}

}  // namespace headroom::analysis
