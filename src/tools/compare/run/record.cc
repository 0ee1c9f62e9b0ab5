#include "record.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "runs.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "headroom.comparison.1";
constexpr std::array<std::pair<Kind, const char*>, 3> kKinds = {
    {{Kind::comparison, "comparison"}, {Kind::demo, "demo"}, {Kind::sweep, "sweep"}}};

// Thrown for what the file should not hold; the reader names the file.
struct NotARecord {};

Kind kind_of(const std::string& name) {
  for (const auto& [kind, known] : kKinds) {
    if (name == known) {
      return kind;
    }
  }
  throw NotARecord();
}

Json written(const Plan& plan, const fs::path& out) {
  Json models = Json::array();
  for (const PlannedModel& model : plan.models) {
    Json choices = Json::array();
    for (const PlannedRun& choice : model.choices) {
      choices.push_back(
          {{"values", choice.values}, {"folder", choice.folder.lexically_relative(out).generic_string()}});
    }
    Json& json = models.emplace_back(Json{{"name", model.name}, {"choices", std::move(choices)}});
    if (!model.family.empty()) {
      json["family"] = model.family;
    }
  }
  return models;
}

// The values of a choice: of every key that was varied, one that was named.
Values read_values(const Json& json, const std::vector<Variation>& variations) {
  Values values = json.get<Values>();
  const bool fits = std::equal(
      values.begin(), values.end(), variations.begin(), variations.end(), [](const auto& value, const Variation& of) {
        return value.first == of.key && std::find(of.values.begin(), of.values.end(), value.second) != of.values.end();
      });
  return fits ? values : throw NotARecord();
}

// The run's config, whose precision and threads may be what the machine of a run filled in.
config::Config read_config(const fs::path& folder) {
  config::Config config = folder_config(folder);
  config.train.precision = config::Precision::automatic;
  config.train.threads = 0;
  return config;
}

PlannedModel read_model(const Json& json, const fs::path& out, const std::vector<Variation>& variations) {
  PlannedModel model{json.at("name").get<std::string>(), {}, json.value("family", "")};
  for (const Json& choice : json.at("choices")) {
    const fs::path folder = fs::path(choice.at("folder").get<std::string>()).lexically_normal();
    if (folder.is_absolute() || folder.empty() || *folder.begin() == "..") {
      throw NotARecord();
    }
    if (fs::exists(out / folder / "config.toml")) {
      model.choices.push_back({read_values(choice.at("values"), variations), read_config(out / folder), out / folder});
    }
  }
  return model;
}

// Names are unique, and the runs those of one task, which a page's columns are of.
void check_alike(const Plan& plan) {
  std::set<std::string> names;
  const tasks::Task* task = nullptr;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const tasks::Task* const its = &tasks::task_for(choice.config, "report: " + model.name);
      if (task != nullptr && task != its) {
        throw NotARecord();
      }
      task = its;
    }
    if (!names.insert(model.name).second) {
      throw NotARecord();
    }
  }
}

Record read(const Json& json, const fs::path& out) {
  if (json.at("format") != kFormat) {
    throw NotARecord();
  }
  Record record;
  record.kind = kind_of(json.at("kind").get<std::string>());
  record.title = json.at("title").get<std::string>();
  record.about = json.at("about").get<std::string>();
  record.command = json.at("command").get<std::string>();
  record.plan.seeds = json.at("seeds").is_number_integer() ? json.at("seeds").get<std::int64_t>() : 0;
  if (record.plan.seeds < 1 || record.plan.seeds > kMostSeeds) {
    throw NotARecord();
  }
  for (const auto& [key, values] : json.at("variations").items()) {
    record.plan.variations.push_back({key, values.get<std::vector<std::string>>()});
  }
  for (const Json& model : json.at("models")) {
    record.plan.models.push_back(read_model(model, out, record.plan.variations));
  }
  record.prompts = json.at("prompts").get<std::vector<std::string>>();
  record.sampling = json.at("sampling").get<std::string>();
  for (const auto& [name, samples] : json.at("samples").items()) {
    record.samples[name] = samples.get<std::vector<std::string>>();
  }
  check_alike(record.plan);
  return record;
}

}  // namespace

void write_record(const Record& record, const fs::path& out) {
  Json json = {{"format", kFormat}};
  for (const auto& [kind, name] : kKinds) {
    if (record.kind == kind) {
      json["kind"] = name;
    }
  }
  json["title"] = record.title;
  json["about"] = record.about;
  json["command"] = record.command;
  json["seeds"] = record.plan.seeds;
  json["variations"] = Json::object();
  for (const Variation& variation : record.plan.variations) {
    json["variations"][variation.key] = variation.values;
  }
  json["models"] = written(record.plan, out);
  json["prompts"] = record.prompts;
  json["sampling"] = record.sampling;
  json["samples"] = Json::object();
  for (const auto& [name, texts] : record.samples) {
    json["samples"][name] = texts;
  }
  write_text_file(out / kRecordFile, to_json_line(json) + "\n");
}

Record read_record(const fs::path& out) {
  const fs::path file = out / kRecordFile;
  const Json json = parse_json(read_text_file(file), file.string());
  try {
    return read(json, out);
  } catch (const Json::exception&) {
  } catch (const NotARecord&) {
  } catch (const fs::filesystem_error&) {  // the name of a folder that no file system has
  }
  user_error("{}: does not describe a comparison: the command that made it writes it again", file.string());
}

}  // namespace headroom::compare
