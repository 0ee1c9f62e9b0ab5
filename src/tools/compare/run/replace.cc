#include "replace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "headroom/core/error.h"
#include "tools/compare/report/markup.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

// What the plan's folders hold runs of: what was only planned, nobody loses.
void keep_what_is_there(Plan& plan) {
  std::erase_if(plan.models, [](const PlannedModel& model) { return model.choices.empty(); });
  for (Variation& variation : plan.variations) {
    std::erase_if(variation.values, [&](const std::string& value) {
      return std::none_of(plan.models.begin(), plan.models.end(), [&](const PlannedModel& model) {
        return std::any_of(model.choices.begin(), model.choices.end(), [&](const PlannedRun& run) {
          return std::find(run.values.begin(), run.values.end(), std::pair(variation.key, value)) != run.values.end();
        });
      });
    });
  }
  const auto is_there = [&](std::int64_t index) {
    return std::any_of(plan.models.begin(), plan.models.end(), [&](const PlannedModel& model) {
      return std::any_of(model.choices.begin(), model.choices.end(), [&](const PlannedRun& run) {
        return fs::exists(with_seed(run, index).folder / "config.toml");
      });
    });
  };
  while (plan.seeds > 1 && !is_there(plan.seeds - 1)) {
    --plan.seeds;
  }
}

std::optional<Record> record_in(const fs::path& out) {
  if (!fs::exists(out / kRecordFile)) {
    return std::nullopt;
  }
  try {
    Record record = read_record(out);
    keep_what_is_there(record.plan);
    return record;
  } catch (const UserError&) {  // damaged: written again
    return std::nullopt;
  }
}

// "train.learning_rate, train.warmup_steps"; "no key" of none.
std::string named_keys(std::vector<std::string> keys) {
  std::sort(keys.begin(), keys.end());
  return keys.empty() ? "no key" : enumerated(keys);
}

bool same_keys(const Plan& a, const Plan& b) {
  return named_keys(keys_of(a.variations)) == named_keys(keys_of(b.variations));
}

std::vector<std::string> models_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const PlannedModel& model : plan.models) {
    names.push_back(model.name);
  }
  return names;
}

// Those of `there` that are not among `here`.
std::vector<std::string> missing(const std::vector<std::string>& there, const std::vector<std::string>& here) {
  std::vector<std::string> lost;
  std::copy_if(there.begin(), there.end(), std::back_inserter(lost),
               [&](const std::string& one) { return std::find(here.begin(), here.end(), one) == here.end(); });
  return lost;
}

// "train.learning_rate = 0.01 and 0.03", of the first key of which values are missing; empty: none are.
std::string missing_values(const Plan& there, const Plan& here) {
  for (const Variation& variation : there.variations) {
    const auto now = std::find_if(here.variations.begin(), here.variations.end(),
                                  [&](const Variation& other) { return other.key == variation.key; });
    if (const std::vector<std::string> lost = missing(variation.values, now->values); !lost.empty()) {
      return fmt::format("{} = {}", variation.key, enumerated(lost));
    }
  }
  return "";
}

// What a sentence says is there besides; empty: all that is there is planned again.
std::string lost_of(const Record& there, const Record& next) {
  const bool sweep = next.kind == Kind::sweep;
  if (!same_keys(there.plan, next.plan)) {
    return fmt::format("where {} {} {}, not {}", named_keys(keys_of(there.plan.variations)),
                       there.plan.variations.size() > 1 ? "were" : "was", sweep ? "varied" : "tuned",
                       named_keys(keys_of(next.plan.variations)));
  }
  if (const std::string values = missing_values(there.plan, next.plan); !values.empty()) {
    return fmt::format("which also has {}", values);
  }
  const std::vector<std::string> models = missing(models_of(there.plan), models_of(next.plan));
  if (!sweep && !models.empty()) {
    return fmt::format("which also has {}", enumerated(models));
  }
  return there.plan.seeds > next.plan.seeds
             ? fmt::format("which has {} of each, not {}", counted(static_cast<std::size_t>(there.plan.seeds), "seed"),
                           next.plan.seeds)
             : "";
}

}  // namespace

void refuse_to_lose(const Record& next, const fs::path& out) {
  const std::optional<Record> there = record_in(out);
  if (!there) {
    return;
  }
  if (there->kind != next.kind) {
    user_error("{}: --out: {} holds the record of another command: choose another folder", next.plan.command,
               out.string());
  }
  if (there->plan.models.empty()) {
    return;
  }
  if (const std::string lost = lost_of(*there, next); !lost.empty()) {
    user_error(
        "{}: --out: {} holds a {}, {}: its record and page would be lost; name that too, or choose another folder "
        "(headroom report makes its page again)",
        next.plan.command, out.string(), next.kind == Kind::sweep ? "sweep" : "comparison", lost);
  }
}

}  // namespace headroom::compare
