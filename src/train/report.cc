#include "report.h"

#include <cmath>
#include <utility>

namespace headroom::train {
namespace {

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Numbers of a metrics line as TensorBoard scalars, nested ones by path ("experts/layer0.attention.source/most").
void collect(const Json& value, const std::string& tag, std::vector<std::pair<std::string, double>>& out) {
  if (value.is_number()) {
    out.emplace_back(tag, value.get<double>());
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      collect(inner, tag + "/" + key, out);
    }
  }
}

}  // namespace

Report::Report(const Place& place, const std::vector<tasks::FigureKind>& kinds)
    : kinds_(kinds),
      step_gflop_(place.step_gflop),
      machine_gflops_(place.machine_gflops),
      metrics_(place.folder / "metrics.jsonl", place.step),
      events_(place.folder, place.step + 1),
      progress_(place.title, place.steps, "step") {
  progress_.start_at(place.step);
}

void Report::progress(const TrainState& state, const StepOutcome& outcome) {
  note_ = fmt::format("loss {:.3f}, {}", outcome.loss, speed(state.interval));
  progress_.update(state.step, note_);
}

std::string Report::speed(const Interval& interval) const {
  const std::string tokens = format_count(per_second(interval.tokens, interval.seconds)) + " tokens/s";
  const double gflops = step_gflop_ * per_second(interval.steps, interval.seconds);
  return gflops > 0.0 ? fmt::format("{}, {:.3g} GFLOP/s ({:.0f}% of the machine's)", tokens, gflops,
                                    100.0 * gflops / machine_gflops_)
                      : tokens;
}

void Report::note(const TrainState& state, std::string_view what) {
  progress_.update(state.step, what);
}

void Report::log_interval(TrainState& state, const StepOutcome& outcome) {
  const Interval interval = std::exchange(state.interval, {});
  const auto steps = static_cast<double>(interval.steps);
  Json line = {{"step", state.step},
               {"loss", interval.loss / steps},
               {"tokens", state.tokens},
               {"tokens_per_second", per_second(interval.tokens, interval.seconds)},
               {"learning_rate", outcome.learning_rate},
               {"gradient_norm", outcome.gradient_norm},
               {"seconds", state.seconds}};
  if (interval.regulariser != 0.0) {
    line["regulariser"] = interval.regulariser / steps;
  }
  write(state.step, "train", std::move(line));
}

void Report::log_validation(const TrainState& state, const tasks::Figures& figures, const nn::ExpertUsage& usage) {
  Json line = {{"step", state.step}};
  tasks::add_metrics(figures, kinds_, line);
  line["tokens"] = state.tokens;
  line["seconds"] = state.seconds;
  for (const auto& [name, counts] : usage) {
    const Balance balance = balance_of(counts);
    line["experts"][name] = {{"most", balance.most}, {"least", balance.least}, {"entropy", balance.entropy}};
  }
  write(state.step, "validation", std::move(line));
  progress_.update(state.step, note_);  // no longer "validating"
}

void Report::write(std::int64_t step, const char* group, Json line) {
  std::vector<std::pair<std::string, double>> named;
  for (const auto& [key, value] : line.items()) {
    if (key != "step") {
      collect(value, std::string(group) + "/" + key, named);
    }
  }
  std::vector<Scalar> scalars;
  for (const auto& [tag, value] : named) {
    scalars.push_back({tag, value});
  }
  events_.write(step, scalars);
  metrics_.append(std::move(line));
}

double Report::train_loss() const {
  for (auto line = metrics_.history().rbegin(); line != metrics_.history().rend(); ++line) {
    if (line->contains("loss") && line->at("loss").is_number()) {
      return line->at("loss").get<double>();
    }
  }
  return NAN;
}

double Report::first_loss() const {
  for (const Json& line : metrics_.history()) {
    if (line.contains("loss") && line.at("loss").is_number()) {
      return line.at("loss").get<double>();
    }
  }
  return NAN;
}

std::vector<ValidationPoint> Report::validations() const {
  std::vector<ValidationPoint> points;
  for (const Json& line : metrics_.history()) {
    if (line.contains(kinds_.front().metric)) {
      const bool timed = line.contains("seconds") && line.at("seconds").is_number();
      points.push_back({.step = line.at("step").get<std::int64_t>(),
                        .seconds = timed ? line.at("seconds").get<double>() : 0.0,
                        .figures = tasks::read_metrics(line, kinds_)});
    }
  }
  return points;
}

std::string remark_on(double first_loss, double last_loss, double guessing) {
  constexpr double kChance = 1.01;  // of two means over a few batches
  constexpr double kFar = 1.5;
  if (last_loss > kChance * first_loss && last_loss > kFar * guessing) {
    return fmt::format(
        "the run diverged: its last training loss {:.4g} is above its first, {:.4g}, and far above {:.4g}, that of "
        "guessing; try a lower train.learning_rate, more train.warmup_steps or a smaller train.clip_norm",
        last_loss, first_loss, guessing);
  }
  if (last_loss > kChance * guessing) {
    return fmt::format(
        "the run has learnt nothing yet: its last training loss {:.4g} is above {:.4g}, that of guessing", last_loss,
        guessing);
  }
  return "";
}

Balance balance_of(const at::Tensor& counts) {
  const at::Tensor count = counts.to(at::kDouble).reshape({-1});
  const double total = count.sum().item<double>();
  if (total == 0.0) {
    return {};
  }
  const at::Tensor share = count / total;
  const double entropy = -at::xlogy(share, share).sum().item<double>();
  const double most_even = std::log(static_cast<double>(count.numel()));
  return {.most = share.max().item<double>(),
          .least = share.min().item<double>(),
          .entropy = most_even > 0.0 ? entropy / most_even : 1.0};
}

}  // namespace headroom::train
