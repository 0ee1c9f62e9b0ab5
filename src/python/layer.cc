#include "layer.h"

#include <map>
#include <memory>
#include <mutex>

#include "engine/models/builder.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/models/model.h"
#include "parts.h"

namespace headroom::python {
namespace {

// The model's options that differ from the defaults, as set_key() takes them.
std::vector<std::string> settings_of(const config::Config& config) {
  const auto all = config::flatten(config), usual = config::flatten(config::Config{});
  std::vector<std::string> settings;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].second != usual[i].second && all[i].first.starts_with("model.")) {
      settings.push_back(all[i].first + "=" + all[i].second);
    }
  }
  return settings;
}

config::Config apply(config::Config config, const std::vector<std::string>& settings, const std::string& origin) {
  for (const std::string& setting : settings) {
    config::set_key(config, setting, origin);
  }
  return config;
}

std::string text_of(const Layer& layer, const config::Config& config) {
  return to_json_line({{"kind", layer.kind},
                       {"causal", layer.causal},
                       {"cross", layer.cross},
                       {"index", layer.index},
                       {"settings", settings_of(config)}});
}

Layer parse(const std::string& text) {
  const Json json = parse_json(text, "layer");
  try {
    Layer layer{
        .kind = json.at("kind"), .causal = json.at("causal"), .cross = json.at("cross"), .index = json.at("index")};
    layer.model = apply({}, json.at("settings").get<std::vector<std::string>>(), "layer").model;
    return layer;
  } catch (const Json::exception&) {
    user_error("layer: must be a description that describe_layer() made, got {}", text);
  }
}

}  // namespace

nn::AttentionPlace Layer::place() const {
  const std::vector<std::int64_t> windows = config::layer_windows(model);
  if (index < 0 || index >= std::ssize(windows)) {
    user_error("{}: layer must be in [0, n_layers={}), got {}", kind, windows.size(), index);
  }
  return {.d_model = model.d_model,
          .n_layers = model.n_layers,
          .causal = causal,
          .cross = cross && kind == "attention",
          .window = causal ? windows[static_cast<std::size_t>(index)] : 0,
          .context_length = model.context_length,
          .memory_length = model.memory_length};
}

config::ModelOptions Layer::built() const {
  config::ModelOptions options = model;
  if (kind == "ends") {
    options.n_layers = options.n_decoder_layers = 0;
  }
  return options;
}

const Layer& layer_of(const std::string& text) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::unique_ptr<const Layer>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Layer>& layer = known[text];
  if (layer == nullptr) {
    layer = std::make_unique<const Layer>(parse(text));
  }
  return *layer;
}

std::string describe_layer(Layer layer, const std::string& source, const std::vector<std::string>& settings,
                           const std::string& origin) {
  const config::Config config =
      apply(source.empty() ? config::Config{} : config::load_config(source), settings, origin);
  config::check(config.model, origin);
  layer.model = config.model;
  nn::Parameters nobody;
  make_parameters(layer, nobody, nn::Beginning(0, at::TensorOptions(at::kFloat).device(at::kMeta)));
  return text_of(layer, config);
}

std::string describe(const Layer& layer) {
  config::Config config;
  config.model = layer.model;
  return text_of(layer, config);
}

void make_parameters(const Layer& layer, nn::Parameters& parameters, const nn::Beginning& beginning) {
  if (layer.kind == "model" || layer.kind == "ends") {
    const auto model = models::make_model(layer.built(), beginning);
    parameters = model->parameters();
    return;
  }
  part_of(layer).make(layer, models::make_builder(layer.model, parameters, beginning));
}

}  // namespace headroom::python
