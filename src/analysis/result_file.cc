#include "result_file.h"

#include <limits>

#include "headroom/analysis/compare.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::analysis {
namespace {

// JSON has no word for numbers that are not finite: they are written as null.
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

Json to_json(const train::TrainResult& r) {
  return {{"steps", r.steps},
          {"train_loss", r.train_loss},
          {"validation_loss", r.validation_loss},
          {"bits_per_byte", r.validation_bits_per_byte},
          {"tokens_per_second", r.tokens_per_second},
          {"seconds", r.seconds},
          {"peak_memory_bytes", r.peak_memory_bytes},
          {"parameters", r.parameters},
          {"parameters_sha256", r.parameters_sha256}};
}

void write_result(const FinishedRun& run, const std::filesystem::path& file) {
  Json json = to_json(run.result);
  json["machine"] = run.machine;
  json["validation"] = Json::array();
  for (const train::ValidationPoint& point : run.result.validation) {
    json["validation"].push_back({{"step", point.step}, {"seconds", point.seconds}, {"loss", point.loss}});
  }
  write_text_file(file, to_json_line(json) + "\n");
}

FinishedRun read_result(const std::filesystem::path& file) {
  const Json json = parse_json(read_text_file(file), file.string());
  try {
    FinishedRun run;
    train::TrainResult& r = run.result;
    r.steps = json.at("steps").get<std::int64_t>();
    r.train_loss = number(json.at("train_loss"));
    r.validation_loss = number(json.at("validation_loss"));
    r.validation_bits_per_byte = number(json.at("bits_per_byte"));
    r.tokens_per_second = number(json.at("tokens_per_second"));
    r.seconds = number(json.at("seconds"));
    r.peak_memory_bytes = json.at("peak_memory_bytes").get<std::int64_t>();
    r.parameters = json.at("parameters").get<std::int64_t>();
    r.parameters_sha256 = json.at("parameters_sha256").get<std::string>();
    run.machine = json.at("machine").get<std::string>();
    for (const Json& point : json.at("validation")) {
      r.validation.push_back(
          {point.at("step").get<std::int64_t>(), number(point.at("seconds")), number(point.at("loss"))});
    }
    return run;
  } catch (const Json::exception&) {
    misuse("{}: is not the result of a finished run: remove it to train this model again", file.string());
  }
}

}  // namespace headroom::analysis
