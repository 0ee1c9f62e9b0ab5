// Formats the results of zero-shot benchmarks as JSON and as text.
#include <algorithm>
#include <cmath>

#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "zero_shot.h"

namespace headroom::zero_shot {
namespace {

double squared_error(double accuracy, std::int64_t questions) {
  return questions < 2 ? 0.0 : accuracy * (1.0 - accuracy) / static_cast<double>(questions - 1);
}

std::string_view begin_name(tasks::PrefixKind begin) {
  const auto* const found =
      std::ranges::find_if(tasks::kPrefixKinds, [&](const auto& entry) { return entry.first == begin; });
  return found->second;
}

std::string_view in_words(tasks::PrefixKind begin) {
  return begin == tasks::PrefixKind::none       ? "texts without a prefix"
         : begin == tasks::PrefixKind::line_end ? "texts after a line end"
                                                : "texts after bos";
}

double perplexity(const ZeroShotResult& result, const Tally& tally) {
  return std::exp(-tally.log_probability / static_cast<double>(result.of_tokens ? tally.tokens : tally.questions));
}

Json figures_of(const ZeroShotResult& result, const Tally& tally) {
  Json figures;
  figures["acc,none"] = tally.accuracy();
  figures["acc_stderr,none"] = std::sqrt(squared_error(tally.accuracy(), tally.questions));
  if (result.normalised) {
    figures["acc_norm,none"] = tally.accuracy_normalised();
    figures["acc_norm_stderr,none"] = std::sqrt(squared_error(tally.accuracy_normalised(), tally.questions));
  }
  if (result.perplexity) {
    figures["perplexity,none"] = perplexity(result, tally);
  }
  return figures;
}

// Adds one task in the format of lm-evaluation-harness.
void add_task(Json& document, const ZeroShotResult& result, const std::string& name, const Tally& tally) {
  document["results"][name] = figures_of(result, tally);
  document["results"][name]["alias"] = name;
  document["configs"][name] = {{"task", name}, {"num_fewshot", result.shots}, {"metadata", {{"version", 1.0}}}};
  document["versions"][name] = 1.0;
  document["n-shot"][name] = result.shots;
  Json& better = document["higher_is_better"][name] = {{"acc", true}};
  if (result.normalised) {
    better["acc_norm"] = true;
  }
  if (result.perplexity) {
    better["perplexity"] = false;
  }
  document["n-samples"][name] = {{"original", tally.questions}, {"effective", tally.questions}};
}

// Sums over subsets with the same name before (or after) the slash.
std::map<std::string, Tally> grouped(const ZeroShotResult& result, bool before) {
  std::map<std::string, Tally> groups;
  for (const auto& [subset, tally] : result.subsets) {
    if (const std::size_t slash = subset.find('/'); slash != std::string::npos) {
      groups[before ? subset.substr(0, slash) : subset.substr(slash + 1)] += tally;
    }
  }
  return groups;
}

template <class Key>
Json groups_json(const ZeroShotResult& result, const std::map<Key, Tally>& groups) {
  Json all = Json::object();
  for (const auto& [name, tally] : groups) {
    all[fmt::format("{}", name)] = {
        {"accuracy", tally.accuracy()}, {"perplexity", perplexity(result, tally)}, {"answers", tally.questions}};
  }
  return all;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  questions += other.questions;
  right += other.right;
  right_normalised += other.right_normalised;
  log_probability += other.log_probability;
  tokens += other.tokens;
  return *this;
}

Tally ZeroShotResult::whole() const {
  Tally sum;
  for (const auto& [name, tally] : subsets) {
    sum += tally;
  }
  return sum;
}

double ZeroShotResult::accuracy() const {
  if (!mean_of_subsets) {
    return whole().accuracy();
  }
  return sum_over(subsets | std::views::values, &Tally::accuracy) / static_cast<double>(subsets.size());
}

double ZeroShotResult::accuracy_error() const {
  if (!mean_of_subsets) {
    return std::sqrt(squared_error(accuracy(), whole().questions));
  }
  const double sum = sum_over(subsets | std::views::values,
                              [](const Tally& tally) { return squared_error(tally.accuracy(), tally.questions); });
  return std::sqrt(sum) / static_cast<double>(subsets.size());
}

Json to_json(const ZeroShotResult& result) {
  Json document = {{"task", result.task},
                   {"accuracy", result.accuracy()},
                   {"accuracy_stderr", result.accuracy_error()},
                   {"begin", begin_name(result.begin)},
                   {"subsets", Json::object()}};
  if (result.shots > 0) {
    document["shots"] = result.shots;
    document["shots_from"] = result.shots_from;
  }
  const Tally whole = result.whole();
  for (const auto& [subset, tally] : result.subsets) {
    if (!subset.empty()) {
      document["subsets"][subset] = tally.accuracy();
    }
  }
  document["questions"] = whole.questions;
  if (result.perplexity) {
    document["perplexity"] = perplexity(result, whole);
    if (result.of_tokens) {
      document["loss"] = -whole.log_probability / static_cast<double>(whole.tokens);
      document["target_tokens"] = whole.tokens;
    }
  }
  if (const auto blocks = grouped(result, true); !blocks.empty()) {
    document["blocks"] = groups_json(result, blocks);
    document["patterns"] = groups_json(result, grouped(result, false));
  }
  if (!result.by_shots.empty()) {
    document["by_shots"] = groups_json(result, result.by_shots);
  }
  document["results"] = Json::object();
  if (result.subsets.size() == 1 && result.subsets.begin()->first.empty()) {
    const Tally& tally = result.subsets.begin()->second;
    if (result.normalised) {
      document["accuracy_normalised"] = tally.accuracy_normalised();
    }
    add_task(document, result, result.task, tally);
  } else {
    Json group = {
        {"acc,none", result.accuracy()}, {"acc_stderr,none", result.accuracy_error()}, {"alias", result.task}};
    if (result.perplexity) {
      group["perplexity,none"] = perplexity(result, whole);
    }
    document["results"][result.task] = group;
    document["groups"][result.task] = group;
    document["versions"][result.task] = 1.0;
    for (const auto& [subset, tally] : result.subsets) {
      const std::string name = result.task + "_" + subset;
      add_task(document, result, name, tally);
      document["results"][name]["alias"] = " - " + name;
      document["group_subtasks"][result.task].push_back(name);
    }
  }
  document["truncated"] = result.truncated;
  document["tokens"] = result.tokens;
  document["seconds"] = result.seconds;
  return document;
}

std::string to_text(const ZeroShotResult& result) {
  std::string text;
  const std::size_t width = max_over(
      result.subsets, [](const auto& subset) { return subset.first.size(); }, std::size_t{0});
  for (const auto& [subset, tally] : result.subsets) {
    const std::string normalised =
        result.normalised ? fmt::format(", per character {:.4f}", tally.accuracy_normalised()) : std::string();
    const std::string loss = result.perplexity ? fmt::format(", perplexity {:.2f}", perplexity(result, tally)) : "";
    text += fmt::format("{:<{}}{}accuracy {:.4f}{}{} ({} questions)\n", subset, width, width > 0 ? "  " : "",
                        tally.accuracy(), normalised, loss, tally.questions);
  }
  for (const auto& [shots, tally] : result.by_shots) {
    text += fmt::format("after {} examples  accuracy {:.4f}, perplexity {:.2f} ({} answers)\n", shots, tally.accuracy(),
                        perplexity(result, tally), tally.questions);
  }
  return text + fmt::format("{}: accuracy {:.4f} +- {:.4f}{}, {} questions, {} shots{}, {}, {}\n", result.task,
                            result.accuracy(), result.accuracy_error(),
                            result.mean_of_subsets && result.subsets.size() > 1
                                ? fmt::format(", mean of {} subsets", result.subsets.size())
                                : "",
                            result.whole().questions, result.shots,
                            result.shots > 0 ? fmt::format(" from {}", printable(result.shots_from)) : "",
                            in_words(result.begin), format_duration(result.seconds));
}

}  // namespace headroom::zero_shot
