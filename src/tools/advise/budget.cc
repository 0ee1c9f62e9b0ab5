#include "budget.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/compare/run/checks.h"
#include "training/train/loop/step_time.h"
#include "training/train/record/folder.h"

namespace headroom::advise {

namespace {

constexpr const char* kFormat = "headroom.advice.1";

// A hash of the config without the keys that do not affect the time of a step.
std::string speed_key(const config::Config& config) {
  config::Config rest = config;
  const config::TrainOptions defaults;
  rest.train.learning_rate = defaults.learning_rate;
  rest.train.steps = defaults.steps;
  rest.train.warmup_steps = defaults.warmup_steps;
  rest.train.seed = defaults.seed;
  rest.train.evaluate_tokens = defaults.evaluate_tokens;
  return sha256_of(config::to_toml(rest)).substr(0, 16);
}

double positive(const Json& json, const char* key) {
  const double number = json.at(key).get<double>();
  if (!std::isfinite(number) || number < 0.0) {
    throw Json::other_error::create(501, key, nullptr);
  }
  return number;
}

// Describes how two requests differ: "budget_seconds is 60.0 there, 90.0 here". Empty if they are equal. Before the
// first pilot run only the config counts: the measured speeds depend on nothing else.
std::string request_difference(const Json& there, const Json& here, bool has_pilot_runs) {
  const std::string text = there.at("config").get<std::string>();
  if (std::string difference =
          compare::first_difference(config::parse_config(text, "the recorded config"),
                                    config::parse_config(here.at("config").get<std::string>(), "advise"));
      !difference.empty()) {
    return difference;
  }
  for (const auto& [key, value] : here.items()) {
    if (key != "config" && there.at(key) != value && has_pilot_runs) {
      return fmt::format("{} is {} there, {} here", key, to_json_line(there.at(key)), to_json_line(value));
    }
  }
  return "";
}

}  // namespace

Budget::Budget(const AdviseRequest& request, const config::Config& asked)
    : file_(request.out / train::kAdviceFile),
      cache_(request.cache),
      measure_(request.measure),
      request_({{"config", config::to_toml(asked)},
                {"budget_seconds", request.budget},
                {"variants", request.variants},
                {"heads", request.heads},
                {"keep", request.keep}}) {
  if (std::filesystem::exists(file_)) {
    read();
  }
}

train::StepTime Budget::measure(const config::Config& config, double seconds) {
  const std::string key = speed_key(config);
  if (const auto found = measured_.find(key); found != measured_.end()) {
    return found->second;
  }
  const auto start = std::chrono::steady_clock::now();
  measured_[key] = measure_ ? measure_(config) : train::measure_step_time(config, cache_, seconds, "advise");
  spend(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return measured_[key];
}

void Budget::spend(double seconds) {
  spent_ += seconds;
  write();
}

void Budget::read() {
  const Json json = parse_json(read_text_file(file_), file_.string());
  std::string difference;
  try {
    if (json.at("format") != kFormat) {
      throw Json::other_error::create(501, "format", nullptr);
    }
    difference =
        request_difference(json.at("request"), request_, std::filesystem::exists(file_.parent_path() / kPilotFolder));
    spent_ = positive(json, "spent_seconds");
    for (const auto& [key, entry] : json.at("measured").items()) {
      measured_[key] = {.step_seconds = positive(entry, "step_seconds"),
                        .start_seconds = positive(entry, "start_seconds")};
    }
  } catch (const Json::exception&) {
    user_error("{}: is not a valid record of advise; remove it to start again", file_.string());
  }
  if (!difference.empty()) {
    user_error("advise: --out: {} holds advice on another request ({}); choose another folder or remove it",
               file_.parent_path().string(), difference);
  }
}

void Budget::write() const {
  Json measured = Json::object();
  for (const auto& [key, entry] : measured_) {
    measured[key] = {{"step_seconds", entry.step_seconds}, {"start_seconds", entry.start_seconds}};
  }
  write_text_file(
      file_,
      to_json_line(
          {{"format", kFormat}, {"request", request_}, {"spent_seconds", spent_}, {"measured", std::move(measured)}}) +
          "\n");
}

}  // namespace headroom::advise
