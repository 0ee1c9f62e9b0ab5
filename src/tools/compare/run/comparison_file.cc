#include "comparison_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "headroom.comparison.1";

// Thrown for invalid content; the caller names the file.
struct InvalidRecord {};

Json models_json(const Plan& plan, const fs::path& out) {
  Json models = Json::array();
  for (const PlannedModel& model : plan.models) {
    const std::vector<Json> choices = transformed(model.choices, [&](const PlannedRun& choice) -> Json {
      return {{"values", choice.values}, {"folder", choice.folder.lexically_relative(out).generic_string()}};
    });
    Json& json = models.emplace_back(Json{{"name", model.name}, {"choices", choices}});
    if (!model.family.empty()) {
      json["family"] = model.family;
    }
  }
  return models;
}

// Reads the values of a choice: one of the listed values for each varied key.
Values read_values(const Json& json, const std::vector<Variation>& variations) {
  Values values = json.get<Values>();
  const bool fits = std::ranges::equal(values, variations, [](const auto& value, const Variation& of) {
    return value.first == of.key && std::ranges::find(of.values, value.second) != of.values.end();
  });
  return fits ? values : throw InvalidRecord();
}

// Reads the run's config. The machine may have set its precision and threads, so these match any request.
config::Config read_config(const fs::path& folder) {
  config::Config config = train::read_run_config(folder);
  config.train.precision = config::Precision::automatic;
  config.train.threads = 0;
  return config;
}

PlannedModel read_model(const Json& json, const fs::path& out, const std::vector<Variation>& variations) {
  PlannedModel model{json.at("name").get<std::string>(), {}, json.value("family", "")};
  for (const Json& choice : json.at("choices")) {
    const fs::path folder = fs::path(choice.at("folder").get<std::string>()).lexically_normal();
    if (folder.is_absolute() || folder.empty() || *folder.begin() == "..") {
      throw InvalidRecord();
    }
    if (fs::exists(out / folder / "config.toml")) {
      model.choices.push_back({read_values(choice.at("values"), variations), read_config(out / folder), out / folder});
    }
  }
  return model;
}

// Requires unique names, and the same task for all runs, because the task determines the columns of the page.
void check_models(const Plan& plan) {
  std::set<std::string> names;
  const tasks::Task* task = nullptr;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const tasks::Task* const own = &tasks::task_for(choice.config, "report: " + model.name);
      if (task != nullptr && task != own) {
        throw InvalidRecord();
      }
      task = own;
    }
    if (!names.insert(model.name).second) {
      throw InvalidRecord();
    }
  }
}

ComparisonRecord read(const Json& json, const fs::path& out) {
  if (json.at("format") != kFormat) {
    throw InvalidRecord();
  }
  ComparisonRecord record;
  const auto kind = config::value_named<Kind>(json.at("kind").get<std::string>());
  record.kind = kind && *kind != Kind::run ? *kind : throw InvalidRecord();
  record.title = json.at("title").get<std::string>();
  record.about = json.at("about").get<std::string>();
  record.command = json.at("command").get<std::string>();
  record.plan.seeds = json.at("seeds").is_number_integer() ? json.at("seeds").get<std::int64_t>() : 0;
  if (record.plan.seeds < 1 || record.plan.seeds > kMostSeeds) {
    throw InvalidRecord();
  }
  record.plan.tuned_apart = json.value("tuned_apart", false);
  for (const auto& [key, values] : json.at("variations").items()) {
    record.plan.variations.push_back({key, values.get<std::vector<std::string>>()});
  }
  for (const Json& model : json.at("models")) {
    record.plan.models.push_back(read_model(model, out, record.plan.variations));
  }
  record.prompts = json.at("prompts").get<std::vector<std::string>>();
  record.sampling = json.at("sampling").get<std::string>();
  json.at("samples").get_to(record.samples);
  check_models(record.plan);
  return record;
}

}  // namespace

void write_record(const ComparisonRecord& record, const fs::path& out) {
  Json variations = Json::object();
  for (const Variation& variation : record.plan.variations) {
    variations[variation.key] = variation.values;
  }
  const Json json = {{"format", kFormat},
                     {"kind", config::name_of(record.kind)},
                     {"title", record.title},
                     {"about", record.about},
                     {"command", record.command},
                     {"seeds", record.plan.seeds},
                     {"tuned_apart", record.plan.tuned_apart},
                     {"variations", std::move(variations)},
                     {"models", models_json(record.plan, out)},
                     {"prompts", record.prompts},
                     {"sampling", record.sampling},
                     {"samples", record.samples}};
  write_text_file(out / kRecordFile, to_json_line(json) + "\n");
}

ComparisonRecord read_record(const fs::path& out) {
  const fs::path file = out / kRecordFile;
  const Json json = parse_json(read_text_file(file), file.string());
  try {
    return read(json, out);
  } catch (const Json::exception&) {
  } catch (const InvalidRecord&) {
  } catch (const fs::filesystem_error&) {  // a folder name that the file system refuses
  }
  user_error("{}: is not a valid comparison record; run the command that made it again", file.string());
}

namespace {

// Removes planned runs without a folder. No results are lost with them.
void drop_unstarted(Plan& plan) {
  std::erase_if(plan.models, [](const PlannedModel& model) { return model.choices.empty(); });
  std::vector<PlannedRun> runs;
  for (const PlannedModel& model : plan.models) {
    runs.insert(runs.end(), model.choices.begin(), model.choices.end());
  }
  for (Variation& variation : plan.variations) {
    std::erase_if(variation.values, [&](const std::string& value) {
      return std::ranges::none_of(runs, [&](const PlannedRun& run) {
        return std::ranges::find(run.values, std::pair(variation.key, value)) != run.values.end();
      });
    });
  }
  const auto has_seed = [&](std::int64_t index) {
    return std::ranges::any_of(
        runs, [&](const PlannedRun& run) { return fs::exists(with_seed(run, index).folder / "config.toml"); });
  };
  while (plan.seeds > 1 && !has_seed(plan.end_index() - 1)) {
    --plan.seeds;
  }
}

}  // namespace

std::optional<ComparisonRecord> record_in(const fs::path& out) {
  if (!fs::exists(out / kRecordFile)) {
    return std::nullopt;
  }
  try {
    ComparisonRecord record = read_record(out);
    drop_unstarted(record.plan);
    return record;
  } catch (const UserError&) {  // damaged: may be overwritten
    return std::nullopt;
  }
}

namespace {

// Returns "train.learning_rate and train.warmup_steps", or "no key".
std::string named_keys(std::vector<std::string> keys) {
  std::ranges::sort(keys);
  return keys.empty() ? "no key" : enumerated(keys);
}

bool same_keys(const Plan& a, const Plan& b) {
  return named_keys(keys_of(a.variations)) == named_keys(keys_of(b.variations));
}

std::vector<std::string> models_of(const Plan& plan) {
  return transformed(plan.models, &PlannedModel::name);
}

// Returns the elements of `there` that are not in `here`.
std::vector<std::string> missing(const std::vector<std::string>& there, const std::vector<std::string>& here) {
  std::vector<std::string> lost;
  std::ranges::copy_if(there, std::back_inserter(lost),
                       [&](const std::string& one) { return std::ranges::find(here, one) == here.end(); });
  return lost;
}

// Returns "train.learning_rate = 0.01 and 0.03" for the first key with missing values; empty if there is none.
std::string missing_values(const Plan& there, const Plan& here) {
  for (const Variation& variation : there.variations) {
    const auto now = std::ranges::find(here.variations, variation.key, &Variation::key);
    if (const std::vector<std::string> lost = missing(variation.values, now->values); !lost.empty()) {
      return fmt::format("{} = {}", variation.key, enumerated(lost));
    }
  }
  return "";
}

// Describes what `next` would lose, as a clause: "which also has two"; empty if it loses nothing.
std::string describe_loss(const ComparisonRecord& there, const ComparisonRecord& next) {
  const bool sweep = next.kind == Kind::sweep;
  if (!same_keys(there.plan, next.plan)) {
    return fmt::format("where {} {} {} (here: {})", named_keys(keys_of(there.plan.variations)),
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

void check_overwrite(const ComparisonRecord& next, const fs::path& out) {
  const std::optional<ComparisonRecord> there = record_in(out);
  if (!there) {
    return;
  }
  if (there->kind != next.kind) {
    user_error("{}: --out: {} holds the runs of another command; choose another folder", next.plan.command,
               out.string());
  }
  if (there->plan.models.empty()) {
    return;
  }
  if (const std::string lost = describe_loss(*there, next); !lost.empty()) {
    user_error(
        "{}: --out: {} holds a {}, {}, and its record and page would be lost; include that in the command, or choose "
        "another "
        "folder (`headroom report` writes its page again)",
        next.plan.command, out.string(), next.kind == Kind::sweep ? "sweep" : "comparison", lost);
  }
}

}  // namespace headroom::compare
