// The commands checkpoint info, checkpoint export, import and convert.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "data/text/text.h"
#include "engine.h"
#include "engine/store/checkpoint_reader.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/huggingface.h"
#include "tools/convert/heads.h"

namespace headroom::cli {

namespace {

store::Checkpoint open_checkpoint(const std::string& run, std::string& name) {
  store::Checkpoint checkpoint;
  store::open_first(run, [&](const std::filesystem::path& file, bool /*is_only*/) {
    checkpoint = store::read_checkpoint(file);
    name = file.string();
  });
  return checkpoint;
}

std::int64_t count_parameters(const config::ModelOptions& options) {
  return models::make_model(options, 0, at::TensorOptions(at::kFloat).device(at::kMeta))->parameters().count();
}

std::string dtype_of(const at::Tensor& tensor) {
  const std::string name = lower_case(c10::toString(tensor.scalar_type()));
  return name == "float" ? "float32" : name;
}

// Returns the bytes of each part: "model", "optimizer", ..., the first component of the tensor names.
std::map<std::string, std::int64_t> bytes_by_part(const store::Checkpoint& checkpoint) {
  std::map<std::string, std::int64_t> bytes;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    bytes[name.substr(0, name.find('.'))] += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

Json to_json(const std::string& name, const store::Checkpoint& checkpoint) {
  Json config = Json::object(), tensors = Json::array();
  for (const auto& [key, value] : config::flatten(checkpoint.config)) {
    config[key] = value;
  }
  for (const auto& [tensor_name, tensor] : checkpoint.tensors) {
    tensors.push_back({{"name", tensor_name},
                       {"dtype", dtype_of(tensor)},
                       {"shape", tensor.sizes().vec()},
                       {"bytes", tensor.nbytes()}});
  }
  Json document = {{"checkpoint", name},
                   {"kind", config::name_of(checkpoint.config.model.kind)},
                   {"parameters", count_parameters(checkpoint.config.model)},
                   {"step", checkpoint.step},
                   {"checksums", checkpoint.verified ? "verified" : "none"},
                   {"tokenizer", nullptr},
                   {"bytes", bytes_by_part(checkpoint)},
                   {"config", std::move(config)},
                   {"tensors", std::move(tensors)}};
  if (checkpoint.tokenizer) {
    document["tokenizer"] = checkpoint.tokenizer->name();
  }
  return document;
}

std::string parts_text(const config::ModelOptions& layer) {
  const config::AttentionOptions& a = layer.attention;
  return fmt::format("projection {}, score {}, position {}", a.projection.name(), a.score.name(), a.position.name());
}

// Returns one line if all layers are alike; otherwise one for the model and one for each kind of layer.
std::string layers_text(const config::ModelOptions& o) {
  const auto kinds = o.kinds_of_layers(o.n_layers);
  if (kinds.size() == 1) {
    const config::ModelOptions& layer = kinds[0].first;
    return fmt::format("  {} layers of width {}, {} heads of {}, context {}, {}\n", o.n_layers, o.d_model,
                       layer.attention.n_heads, layer.attention.d_head, o.context_length, parts_text(layer));
  }
  std::string text = fmt::format("  {} layers of width {}, context {}\n", o.n_layers, o.d_model, o.context_length);
  for (const auto& [layer, count] : kinds) {
    const config::AttentionOptions& a = layer.attention;
    const std::string heads = a.has_heads()
                                  ? fmt::format("{} heads of {}, {}{}{}", a.n_heads, a.d_head, parts_text(layer),
                                                a.window > 0 ? fmt::format(", window {}", a.window) : "",
                                                a.share_kv > 0 ? fmt::format(", share_kv {}", a.share_kv) : "")
                                  : "no attention";
    text += fmt::format("  {} of them: {}, mlp {}\n", count, heads, config::name_of(layer.mlp.kind));
  }
  return text;
}

std::string to_text(const std::string& name, const store::Checkpoint& checkpoint) {
  const config::ModelOptions& o = checkpoint.config.model;
  std::string text = fmt::format("{}: {}, {} parameters, step {}\n", name, config::name_of(o.kind), count_parameters(o),
                                 checkpoint.step);
  text += layers_text(o);
  text += fmt::format("  tokenizer {}\n", checkpoint.tokenizer ? checkpoint.tokenizer->name() : "none");
  text += fmt::format("  checksums {}\n", checkpoint.verified ? "verified" : "none; damage cannot be detected");
  for (const auto& [part, bytes] : bytes_by_part(checkpoint)) {
    text += fmt::format("  {} {}\n", part, format_bytes(static_cast<double>(bytes)));
  }
  for (const auto& [tensor_name, tensor] : checkpoint.tensors) {
    text += fmt::format("  {:<40} {:>8} {:>14}  [{}]\n", tensor_name, dtype_of(tensor),
                        format_bytes(static_cast<double>(tensor.nbytes())), fmt::join(tensor.sizes().vec(), ", "));
  }
  return text;
}

std::filesystem::path parent_of(const std::string& path) {
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path)).parent_path();
}

void require_force(bool force, const std::string& out, const char* command) {
  if (!force) {
    user_error("{}: --out: {} already exists; overwrite it with --force, or choose another name", command,
               printable(out));
  }
}

}  // namespace

void require_replaceable_checkpoint(const std::string& out, const char* command, bool force) {
  const std::filesystem::path folder = parent_of(out);
  if (folder.filename() == "checkpoints" && store::has_checkpoints(folder.parent_path())) {
    user_error("{}: --out: {} is in the folder of a run's checkpoints; choose another folder", command, printable(out));
  }
  require_writable(out, fmt::format("{}: --out", command));
  if (!std::filesystem::exists(out)) {
    return;
  }
  store::require_replaceable(out, fmt::format("{}: --out", command));
  require_force(force, out, command);
}

int run(const CheckpointInfo& command, const EngineRequest& request) {
  std::string name;
  const store::Checkpoint checkpoint = open_checkpoint(command.run, name);
  if (request.output.json()) {
    request.output.document(to_json(name, checkpoint));
  } else {
    request.output.text(to_text(name, checkpoint));
  }
  return 0;
}

int run(const CheckpointExport& command, const EngineRequest& request) {
  std::string name, kind = "headroom";
  store::Checkpoint checkpoint = open_checkpoint(command.run, name);
  store::require_finite(checkpoint, name);
  if (command.format == "huggingface") {
    if (std::filesystem::exists(std::filesystem::path(command.out) / "config.json")) {
      require_force(command.force, command.out, "checkpoint export");
    }
    kind = store::export_huggingface(checkpoint, command.out, name);
  } else {
    require_replaceable_checkpoint(command.out, "checkpoint export", command.force);
    std::erase_if(checkpoint.tensors, [](const auto& entry) { return !entry.first.starts_with("model."); });
    std::erase_if(checkpoint.metadata, [](const auto& entry) { return entry.first != store::kSpecialTokens; });
    store::save_checkpoint(checkpoint, command.out);
  }
  const std::int64_t parameters = count_parameters(checkpoint.config.model);
  request.output.text(fmt::format("{}: {} parameters of {}, as {}\n", command.out, parameters, name, kind));
  request.output.document({{"out", command.out}, {"checkpoint", name}, {"parameters", parameters}, {"kind", kind}});
  return 0;
}

int run(const Import& command, const EngineRequest& request) {
  require_replaceable_checkpoint(command.out, "import", command.force);
  const store::Imported imported = store::import_huggingface(command.folder, command.tokenizer);
  store::save_checkpoint(imported.checkpoint, command.out);
  const std::int64_t parameters = count_parameters(imported.checkpoint.config.model);
  request.output.text(fmt::format("{}: {} with {} parameters, {}\n", command.out, imported.kind, parameters,
                                  imported.checkpoint.tokenizer->name()));
  request.output.document({{"checkpoint", command.out},
                           {"parameters", parameters},
                           {"kind", imported.kind},
                           {"tokenizer", imported.checkpoint.tokenizer->name()}});
  return 0;
}

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
  convert::ConvertRequest job = command.job;
  job.layers = parse_layers(command.layers);
  job.out = command.out;
  job.cache = cache_folder();
  job.command = request.command_line;
  job.threads = request.threads;
  return job;
}

std::string data_of(const Convert& command) {
  return command.job.data.empty() ? "the training data" : data::named_together(command.job.data);
}

void convert_heads(const Convert& command, const EngineRequest& request) {
  convert::HeadsRequest job{.convert = request_of(command, request),
                            .budget = convert::parse_budget(command.budget),
                            .experts = command.experts};
  std::set<std::filesystem::path> files = {absolute_path(command.out)};
  for (const auto& [file, option] :
       {std::pair(command.config_out, "convert: --config-out"), {command.page, "convert: --page"}}) {
    if (!file.empty()) {
      require_writable(file, option);
      if (std::filesystem::is_directory(file) || !files.insert(absolute_path(file)).second) {
        user_error("{}: {} is a directory or the file of another option", option, file);
      }
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
  job.target = config::load_config(job.to, command.set);
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
