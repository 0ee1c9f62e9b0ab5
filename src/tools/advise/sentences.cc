#include "sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fit.h"
#include "foundation/core/text/format.h"
#include "halving.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/markup.h"

namespace headroom::compare {
namespace {

std::string bits(double value) {
  return std::isfinite(value) ? fmt::format("{:.3f}", value) : std::string("none");
}

double round_score(const Arm& arm, std::size_t round) {
  return mean(arm.rounds[round].scores);
}

// " With the config's own 0.001 it is 2.769 after 30 steps, where 0.004 has 2.500.": in the last round that both were
// in.
std::string against_own(const Stage& stage) {
  const Arm &own = stage.arms[stage.own], &taken = stage.arms[stage.taken];
  if (stage.own == stage.taken || own.rounds.empty()) {
    return "";
  }
  const std::size_t round = std::min(own.rounds.size(), taken.rounds.size()) - 1;
  const std::string own_score =
      std::isfinite(round_score(own, round)) ? "ends at " + bits(round_score(own, round)) : std::string("diverges");
  return fmt::format(" The config's own, {}, {} after {} steps, where {} has {}.", own.name, own_score,
                     own.rounds[round].steps, taken.name, bits(round_score(taken, round)));
}

std::string model_sentence(const Advice& advice, const Fitting& fitting) {
  const config::ModelOptions& model = advice.config.model;
  const std::string shape =
      fmt::format("n_layers = {}, d_model = {}, d_hidden = {}, {} parameters", model.n_layers, model.d_model,
                  model.mlp.d_hidden, format_count(static_cast<double>(advice.parameters)));
  const double a_parameter = advice.tokens / fitting.macs;
  const std::string fits = fmt::format("{:.2g} tokens for each parameter that a token meets{}", a_parameter,
                                       advice.readings > 2.0 ? ", since a text that is read again teaches less"
                                                             : fmt::format("; about {:.0f} suit a fixed amount of "
                                                                           "computation best",
                                                                           kTokensAParameter));
  if (fitting.size_kept) {
    return fmt::format("Size: the config's own is kept ({}).", shape);
  }
  return fitting.size_factor == 1.0
             ? fmt::format("Size: the config's own suits ({}): {}.", shape, fits)
             : fmt::format("Size: {:.3g} times the config's widths ({}): {}.", fitting.size_factor, shape, fits);
}

std::string batch_sentence(const Advice& advice, const Fitting& fitting) {
  const std::int64_t batch = advice.config.train.batch_size;
  const std::int64_t tokens = batch * advice.config.model.context_length;
  return fmt::format("Batch: {} sequences, {} tokens a step: {}.", batch, tokens,
                     fitting.batch_kept ? "the config's own is kept"
                                        : fmt::format("the smallest of those measured within {:.0f}% of the fastest, "
                                                      "which leaves the most steps",
                                                      100.0 * kLostToBatch));
}

std::string text_sentence(const Advice& advice, const Fitting& fitting) {
  const std::string read = fmt::format("{} tokens read the text of {} {:.2g} times", format_count(advice.tokens),
                                       format_count(fitting.text_tokens), advice.readings);
  const double seconds = advice.tokens / advice.tokens_per_second;
  const std::string dropout =
      advice.dropout_added
          ? fmt::format(", with model.dropout = {}, without which it would be learnt by heart", kDropout)
          : std::string();
  if (advice.readings > 0.95 * kMostReadings) {
    return fmt::format(
        "Text: {}{}; more readings would bring next to nothing: the run ends after {}. More text would be worth more "
        "than more time. The best checkpoint is kept.",
        read, dropout, format_duration(seconds));
  }
  return fmt::format("Text: {}{}{}.", read, dropout,
                     advice.readings > kReadingsWithoutDropout
                         ? "; the best checkpoint is kept, since the validation loss may rise before the end"
                         : "");
}

// How far trials reach.
std::string reach_sentence(const Advice& advice) {
  std::int64_t longest = 0;
  for (const Stage& stage : advice.stages) {
    for (const Arm& arm : stage.arms) {
      longest = arm.rounds.empty() ? longest : std::max(longest, arm.rounds.back().steps);
    }
  }
  return fmt::format(
      "Reach: the longest trials had {} steps, the run has {}: what is best after few steps need not be best after "
      "many; "
      "where the best still moved from round to round, it may move on.",
      longest, advice.config.train.steps);
}

// Where other programs took part of the machine, now more, now less: what was measured beforehand does not hold, and
// values that were to be trained equally long were not. Empty where it was quiet.
std::string quiet_sentence(const Advice& advice) {
  constexpr double kQuiet = 0.7;
  double slowest = std::numeric_limits<double>::infinity(), fastest = 0.0;
  for (const Stage& stage : advice.stages) {
    for (const Arm& arm : stage.arms) {
      for (const Round& round : arm.rounds) {
        for (const TrainedRun& trained : round.trained) {
          const double share = trained.result.tokens_per_second / tokens_per_second(arm);
          slowest = std::min(slowest, share);
          fastest = std::max(fastest, share);
        }
      }
    }
  }
  if (slowest >= kQuiet) {
    return "";
  }
  return fmt::format(
      "Noise: trials ran at {:.0f} to {:.0f}% of the speeds that were measured beforehand, so this machine was not "
      "quiet: values of different speed were not trained equally long, and the run may take longer than its budget. On "
      "a quiet machine the same question may have another answer.",
      100.0 * slowest, 100.0 * fastest);
}

}  // namespace

double tokens_per_second(const Arm& arm) {
  const auto tokens = static_cast<double>(arm.config.train.batch_size * arm.config.model.context_length);
  return tokens / arm.step_seconds;
}

std::string score_text(const Round& round) {
  const double middle = mean(round.scores);
  if (!std::isfinite(middle)) {
    return "diverged";
  }
  const double deviation = sample_deviation(round.scores);
  return deviation > 0.0 ? with_deviation(middle, deviation) : fmt::format("{:.3f}", middle);
}

std::string stage_sentence(const Stage& stage, std::string_view preference) {
  const Arm& taken = stage.arms[stage.taken];
  const Round& last = taken.rounds.back();
  std::string text =
      fmt::format("{}: {}, {} bits per byte after {} steps{}.", stage.title, taken.name, score_text(last), last.steps,
                  last.scores.size() > 1 ? fmt::format(" ({} seeds)", last.scores.size()) : "");
  text += against_own(stage);
  if (stage.open) {
    text += fmt::format(" {} seeds leave open which of the last two is better: {}.", kSeedsOfClose, preference);
  }
  const bool numbers =
      std::all_of(stage.arms.begin(), stage.arms.end(), [](const Arm& arm) { return as_number(arm.name).has_value(); });
  if (numbers && (stage.taken == 0 || stage.taken + 1 == stage.arms.size())) {
    text += fmt::format(" It is the {} of those tried: a better one may lie beyond.",
                        stage.taken == 0 ? "smallest" : "largest");
  }
  return text;
}

std::vector<std::string> advice_sentences(const Advice& advice, const Fitting& fitting) {
  std::vector<std::string> all;
  all.push_back(
      fmt::format("Speed: this machine trains {} at {} tokens a second as it is and at {} as advised: {} tokens in a "
                  "budget of {}, of "
                  "which trials, validation and checkpoints take {:.0f}%.",
                  advice.source, format_count(fitting.rate), format_count(advice.tokens_per_second),
                  format_count(advice.tokens_per_second * kRunShare * advice.budget), format_duration(advice.budget),
                  100.0 * (1.0 - kRunShare)));
  all.push_back(model_sentence(advice, fitting));
  all.push_back(batch_sentence(advice, fitting));
  all.push_back(text_sentence(advice, fitting));
  for (const Stage& stage : advice.stages) {
    all.push_back(stage.sentence);
  }
  if (!advice.stages.empty()) {
    all.push_back(reach_sentence(advice));
  }
  if (std::string noise = quiet_sentence(advice); !noise.empty()) {
    all.push_back(std::move(noise));
  }
  return all;
}

}  // namespace headroom::compare
