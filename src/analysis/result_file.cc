#include "result_file.h"

#include <limits>

#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::analysis {
namespace {

// JSON has no word for numbers that are not finite: they are written as null.
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

Json to_json(const train::TrainResult& r, const tasks::Task& task) {
  Json json = {{"steps", r.steps}, {"train_loss", r.train_loss}};
  tasks::add_metrics(r.figures(), task.figures(), json);
  json["tokens_per_second"] = r.tokens_per_second;
  json["seconds"] = r.seconds;
  json["peak_memory_bytes"] = r.peak_memory_bytes;
  json["parameters"] = r.parameters;
  json["parameters_sha256"] = r.parameters_sha256;
  return json;
}

void write_result(const TrainedRun& run, const tasks::Task& task, const std::filesystem::path& file) {
  Json json = to_json(run.result, task);
  json["machine"] = run.machine;
  json["program"] = run.program;
  json["finished"] = run.finished;
  if (!run.diverged.empty()) {
    json["diverged"] = run.diverged;
  }
  json["validation"] = Json::array();
  for (const train::ValidationPoint& point : run.result.validation) {
    Json line = {{"step", point.step}, {"seconds", point.seconds}};
    line.update(Json(point.figures));
    json["validation"].push_back(std::move(line));
  }
  write_text_file(file, to_json_line(json) + "\n");
}

TrainedRun read_result(const std::filesystem::path& file, const tasks::Task& task) {
  const Json json = parse_json(read_text_file(file), file.string());
  try {
    TrainedRun run;
    train::TrainResult& r = run.result;
    r.steps = json.at("steps").get<std::int64_t>();
    r.train_loss = number(json.at("train_loss"));
    r.tokens_per_second = number(json.at("tokens_per_second"));
    r.seconds = number(json.at("seconds"));
    r.peak_memory_bytes = json.at("peak_memory_bytes").get<std::int64_t>();
    r.parameters = json.at("parameters").get<std::int64_t>();
    r.parameters_sha256 = json.at("parameters_sha256").get<std::string>();
    run.machine = json.at("machine").get<std::string>();
    run.program = json.value("program", "");
    run.finished = json.value("finished", "");
    run.diverged = json.value("diverged", "");
    for (const Json& point : json.at("validation")) {
      train::ValidationPoint& read = r.validation.emplace_back();
      read.step = point.at("step").get<std::int64_t>();
      read.seconds = number(point.at("seconds"));
      for (const tasks::FigureKind& kind : task.figures()) {
        if (point.contains(kind.name)) {
          read.figures[kind.name] = number(point.at(kind.name));
        }
      }
      task.complete(read.figures);
    }
    if (!r.validation.empty()) {  // which may hold fewer figures of each point than of the last
      r.validation.back().figures.merge(tasks::read_metrics(json, task.figures()));
    }
    return run;
  } catch (const Json::exception&) {
    misuse("{}: is not the result of a finished run: remove it to train this model again", file.string());
  }
}

}  // namespace headroom::analysis
