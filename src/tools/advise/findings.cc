#include "findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fit.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "pilot_runs.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/formatting.h"

namespace headroom::advise {

namespace {

std::string score_or_none(double value) {
  return std::isfinite(value) ? short_score(value) : std::string("none");
}

double round_score(const Candidate& candidate, std::size_t round) {
  return compare::mean(candidate.rounds[round].scores);
}

// Returns a sentence from the last round with both values: " The config's own, 0.001, ends at 2.769 after 30 steps,
// where 0.004 has 2.500."
std::string own_comparison(const Stage& stage) {
  const Candidate &own = stage.candidates[stage.own], &taken = stage.candidates[stage.taken];
  if (stage.own == stage.taken || own.rounds.empty()) {
    return "";
  }
  const std::size_t round = std::min(own.rounds.size(), taken.rounds.size()) - 1;
  const std::string own_score = std::isfinite(round_score(own, round))
                                    ? "ends at " + score_or_none(round_score(own, round))
                                    : std::string("diverges");
  return fmt::format(" The config's own, {}, {} after {} steps, where {} has {}.", own.name, own_score,
                     own.rounds[round].steps, taken.name, score_or_none(round_score(taken, round)));
}

std::string model_sentence(const Advice& advice, const FitSummary& fit) {
  const config::ModelOptions& model = advice.config.model;
  const std::string shape =
      fmt::format("n_layers = {}, d_model = {}, d_hidden = {}, {} parameters", model.n_layers, model.d_model,
                  model.mlp.d_hidden, format_count(static_cast<double>(advice.parameters)));
  const double per_parameter = advice.tokens / fit.macs;
  const std::string fits =
      fmt::format("{} tokens per active parameter{}",
                  per_parameter < 10.0 ? fmt::format("{:.2g}", per_parameter) : fmt::format("{:.0f}", per_parameter),
                  advice.epochs > 2.0 ? ", because repeated text teaches less"
                                      : fmt::format("; about {:.0f} are compute-optimal", kTokensPerParameter));
  if (fit.size_kept) {
    return fmt::format("Size: the config's own is kept ({}).", shape);
  }
  const std::string limit = fit.size_limited ? "; pilot runs of a larger model do not fit the budget" : "";
  return fit.size_factor == 1.0
             ? fmt::format("Size: the config's own fits ({}): {}{}.", shape, fits, limit)
             : fmt::format("Size: {:.3g} times the config's widths ({}): {}{}.", fit.size_factor, shape, fits, limit);
}

std::string batch_sentence(const Advice& advice, const FitSummary& fit) {
  const std::int64_t batch = advice.config.train.batch_size;
  const std::int64_t tokens = batch * advice.config.model.context_length;
  return fmt::format("Batch: {} sequences, {} tokens per step: {}.", batch, tokens,
                     fit.batch_kept ? "the config's own is kept"
                                    : fmt::format("the smallest batch within {:.0f}% of the fastest, which "
                                                  "allows the most steps",
                                                  100.0 * kLostToBatch));
}

std::string epochs_sentence(const Advice& advice, const FitSummary& fit) {
  if (fit.generated) {
    return fit.repeats ? fmt::format("Data: {} tokens are {:.2g} passes over the generated rows of {} tokens.",
                                     format_count(advice.tokens), advice.epochs, format_count(fit.text_tokens))
                       : fmt::format("Data: {} tokens of generated rows, none of which is read twice.",
                                     format_count(advice.tokens));
  }
  const std::string read = fmt::format("{} tokens are {:.2g} epochs of the text of {} tokens",
                                       format_count(advice.tokens), advice.epochs, format_count(fit.text_tokens));
  const double seconds = advice.tokens / advice.tokens_per_second;
  const std::string dropout =
      advice.dropout_added ? fmt::format(", with model.dropout = {} against memorisation", kDropout) : std::string();
  if (advice.epochs > 0.95 * kMostEpochs) {
    return fmt::format(
        "Text: {}{}. More epochs would teach next to nothing, so the run ends after {}; more text would help more than "
        "more time. The best checkpoint is kept.",
        read, dropout, format_duration(seconds));
  }
  return fmt::format("Text: {}{}{}.", read, dropout,
                     advice.epochs > kEpochsWithoutDropout
                         ? "; the best checkpoint is kept, because the validation loss may rise before the end"
                         : "");
}

// Compares the length of the pilot runs with the advised run.
std::string reach_sentence(const Advice& advice) {
  std::int64_t longest = 0;
  for (const Stage& stage : advice.stages) {
    for (const Candidate& candidate : stage.candidates) {
      longest = candidate.rounds.empty() ? longest : std::max(longest, candidate.rounds.back().steps);
    }
  }
  return fmt::format(
      "Reach: the longest pilot runs had {} steps, the advised run has {}. The best value after few steps need not be "
      "the best after many: if it still moved from round to round, it may move further.",
      longest, advice.config.train.steps);
}

// Returns a warning if other programs slowed the pilot runs, so that measured speeds did not hold and candidates did
// not get equal training; else empty.
std::string noise_sentence(const Advice& advice) {
  constexpr double kQuiet = 0.7;
  double slowest = std::numeric_limits<double>::infinity(), fastest = 0.0;
  for (const Stage& stage : advice.stages) {
    for (const Candidate& candidate : stage.candidates) {
      for (const Round& round : candidate.rounds) {
        for (const compare::TrainedRun& trained : round.trained) {
          const double share = trained.result.tokens_per_second / tokens_per_second(candidate);
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
      "Noise: pilot runs ran at {:.0f} to {:.0f}% of the speeds measured beforehand, so this machine was busy. Values "
      "with different speeds were not trained equally long, and the advised run may take longer than its budget. On a "
      "quiet machine the advice may differ.",
      100.0 * slowest, 100.0 * fastest);
}

}  // namespace

double tokens_per_second(const Candidate& candidate) {
  const auto tokens = static_cast<double>(candidate.config.train.batch_size * candidate.config.model.context_length);
  return tokens / candidate.step_seconds;
}

std::string train_command(const Advice& advice) {
  return fmt::format("headroom train {} --out {}", advice.file.string(), (advice.file.parent_path() / "run").string());
}

std::string short_score(double score) {
  return std::abs(score) < 0.1 ? fmt::format("{:.3g}", score) : fmt::format("{:.3f}", score);
}

std::string score_text(const Round& round) {
  const double middle = compare::mean(round.scores);
  if (!std::isfinite(middle)) {
    return "diverged";
  }
  const double deviation = compare::sample_deviation(round.scores);
  return deviation > 0.0 ? compare::with_deviation(middle, deviation) : short_score(middle);
}

std::string stage_sentence(const Stage& stage, std::string_view preference) {
  const Candidate& taken = stage.candidates[stage.taken];
  const Round& last = taken.rounds.back();
  std::string text =
      fmt::format("{}: {}, {} {} after {} steps{}.", stage.title, taken.name, score_text(last), stage.measure.unit,
                  last.steps, last.scores.size() > 1 ? fmt::format(" ({} seeds)", last.scores.size()) : "");
  text += own_comparison(stage);
  if (stage.open) {
    text += fmt::format(" {} seeds do not show which of the last two is better; {}.", kSeedsOfClose, preference);
  }
  const bool numbers = std::ranges::all_of(
      stage.candidates, [](const Candidate& candidate) { return as_number(candidate.name).has_value(); });
  if (numbers && (stage.taken == 0 || stage.taken + 1 == stage.candidates.size())) {
    text += fmt::format(" It is the {} value tried. A better one may lie beyond it.",
                        stage.taken == 0 ? "smallest" : "largest");
  }
  return text;
}

std::vector<std::string> advice_sentences(const Advice& advice, const FitSummary& fit) {
  std::vector<std::string> all;
  all.push_back(
      fmt::format("Speed: this machine trains {} at {} tokens per second as it is and at {} as advised: {} tokens in a "
                  "budget of {}, of which pilot runs, validation and checkpoints take {:.0f}%.",
                  advice.source, format_count(fit.rate), format_count(advice.tokens_per_second),
                  format_count(advice.tokens_per_second * kRunShare * advice.budget), format_duration(advice.budget),
                  100.0 * (1.0 - kRunShare)));
  all.push_back(model_sentence(advice, fit));
  all.push_back(batch_sentence(advice, fit));
  all.push_back(epochs_sentence(advice, fit));
  for (const Stage& stage : advice.stages) {
    all.push_back(stage.sentence);
  }
  if (!advice.stages.empty()) {
    all.push_back(reach_sentence(advice));
  }
  if (std::string noise = noise_sentence(advice); !noise.empty()) {
    all.push_back(std::move(noise));
  }
  return all;
}

}  // namespace headroom::advise
