#include "result_file.h"

#include <cmath>
#include <limits>

#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::compare {
namespace {

// Thrown for what the file should not hold; the reader names the file.
struct NotAResult {};

// JSON has no word for numbers that are not finite: they are written as null.
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// What is not known is null too.
double measured(const Json& value) {
  const double read = value.is_null() ? 0.0 : value.get<double>();
  return read >= 0.0 ? read : throw NotAResult();
}

std::int64_t count(const Json& value) {
  const bool fits = value.is_null() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
  return !fits ? throw NotAResult() : value.is_null() ? 0 : value.get<std::int64_t>();
}

}  // namespace

Json to_json(const train::TrainResult& r, const tasks::Task& task) {
  const auto known = [](bool is_known, const auto& value) { return is_known ? Json(value) : Json(); };
  Json json = {{"steps", r.steps}, {"train_loss", known(std::isfinite(r.train_loss), r.train_loss)}};
  tasks::add_metrics(r.figures(), task.figures(), json);
  json["tokens_per_second"] = known(r.tokens_per_second > 0.0, r.tokens_per_second);
  json["seconds"] = r.seconds;
  json["peak_memory_bytes"] = known(r.peak_memory_bytes > 0, r.peak_memory_bytes);
  json["parameters"] = r.parameters;
  json["parameters_sha256"] = known(!r.parameters_sha256.empty(), r.parameters_sha256);
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
    r.steps = count(json.at("steps"));
    r.train_loss = number(json.at("train_loss"));
    r.tokens_per_second = measured(json.at("tokens_per_second"));
    r.seconds = measured(json.at("seconds"));
    r.peak_memory_bytes = count(json.at("peak_memory_bytes"));
    r.parameters = count(json.at("parameters"));
    const Json& sum = json.at("parameters_sha256");
    r.parameters_sha256 = sum.is_null() ? "" : sum.get<std::string>();
    run.machine = json.at("machine").get<std::string>();
    run.program = json.value("program", "");
    run.finished = json.value("finished", "");
    run.diverged = json.value("diverged", "");
    for (const Json& point : json.at("validation")) {
      train::ValidationPoint& read = r.validation.emplace_back();
      read.step = count(point.at("step"));
      read.seconds = measured(point.at("seconds"));
      for (const tasks::FigureKind& kind : task.figures()) {
        if (point.contains(kind.name)) {
          read.figures[kind.name] = number(point.at(kind.name));
        }
      }
      tasks::complete(read.figures, task.figures());
    }
    if (!r.validation.empty()) {  // which may hold fewer figures of each point than of the last
      r.validation.back().figures.merge(tasks::read_metrics(json, task.figures()));
    }
    return run;
  } catch (const Json::exception&) {
  } catch (const NotAResult&) {
  }
  user_error("{}: is not the result of a finished run: remove it to train this model again", file.string());
}

}  // namespace headroom::compare
