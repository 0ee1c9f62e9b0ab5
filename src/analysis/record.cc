#include "record.h"

#include <array>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "runs.h"

namespace headroom::analysis {
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
    models.push_back({{"name", model.name}, {"choices", std::move(choices)}});
  }
  return models;
}

PlannedModel read_model(const Json& json, const fs::path& out) {
  PlannedModel model{json.at("name").get<std::string>(), {}};
  for (const Json& choice : json.at("choices")) {
    const fs::path folder = fs::path(choice.at("folder").get<std::string>()).lexically_normal();
    if (folder.is_absolute() || folder.empty() || *folder.begin() == "..") {
      throw NotARecord();
    }
    if (fs::exists(out / folder / "config.toml")) {
      model.choices.push_back({choice.at("values").get<Values>(), folder_config(out / folder), out / folder});
    }
  }
  return model;
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
  record.plan.seeds = json.at("seeds").get<std::int64_t>();
  for (const auto& [key, values] : json.at("variations").items()) {
    record.plan.variations.push_back({key, values.get<std::vector<std::string>>()});
  }
  for (const Json& model : json.at("models")) {
    record.plan.models.push_back(read_model(model, out));
  }
  record.prompts = json.at("prompts").get<std::vector<std::string>>();
  record.sampling = json.at("sampling").get<std::string>();
  for (const auto& [name, samples] : json.at("samples").items()) {
    record.samples[name] = samples.get<std::vector<std::string>>();
  }
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
  }
  misuse("{}: does not describe a comparison: the command that made it writes it again", file.string());
}

}  // namespace headroom::analysis
