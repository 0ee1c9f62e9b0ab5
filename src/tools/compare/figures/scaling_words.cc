// What a comparison of families shows and says, on the terminal and in its conclusion.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "foundation/core/text/format.h"
#include "scaling.h"
#include "tools/compare/report/markup.h"
#include "words.h"

namespace headroom::compare {
namespace {

// How many seeds every model of the families has.
std::size_t fewest_seeds(const Scaling& scaling) {
  std::size_t seeds = SIZE_MAX;
  for (const ScaledFamily& family : scaling) {
    for (const ScaledModel& model : family.models) {
      seeds = std::min(seeds, model.losses.size());
    }
  }
  return seeds;
}

// "For a validation loss of 4.021, dense needs 1.32 [1.21, 1.44] times the compute of dcmha."
std::string sentence_of(const ScaledFamily& family, const ScaledFamily& first) {
  const Saving& saving = *family.saving;
  std::string text = fmt::format("For a validation loss of {}, {} needs {} times the compute of {}",
                                 format_decimal(saving.loss, 3), first.name, saving_text(saving), family.name);
  if (saving.low && !saving.excludes_one()) {
    text += ": the interval includes 1, so that no difference is shown";
  }
  return text + (saving.extrapolated ? "; no loss is reached by both, so that this is extrapolated." : ".");
}

// "Models of dcmha: 1.25 (small), 1.40 (large, extrapolated) times."
std::string models_sentence(const ScaledFamily& family, const ScaledFamily& first) {
  std::vector<std::string> models;
  for (const ScaledModel& model : family.models) {
    if (model.saving) {
      models.push_back(fmt::format("{} ({}{})", saving_text(*model.saving), model.name,
                                   model.saving->extrapolated ? ", extrapolated" : ""));
    }
  }
  return models.empty() ? ""
                        : fmt::format("To match the models of {}, {} needs {} times their compute.", family.name,
                                      first.name, enumerated(models));
}

// "The lines are loss = 27.1 FLOPs^-0.061 (dense, 3 sizes, at most 0.3% off) and ...".
std::string lines_sentence(const Scaling& scaling) {
  std::vector<std::string> lines;
  for (const ScaledFamily& family : scaling) {
    if (family.unfitted.empty()) {
      const std::string fit = family.models.size() < 3 ? "through two sizes"
                                                       : fmt::format("{} sizes, at most {:.1f}% off",
                                                                     family.models.size(), 100.0 * family.residual);
      lines.push_back(
          fmt::format("{:.3g} FLOPs^-{:.3g} ({}, {})", family.law.coefficient, family.law.exponent, family.name, fit));
    }
  }
  return lines.empty() ? "" : fmt::format("The losses are fitted by {}.", enumerated(lines));
}

std::string seeds_sentence(std::size_t seeds) {
  if (seeds < 2) {
    return "Each model was trained once: how much of this is chance is not known.";
  }
  return fmt::format(
      "Each model was trained with {} seeds: brackets are 95% intervals over the seeds, not over other sizes.{}", seeds,
      caution_of_seeds(seeds));
}

}  // namespace

std::string saving_text(const Saving& saving) {
  const auto factor = [](double ratio) {
    return ratio < 99.5 ? format_decimal(ratio, 2) : std::isfinite(ratio) ? fmt::format("{:.3g}", ratio) : kUnknown;
  };
  return saving.low ? fmt::format("{} [{}, {}]", factor(saving.ratio), factor(*saving.low), factor(*saving.high))
                    : factor(saving.ratio);
}

Conclusion conclude_scaling(const Scaling& scaling) {
  Conclusion points;
  for (const ScaledFamily& family : scaling) {
    if (family.saving) {
      points.push_back(sentence_of(family, scaling.front()));
    }
  }
  for (const ScaledFamily& family : scaling) {
    if (!family.unfitted.empty()) {
      points.push_back(family.unfitted);
    } else if (std::string models = models_sentence(family, scaling.front()); !models.empty()) {
      points.push_back(std::move(models));
    }
  }
  if (std::string lines = lines_sentence(scaling); !lines.empty()) {
    points.push_back(std::move(lines));
    points.push_back(seeds_sentence(fewest_seeds(scaling)));
  }
  return points;
}

std::string render_scaling(const CompareResult& result) {
  if (result.scaling.empty()) {
    return "";
  }
  const std::string needs = result.scaling.front().name + " needs";
  std::vector<std::vector<std::string>> rows = {{"family", "model", "training FLOPs", "validation loss", needs}};
  for (const ScaledFamily& family : result.scaling) {
    for (const ScaledModel& model : family.models) {
      rows.push_back({shorten(family.name, 24), shorten(model.name, 24), short_number(model.flops),
                      format_decimal(model.loss(), 3), !model.saving ? "" : "x " + saving_text(*model.saving)});
    }
  }
  return text_table(rows, {true, true});
}

}  // namespace headroom::compare
