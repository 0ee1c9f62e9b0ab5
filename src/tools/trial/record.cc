#include "record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/compute.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/formatting.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/run/execution.h"
#include "tools/compare/run/run_folder.h"

namespace headroom::trial {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "headroom.record.1";
constexpr std::size_t kLogPoints = 20;

// Returns what the bits of trained parameters depend on besides the config: vendor and vector instructions of the CPU,
// threads and torch.
std::string kind_of_cpu(const config::Config& config) {
  const std::int64_t threads = config.train.threads == 0 ? own_cores() : config.train.threads;
  return fmt::format("{} {}; {}; torch {}", cpu_vendor(), fmt::join(cpu_features(), " "), counted(threads, "thread"),
                     TORCH_VERSION);
}

std::vector<LogPoint> brief_log(const compare::RunLog& log) {
  std::vector<LogPoint> points;
  const std::size_t all = log.training.size(), shown = std::min(all, kLogPoints);
  for (std::size_t i = 1; i <= shown; ++i) {
    const train::TrainingPoint& point = log.training[i * all / shown - 1];
    points.push_back({point.step, point.seconds, point.loss});
  }
  return points;
}

std::int64_t step_tokens(const config::Config& config) {
  return config.whole_sequences() * config.model.context_length;
}

RecordRun run_of(const compare::TrainedRun& trained, const config::Config& config, const std::string& what) {
  if (trained.result.interrupted) {
    throw InterruptedError(what + ": interrupted; repeat the command to continue");
  }
  if (!trained.diverged.empty()) {
    fail("{}: seed {} diverged: {}", what, trained.seed, trained.diverged);
  }
  return {.seed = trained.seed,
          .steps = trained.result.steps,
          .tokens = trained.result.steps * step_tokens(config),
          .seconds = trained.result.seconds,
          .bits_per_byte = tasks::figure(trained.result.figures(), "bits_per_byte"),
          .parameters_sha256 = trained.result.parameters_sha256,
          .log = brief_log(trained.log)};
}

void check_config(const config::Config& config, const std::string& name, Track track) {
  if (config.model.kind != config::ModelKind::language_model || !config.data.train.empty() ||
      config.data.synthetic != config::Synthetic::none) {
    user_error("record: {}: must be a language model on the built-in corpus (data.train = [], no data.synthetic)",
               name);
  }
  if (!config.data.validation.empty() || config.data.generator != config::Generator::none ||
      config.train.evaluate_tokens > 0 || !config.tokenizer.model.empty()) {
    user_error(
        "record: {}: must be measured on the whole validation text of the built-in corpus with a tokenizer of its own "
        "(data.validation = [], data.generator = \"none\", train.evaluate_tokens = 0, tokenizer.model = \"\")",
        name);
  }
  if (!models::resolve(config.train.device).is_cpu()) {
    user_error("record: {}: must be trained on the CPU, because its kind is recorded; set train.device=cpu", name);
  }
  if (config.train.seconds > 0.0) {
    user_error("record: {}: train.seconds is {}, but another machine would train more or fewer steps; set train.steps",
               name, config.train.seconds);
  }
  if (!config.train.start_from.empty() || !config.train.teacher.empty()) {
    user_error("record: {}: must start from random parameters, without train.start_from and train.teacher", name);
  }
  if (const std::int64_t step = step_tokens(config);
      track == Track::tokens && config.train.steps > kMostTokens / step) {
    user_error("record: {}: trains on more than {} tokens, {} of {} steps; lower train.steps", name, kMostTokens, step,
               config.train.steps);
  }
}

// Returns the identity of the config's data on this machine. Throws UserError if a run in the folder was trained on
// other data.
train::RunData data_for(const config::Config& config, std::int64_t seeds, const RecordRequest& request) {
  const compare::Plan plan{.models = {{"record", {{.values = {}, .config = config, .folder = request.folder}}}},
                           .variations = {},
                           .seeds = seeds,
                           .command = "record"};
  return compare::check_runs(plan, {}, tasks::task_for(config, "record"), request.cache);
}

// Throws UserError if the run was trained with another CPU, other threads or another precision than the config's here.
void check_machine(const compare::TrainedRun& trained, const config::Config& config, const fs::path& folder) {
  const std::string here = compare::describe_machine(config.train);
  if (trained.origin.machine != here) {
    user_error("{}: holds a run of another machine or precision ({}; here {}); choose another folder", folder.string(),
               trained.origin.machine, here);
  }
}

// Trains the config with its first seeds, or reads the runs that have finished.
std::vector<compare::TrainedRun> train_seeds(const config::Config& config, std::int64_t seeds, const char* what,
                                             const RecordRequest& request) {
  compare::Runs runs(tasks::task_for(config, what), request.cache);
  const compare::PlannedRun first{.values = {}, .config = config, .folder = request.folder};
  std::vector<compare::TrainedRun> trained;
  for (std::int64_t i = 0; i < seeds; ++i) {
    const compare::PlannedRun run = compare::with_seed(first, i);
    compare::check_folder(run);
    const compare::TrainedRun& found =
        runs.train(run, fmt::format("{}, seed {} ({}/{})", what, run.config.train.seed, i + 1, seeds));
    check_machine(found, config, run.folder);
    trained.push_back(found);
    if (found.result.interrupted) {
      break;
    }
  }
  return trained;
}

// Whether the folder has nothing left to train, so that nothing would be verified.
bool are_finished(const config::Config& config, std::int64_t seeds, const fs::path& folder) {
  bool all = true;
  for (std::int64_t i = 0; i < seeds; ++i) {
    all = all && compare::is_finished(compare::with_seed({.values = {}, .config = config, .folder = folder}, i));
  }
  return all;
}

// Describes the first run that misses the target; empty if all reach it.
std::string missed_target(const Record& record) {
  for (const RecordRun& run : record.runs) {
    if (record.track == Track::time && !(run.bits_per_byte <= record.target)) {
      return fmt::format("{}: seed {} reaches {:.4f} bits per byte, not the target of {}", record.name, run.seed,
                         run.bits_per_byte, record.target);
    }
  }
  return "";
}

double figure_of(const Record& record, const RecordRun& run) {
  return record.track == Track::time ? run.seconds : run.bits_per_byte;
}

}  // namespace

Record make_record(const compare::NamedConfig& named, Track track, double target, const RecordRequest& request) {
  check_config(named.config, named.name, track);
  Record record{.track = track, .target = target, .name = named.name, .config = config::to_toml(named.config)};
  record.kind = kind_of_cpu(named.config);
  record.training_data = data_for(named.config, request.seeds, request).training;
  for (const compare::TrainedRun& trained : train_seeds(named.config, request.seeds, "record", request)) {
    record.runs.push_back(run_of(trained, named.config, "record"));
    record.machine = trained.origin.machine;
  }
  record.program = compare::program_version();
  record.finished = compare::utc_now();
  if (const std::string missed = missed_target(record); !missed.empty()) {
    fail("record make: {}", missed);
  }
  return record;
}

Json to_json(const Record& record) {
  Json json = {{"format", kFormat},
               {"target", record.track == Track::time ? Json(record.target) : Json()},
               {"name", record.name},
               {"config", record.config},
               {"machine", record.machine},
               {"kind", record.kind},
               {"training_data", record.training_data},
               {"program", record.program},
               {"finished", record.finished},
               {"runs", Json::array()}};
  json["track"] = config::name_of(record.track);
  for (const RecordRun& run : record.runs) {
    const std::vector<Json> log = transformed(run.log, [](const LogPoint& point) -> Json {
      return {{"step", point.step}, {"seconds", point.seconds}, {"loss", point.loss}};
    });
    json["runs"].push_back({{"seed", run.seed},
                            {"steps", run.steps},
                            {"tokens", run.tokens},
                            {"seconds", run.seconds},
                            {"bits_per_byte", run.bits_per_byte},
                            {"parameters_sha256", run.parameters_sha256},
                            {"log", log}});
  }
  return json;
}

namespace {

Record record_from(const Json& json) {
  Record record;
  const auto track = config::value_named<Track>(json.at("track").get<std::string>());
  if (json.at("format") != kFormat || !track || json.at("runs").empty()) {
    throw Json::other_error::create(501, "format", nullptr);
  }
  record.track = *track;
  record.target = record.track == Track::time ? json.at("target").get<double>() : 0.0;
  for (const auto& [key, text] :
       {std::pair("name", &record.name), std::pair("config", &record.config), std::pair("machine", &record.machine),
        std::pair("kind", &record.kind), std::pair("training_data", &record.training_data),
        std::pair("program", &record.program), std::pair("finished", &record.finished)}) {
    *text = json.at(key).get<std::string>();
  }
  for (const Json& run : json.at("runs")) {
    record.runs.push_back({.seed = run.at("seed").get<std::int64_t>(),
                           .steps = run.at("steps").get<std::int64_t>(),
                           .tokens = run.at("tokens").get<std::int64_t>(),
                           .seconds = run.at("seconds").get<double>(),
                           .bits_per_byte = run.at("bits_per_byte").get<double>(),
                           .parameters_sha256 = run.at("parameters_sha256").get<std::string>(),
                           .log = {}});
    for (const Json& point : run.at("log")) {
      record.runs.back().log.push_back(
          {point.at("step").get<std::int64_t>(), point.at("seconds").get<double>(), point.at("loss").get<double>()});
    }
  }
  return record;
}

}  // namespace

Record read_record(const fs::path& file) {
  const Json json = parse_json(read_text_file(file), file.string());
  try {
    return record_from(json);
  } catch (const Json::exception&) {
    user_error("{}: is not a valid record; write one with `headroom record make`", file.string());
  }
}

namespace {

// Returns the record's config, with the threads of the request if it sets them.
config::Config config_of(const Record& record, const std::string& file, const RecordRequest& request) {
  config::Config config = config::parse_config(record.config, file);
  config.train.threads = request.threads > 0 ? request.threads : config.train.threads;
  config::check(config, file);
  check_config(config, file, record.track);
  if (const std::string missed = missed_target(record); !missed.empty()) {
    user_error("{}: is not a valid record: {}", file, missed);
  }
  return config;
}

// Describes the first difference from the recorded run; empty if the run is verified.
std::string difference(const RecordRun& now, const RecordRun& before, bool same_kind) {
  constexpr double kRounding = 0.01, kPrinting = 1e-6;
  for (const auto& [what, is, was] : {std::tuple("seed", now.seed, before.seed),
                                      {"steps", now.steps, before.steps},
                                      {"tokens", now.tokens, before.tokens}}) {
    if (is != was) {
      return fmt::format("{} is {}, {} is recorded", what, is, was);
    }
  }
  if (same_kind && now.parameters_sha256 != before.parameters_sha256) {
    return "other parameters on this kind of CPU";
  }
  if (std::abs(now.bits_per_byte - before.bits_per_byte) <=
      (same_kind ? kPrinting : kRounding) * before.bits_per_byte) {
    return "";
  }
  return same_kind ? "the recorded parameters, but other figures than recorded"
                   : "more than 1% from the recorded bits per byte, on another kind of CPU";
}

}  // namespace

Verification verify_record(const Record& record, const std::string& file, const RecordRequest& request) {
  const config::Config config = config_of(record, file, request);
  Verification found{.same_kind = kind_of_cpu(config) == record.kind};
  const std::int64_t seeds = request.seeds;
  if (seeds > std::ssize(record.runs)) {
    user_error("record verify: --seeds: must be at most {}, the runs of {}, got {}", record.runs.size(), file, seeds);
  }
  if (are_finished(config, seeds, request.folder)) {
    user_error("record verify: --runs: {} holds finished runs of this record; choose another folder or remove it",
               request.folder.string());
  }
  if (const std::string here = data_for(config, seeds, request).training; here != record.training_data) {
    user_error("{}: was trained on {}, but the data here are {}", file, record.training_data, here);
  }
  std::string differs;  // the first difference that was found
  for (const compare::TrainedRun& trained : train_seeds(config, seeds, "verify", request)) {
    const RecordRun& before = record.runs[found.runs.size()];
    const RecordRun& now = found.runs.emplace_back(run_of(trained, config, "record verify"));
    differs = differs.empty() ? difference(now, before, found.same_kind) : differs;
  }
  found.verified = differs.empty();
  const std::string result = !found.verified   ? differs
                             : found.same_kind ? "the recorded parameters on this kind of CPU"
                                               : "within 1% of the recorded bits per byte on another kind of CPU";
  found.sentence = fmt::format("{}: {} of {}, {}", found.verified ? "verified" : "not verified",
                               counted(found.runs.size(), "run"), printable(record.name), result);
  return found;
}

Succession compare_records(const Record& next, const Record& before) {
  constexpr double kLevel = 0.01;
  if (next.track != before.track || next.target != before.target) {
    user_error("record: {} and {} are of different tracks or targets", next.name, before.name);
  }
  if (next.training_data != before.training_data) {
    user_error("record: {} and {} were trained on different data ({} and {})", next.name, before.name,
               next.training_data, before.training_data);
  }
  if (next.track == Track::time && next.machine != before.machine) {
    user_error("record: {} and {} were timed on different machines ({} and {})", next.name, before.name, next.machine,
               before.machine);
  }
  if (next.runs.size() < 2 || before.runs.size() < 2) {
    user_error("record: a comparison needs at least two seeds of each record, got {} and {}", next.runs.size(),
               before.runs.size());
  }
  const auto figures = [](const Record& record) {
    return transformed(record.runs, [&](const RecordRun& run) { return figure_of(record, run); });
  };
  const std::vector<double> now = figures(next), then = figures(before);
  const auto error = [](const std::vector<double>& values) {  // variance of the mean
    const double deviation = compare::sample_deviation(values);
    return deviation * deviation / static_cast<double>(values.size());
  };
  const double a = error(now), b = error(then);
  Succession result{.difference = compare::mean(now) - compare::mean(then)};
  if (a + b > 0.0) {
    const double degrees = (a + b) * (a + b) /
                           (a * a / static_cast<double>(now.size() - 1) + b * b / static_cast<double>(then.size() - 1));
    result.p = compare::student_probability(result.difference / std::sqrt(a + b), static_cast<int>(degrees));
  } else {
    result.p = result.difference < 0.0 ? 0.0 : 1.0;
  }
  result.replaces = result.p < kLevel;
  result.sentence = fmt::format("{} {} {}: {} {:+.4g} (p = {:.2g}, Welch's t-test).", printable(next.name),
                                result.replaces ? "replaces" : "does not replace", printable(before.name),
                                next.track == Track::time ? "seconds" : "bits per byte", result.difference, result.p);
  return result;
}

}  // namespace headroom::trial
