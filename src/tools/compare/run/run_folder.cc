#include "run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <string_view>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "tools/compare/compare.h"
#include "training/cost/cost.h"
#include "training/train/loop/history.h"

namespace headroom::compare {

extern const char* const kBuildCommit;  // written by cmake/commit.cmake in every build; empty outside a repository

namespace {

constexpr std::int64_t kAllSteps = std::numeric_limits<std::int64_t>::max();

// Thrown for invalid content; the caller names the file.
struct InvalidResult {};

// JSON cannot represent numbers that are not finite: they are written as null.
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Measurements and counts that are unknown are null too.
double measured(const Json& value) {
  const double read = value.is_null() ? 0.0 : value.get<double>();
  return read >= 0.0 ? read : throw InvalidResult();
}

std::int64_t count(const Json& value) {
  const bool fits = value.is_null() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
  return !fits ? throw InvalidResult() : value.is_null() ? 0 : value.get<std::int64_t>();
}

train::TrainResult result_from(const Json& json, const tasks::Task& task) {
  train::TrainResult r;
  r.steps = count(json.at("steps"));
  r.train_loss = number(json.at("train_loss"));
  r.tokens_per_second = measured(json.at("tokens_per_second"));
  r.seconds = measured(json.at("seconds"));
  r.peak_memory_bytes = count(json.at("peak_memory_bytes"));
  r.parameters = count(json.at("parameters"));
  const Json& sum = json.at("parameters_sha256");
  r.parameters_sha256 = sum.is_null() ? "" : sum.get<std::string>();
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
  if (!r.validation.empty()) {  // the last point has figures that the list of points may lack
    r.validation.back().figures.merge(tasks::read_metrics(json, task.figures()));
  }
  return r;
}

std::string text_of(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_string() ? line.at(key).get<std::string>() : "";
}

}  // namespace

config::Config read_run_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.toml";
  config::Config config = config::parse_config(read_text_file(file), file.string());
  config::check(config, file.string());
  return config;
}

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

void write_finished_run(const TrainedRun& run, const tasks::Task& task, const std::filesystem::path& folder) {
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
  write_text_file(folder / kResultFile, to_json_line(json) + "\n");
}

TrainedRun read_finished_run(const std::filesystem::path& folder, const config::Config& config,
                             const tasks::Task& task) {
  const std::filesystem::path file = folder / kResultFile;
  const Json json = parse_json(read_text_file(file), file.string());
  try {
    return {.seed = config.train.seed,
            .result = result_from(json, task),
            .log = read_run_log(folder, task),
            .machine = json.at("machine").get<std::string>(),
            .program = json.value("program", ""),
            .finished = json.value("finished", ""),
            .diverged = json.value("diverged", "")};
  } catch (const Json::exception&) {
  } catch (const InvalidResult&) {
  }
  user_error("{}: is not the result of a finished run; remove it to train this model again", file.string());
}

TrainedRun read_logged_run(const std::filesystem::path& folder, const config::Config& config, const tasks::Task& task) {
  TrainedRun run{.seed = config.train.seed, .result = {}, .log = read_run_log(folder, task)};
  train::TrainResult& result = run.result;
  result.validation = run.log.validation;
  result.parameters = cost::count_parameters(config.model);
  if (!run.log.training.empty()) {
    const train::TrainingPoint& last = run.log.training.back();
    result.steps = last.step;
    result.train_loss = last.loss;
    result.seconds = last.seconds;
    result.tokens_per_second = last.seconds > 0.0 ? static_cast<double>(last.tokens) / last.seconds : 0.0;
  }
  result.peak_memory_bytes = run.log.peak_memory_bytes;
  return run;
}

RunLog read_run_log(const std::filesystem::path& folder, const tasks::Task& task) {
  train::History logged = train::read_history(folder, kAllSteps, task.figures());
  for (train::ValidationPoint& point : logged.validations) {
    tasks::complete(point.figures, task.figures());
  }
  const std::int64_t peak = logged.peak_memory_bytes();
  RunLog log{.training = std::move(logged.training),
             .validation = std::move(logged.validations),
             .samples = {},
             .peak_memory_bytes = peak};
  for (const Json& line : train::lines_until(folder / "samples.jsonl", kAllSteps)) {
    log.samples.push_back({.step = line.at("step").get<std::int64_t>(),
                           .prompt = text_of(line, "prompt"),
                           .text = text_of(line, "text")});
  }
  return log;
}

std::string program_version() {
  const std::string_view commit = kBuildCommit;
  return fmt::format("headroom {}{}{}", HEADROOM_VERSION, commit.empty() ? "" : ", commit ", commit);
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
}

}  // namespace headroom::compare
