#include "ledger.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "measure.h"
#include "tools/compare/run/checks.h"
#include "training/train/record/folder.h"

namespace headroom::compare {
namespace {

constexpr const char* kLedgerFormat = "headroom.advice.1";

// A config's text without what the time of a step does not depend on.
std::string speed_key(const config::Config& config) {
  config::Config rest = config;
  const config::TrainOptions defaults;
  rest.train.learning_rate = defaults.learning_rate;
  rest.train.steps = defaults.steps;
  rest.train.warmup_steps = defaults.warmup_steps;
  rest.train.seed = defaults.seed;
  rest.train.evaluate_tokens = defaults.evaluate_tokens;
  Sha256 sum;
  sum.update(config::to_toml(rest));
  return sum.hex().substr(0, 16);
}

double positive(const Json& json, const char* key) {
  const double number = json.at(key).get<double>();
  if (!std::isfinite(number) || number < 0.0) {
    throw Json::other_error::create(501, key, nullptr);
  }
  return number;
}

// In what two requests differ: "the budget is 60 s there, 90 s here"; empty: in nothing.
std::string request_difference(const Json& there, const Json& here) {
  const std::string text = there.at("config").get<std::string>();
  if (std::string difference = first_difference(config::parse_config(text, "the recorded config"),
                                                config::parse_config(here.at("config").get<std::string>(), "advise"));
      !difference.empty()) {
    return difference;
  }
  for (const auto& [key, value] : here.items()) {
    if (key != "config" && there.at(key) != value) {
      return fmt::format("{} is {} there, {} here", key, to_json_line(there.at(key)), to_json_line(value));
    }
  }
  return "";
}

}  // namespace

Ledger::Ledger(const AdviseRequest& request, const config::Config& asked)
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

Measured Ledger::measure(const config::Config& config, double seconds) {
  const std::string key = speed_key(config);
  if (const auto found = measured_.find(key); found != measured_.end()) {
    return found->second;
  }
  const auto start = std::chrono::steady_clock::now();
  measured_[key] = measure_ ? measure_(config) : measure_steps(config, cache_, seconds);
  spend(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return measured_[key];
}

void Ledger::spend(double seconds) {
  spent_ += seconds;
  write();
}

void Ledger::read() {
  const Json json = parse_json(read_text_file(file_), file_.string());
  std::string difference;
  try {
    if (json.at("format") != kLedgerFormat) {
      throw Json::other_error::create(501, "format", nullptr);
    }
    difference = request_difference(json.at("request"), request_);
    spent_ = positive(json, "spent_seconds");
    for (const auto& [key, entry] : json.at("measured").items()) {
      measured_[key] = {.step_seconds = positive(entry, "step_seconds"),
                        .start_seconds = positive(entry, "start_seconds")};
    }
  } catch (const Json::exception&) {
    user_error("{}: is not what advise writes: remove it to begin again", file_.string());
  }
  if (!difference.empty()) {
    user_error("advise: --out: {} holds the advice on another request ({}): choose another folder or remove it",
               file_.parent_path().string(), difference);
  }
}

void Ledger::write() const {
  Json measured = Json::object();
  for (const auto& [key, entry] : measured_) {
    measured[key] = {{"step_seconds", entry.step_seconds}, {"start_seconds", entry.start_seconds}};
  }
  write_text_file(file_, to_json_line({{"format", kLedgerFormat},
                                       {"request", request_},
                                       {"spent_seconds", spent_},
                                       {"measured", std::move(measured)}}) +
                             "\n");
}

}  // namespace headroom::compare
