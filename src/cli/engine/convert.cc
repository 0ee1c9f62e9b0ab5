// The command convert.
#include <fmt/format.h>

#include <sstream>

#include "data/text/text.h"
#include "engine.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/convert/heads.h"

namespace headroom::cli {
namespace {

// Parses "0,2,5".
std::vector<std::int64_t> parse_layers(const std::string& text) {
  std::vector<std::int64_t> layers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty() || part.size() > 6 || part.find_first_not_of("0123456789") != std::string::npos) {
      user_error("convert: --layers: must be layers such as 0,2,5, got {}", text);
    }
    layers.push_back(std::stoll(part));
  }
  return layers;
}

convert::ConvertRequest request_of(const Convert& command, const EngineRequest& request) {
  convert::ConvertRequest job{.source = command.run, .to = command.to};
  job.data = command.data;
  job.tokens = command.tokens;
  job.fit_steps = command.fit;
  job.joint_steps = command.joint_fit;
  job.seed = command.seed;
  job.layers = parse_layers(command.layers);
  job.out = command.out;
  job.cache = cache_folder();
  job.command = request.command_line;
  job.threads = request.threads;
  return job;
}

std::string data_of(const Convert& command) {
  return command.data.empty() ? "the training data" : data::named_together(command.data);
}

void convert_heads(const Convert& command, const EngineRequest& request) {
  convert::HeadsRequest job{.convert = request_of(command, request),
                            .budget = convert::parse_budget(command.budget),
                            .experts = command.experts};
  for (const auto& [file, option] :
       {std::pair(command.config_out, "convert: --config-out"), {command.page, "convert: --page"}}) {
    if (!file.empty()) {
      require_writable(file, option);
    }
  }
  const convert::HeadsResult made = convert::choose_heads_by_layer(job);
  if (!command.config_out.empty()) {
    write_text_file(command.config_out, config::to_toml(made.config));
  }
  if (!command.page.empty()) {
    write_text_file(command.page, convert::to_page(made, job));
  }
  request.output.document(convert::to_json(made));
  request.output.text(fmt::format("{}{}: {} parameters; losses on held-out tokens of {}\n", convert::to_text(made),
                                  command.out, made.conversion.parameters, data_of(command)));
}

}  // namespace

int run(const Convert& command, const EngineRequest& request) {
  require_replaceable_checkpoint(command.out, "convert", command.force);
  if (!command.heads.empty()) {
    convert_heads(command, request);
    return 0;
  }
  convert::ConvertRequest job = request_of(command, request);
  job.target = config::load_config(command.to, command.set);
  const convert::Conversion made = convert::convert(job);
  request.output.document(convert::to_json(made));
  std::string text;
  for (const std::string& note : made.notes) {
    text += note + "\n";
  }
  request.output.text(fmt::format("{}{}: {} parameters{}; loss on held-out tokens of {} {} before, {} after\n", text,
                                  command.out, made.parameters, made.exact ? ", equivalent to the source" : "",
                                  data_of(command), format_decimal(made.loss_before, 4),
                                  format_decimal(made.loss_after, 4)));
  return 0;
}

}  // namespace headroom::cli
