#include "history.h"

#include <fstream>
#include <string>

#include "headroom/core/error.h"

namespace headroom::compare {
namespace {

double number_at(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_number() ? line.at(key).get<double>() : 0.0;
}

std::string text_of(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_string() ? line.at(key).get<std::string>() : "";
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

bool is_of_step(const Json& line) {
  return line.is_object() && line.contains("step") && line.at("step").is_number_integer() &&
         line.at("step").get<std::int64_t>() >= 0;
}

// Calls `read` with each line that tells something of a step.
template <class Read>
void read_lines(const std::filesystem::path& path, const Read& read) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    try {
      const Json json = parse_json(line, path.string());
      if (is_of_step(json)) {
        read(json);
      }
    } catch (const MisuseError&) {  // torn
    }
  }
}

void read_line(const Json& line, const tasks::Task& task, History& history) {
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
    tasks::complete(point.figures, task.figures());
  }
  if (line.contains("experts") && line.at("experts").is_object()) {
    history.experts.push_back(expert_use(line));
  }
}

}  // namespace

History read_history(const std::filesystem::path& folder, const tasks::Task& task) {
  History history;
  read_lines(folder / "metrics.jsonl", [&](const Json& line) { read_line(line, task, history); });
  read_lines(folder / "samples.jsonl", [&](const Json& line) {
    history.samples.push_back({.step = line.at("step").get<std::int64_t>(),
                               .prompt = text_of(line, "prompt"),
                               .text = text_of(line, "text")});
  });
  return history;
}

}  // namespace headroom::compare
