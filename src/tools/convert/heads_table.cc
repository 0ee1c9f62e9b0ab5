#include "heads_table.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>

#include "engine/store/checkpoint_reader.h"
#include "foundation/core/machine/log.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"
#include "headroom/models/model.h"
#include "start.h"
#include "training/cost/cost.h"
#include "training/train/step/state.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTable = "headroom.heads.3";  // format of the cached table
constexpr double kShortFit = 1.0 / 3.0;                  // share of `convert`'s steps per layer
constexpr double kTimeUnits = 1000;  // times are rounded to this fraction of a step, to limit the number of choices

Heads heads_of(const config::AttentionOptions& a) {
  const bool shares = a.share_kv > 0;
  return {.heads = a.n_heads, .kv_heads = shares ? 0 : a.computed_kv_heads(), .experts = 0, .shares = shares};
}

// Whether the layer may change: its heads are dense, and it does not share keys.
bool may_change(const config::ModelOptions& source, std::int64_t layer) {
  const config::AttentionOptions a = source.of_layer(layer).attention;
  return a.n_heads > 0 && is_dense(a) && sharing(source.key_owners(source.n_layers), layer).size() == 1;
}

// Whether the layers above can use the layer's keys if it has `kv_heads` key heads; 0: it shares keys itself.
bool gives_keys(const config::ModelOptions& source, std::int64_t layer, std::int64_t kv_heads) {
  for (std::int64_t above = layer + 1; above < source.n_layers && may_change(source, above); ++above) {
    if (kv_heads > 0 && source.of_layer(above).attention.n_heads % kv_heads != 0) {
      return false;
    }
  }
  return may_change(source, layer);
}

// Returns the source's heads first, then shared keys of the layer below, no heads, and fewer heads.
std::vector<Heads> candidates(const config::ModelOptions& source, std::int64_t layer, std::int64_t experts) {
  const config::AttentionOptions from = source.of_layer(layer).attention;
  std::vector<Heads> all = {heads_of(from)};
  if (!may_change(source, layer)) {
    return all;
  }
  if (layer > 0 && may_change(source, layer - 1)) {
    all.push_back({.heads = from.n_heads, .kv_heads = 0, .experts = 0, .shares = true});
  }
  all.push_back({.heads = 0, .kv_heads = 0, .experts = 0});
  for (std::int64_t keys = 1; keys < from.kv_heads(); keys *= 2) {
    if (from.kv_heads() % keys == 0) {
      all.push_back({.heads = from.n_heads, .kv_heads = keys});
    }
  }
  for (std::int64_t heads = 1; heads < from.n_heads; heads *= 2) {
    all.push_back({.heads = heads, .kv_heads = heads});
    if (experts > 0) {
      all.push_back({.heads = heads, .kv_heads = heads, .experts = experts});
    }
  }
  return all;
}

config::ModelOptions with_heads(config::ModelOptions layer, const Heads& heads) {
  config::AttentionOptions& a = layer.attention;
  if (heads == heads_of(a)) {
    return layer;
  }
  a.n_heads = heads.heads;
  a.n_kv_heads = heads.kv_heads == heads.heads ? 0 : heads.kv_heads;
  a.share_kv = heads.shares ? 1 : 0;
  if (heads.experts > 0) {
    a.projection = "experts";
    a.of<config::RoutingOptions>().n_experts = heads.experts;
    a.of<config::RoutingOptions>().top_k = std::max<std::int64_t>(1, heads.experts / 2);
  }
  return layer;
}

// Writes the rows of one layer. load_rows() reads them.
void save_rows(const std::vector<HeadsRow>& rows, const fs::path& file) {
  SafetensorsWriter writer;
  Json json = Json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Heads& heads = rows[i].heads;
    json.push_back({heads.heads, heads.kv_heads, heads.experts, rows[i].loss, heads.shares});
    for (const auto& [name, tensor] : rows[i].fitted) {
      writer.add(fmt::format("{}.{}", i, name), DType::f32, tensor.sizes().vec(), store::bytes_of(tensor));
    }
  }
  writer.set_metadata("rows", json.dump());
  writer.write(file);
}

std::vector<HeadsRow> load_rows(const fs::path& file) {
  const auto stored = std::make_shared<const SafetensorsFile>(file);
  std::vector<HeadsRow> rows;
  for (const Json& row : Json::parse(stored->metadata_at("rows"))) {
    const Heads heads{.heads = row.at(0), .kv_heads = row.at(1), .experts = row.at(2), .shares = row.at(4)};
    rows.push_back({.heads = heads, .loss = row.at(3)});
  }
  for (const auto& [name, tensor] : stored->tensors()) {
    const std::size_t dot = name.find('.');
    rows.at(std::stoul(name.substr(0, dot))).fitted[name.substr(dot + 1)] = store::view_of(stored, name, tensor);
  }
  return rows;
}

// Returns the rows of a cached file; if it is missing or damaged, calls measure() and writes it.
std::vector<HeadsRow> cached(const fs::path& file, const std::function<std::vector<HeadsRow>()>& measure) {
  try {
    if (fs::exists(file)) {
      return load_rows(file);
    }
  } catch (const std::exception&) {
    log_warning("convert: {} is damaged; what it held is measured again", file.string());
  }
  save_rows(measure(), file);
  return load_rows(file);  // maps the parameters, which would otherwise stay in memory
}

void add_fitted(HeadsRow& row, const models::Model& model, std::int64_t layer) {
  for (const nn::Parameter& parameter : model.parameters().stored()) {
    if (parameter.name.starts_with(fmt::format("layer{}.attention.", layer))) {
      row.fitted[parameter.name] = parameter.tensor.detach().contiguous();
    }
  }
}

void write_fitted(const HeadsRow& row, const models::Model& model) {
  const at::NoGradGuard guard;
  for (const auto& [name, values] : row.fitted) {
    model.parameters().at(name).copy_(values);
  }
}

// Returns the least of several durations of a call, in seconds.
double seconds_of(const std::function<void()>& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 7; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

// Returns the seconds of a forward and backward pass of the only layer's attention on random inputs.
double attention_seconds(const config::ModelOptions& layer, std::int64_t sequences) {
  if (layer.attention.n_heads == 0) {
    return 0.0;
  }
  const std::unique_ptr<models::Model> model = models::make_model(layer, 1);
  std::vector<at::Tensor> parameters;
  const nn::Attention attention = attention_of(*model, 0, parameters);
  const at::Tensor x = at::randn({sequences, layer.context_length, layer.d_model}).requires_grad_();
  std::vector<ops::SequenceKeys> keys(1);
  const bool shares = layer.attention.share_kv > 0;
  if (shares) {
    keys[0].k = at::randn({sequences, layer.attention.kv_heads(), layer.context_length, layer.attention.d_head});
    keys[0].v = keys[0].k.clone().requires_grad_();
    keys[0].k.requires_grad_();
  }
  return seconds_of(
      [&] { attention({.x = x, .source = x, .shared_keys = shares ? &keys : nullptr}, {}).sum().backward(); });
}

// Returns the seconds of a forward and backward pass of a model.
double step_seconds(const config::ModelOptions& options, const models::Batch& batch) {
  const std::unique_ptr<models::Model> model = models::make_model(options, 1);
  return seconds_of([&] {
    models::Memory memory;
    model->loss(batch, memory, {}).total().backward();
  });
}

}  // namespace

HeadsTable::HeadsTable(const HeadsRequest& request)
    : request_(request),
      opened_(store::open_model(request.convert.source,
                                {.threads = request.convert.threads, .precision = config::Precision::fp32})),
      convert_(request.convert) {
  convert_.to = "--heads";
  convert_.target = source();
  convert_.out.clear();
  convert_.fit_steps = std::llround(kShortFit * static_cast<double>(request.convert.fit_steps));
  check_source(convert_, source().model);
  store::require_finite(opened_.checkpoint, fmt::format("convert: {}", opened_.name));
  batches_ = read_batches(convert_, source());
  loss_before_ = loss_of(*opened_.model, batches_.held_out);
  measure();
  for (const Limit& limit : request.budget) {
    if (limit.key != "loss") {
      cost_names_.push_back(limit.key);
    }
  }
  if (cost_names_.empty()) {
    cost_names_.emplace_back("macs");
  }
  add_costs();
}

// Returns the request for a choice. Layers with the source's heads have the source's options.
ConvertRequest HeadsTable::request_for(const std::vector<Heads>& heads) const {
  ConvertRequest request = convert_;
  std::vector<config::ModelOptions> layers;
  for (std::size_t layer = 0; layer < heads.size(); ++layer) {
    layers.push_back(with_heads(source().model.of_layer(static_cast<std::int64_t>(layer)), heads[layer]));
    if (heads[layer].shares && may_change(source().model, static_cast<std::int64_t>(layer))) {
      layers.back().attention.n_kv_heads = layers[layer - 1].attention.kv_heads();
    }
  }
  request.target = with_layers(source(), layers);
  return request;
}

ConvertRequest HeadsTable::request_for(const RowOfLayer& choice) const {
  std::vector<Heads> heads;
  for (std::size_t layer = 0; layer < choice.size(); ++layer) {
    heads.push_back(row(choice, layer).heads);
  }
  return request_for(heads);
}

config::Config HeadsTable::config_of(const ConvertRequest& request) const {
  std::vector<std::string> notes;
  return result_config(request, source(), notes);
}

std::unique_ptr<models::Model> HeadsTable::model_of(const ConvertRequest& request) const {
  std::unique_ptr<models::Model> model = models::make_model(config_of(request).model, convert_.seed);
  copy_rest(*opened_.model, *model);
  return model;
}

void HeadsTable::start(const RowOfLayer& choice, const models::Model& target) const {
  const FewerLines quiet;
  const std::vector<std::int64_t> owners = target.options().key_owners(source().model.n_layers);
  for (std::int64_t layer = 0; layer < std::ssize(choice); ++layer) {
    write_fitted(row(choice, static_cast<std::size_t>(layer)), target);
    const std::vector<std::int64_t> group = sharing(owners, layer);
    if (group.size() < 2 || group.back() != layer || !may_change(source().model, layer)) {
      continue;
    }
    const Heads& owner = row(choice, static_cast<std::size_t>(group.front())).heads;
    const fs::path file = folder_ / fmt::format("group {}, {}.safetensors", fmt::join(group, " "), name_of(owner));
    const auto fit_group = [&]() -> std::vector<HeadsRow> {
      LayerConversion conversions(convert_, *opened_.model, batches_);
      std::vector<LayerError> errors;
      HeadsRow fitted;
      for (const std::int64_t member : group) {
        conversions.convert(target, member, errors);
      }
      for (const std::int64_t member : group) {
        add_fitted(fitted, target, member);
      }
      return {fitted};
    };
    write_fitted(cached(file, fit_group).front(), target);
  }
}

double HeadsTable::added(const RowOfLayer& choice) const {
  const std::unique_ptr<models::Model> model = model_of(request_for(choice));
  start(choice, *model);
  return loss_of(*model, batches_.held_out) - loss_before_;
}

void HeadsTable::measure() {
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {}", kTable, train::parameters_sha256(opened_.model->parameters()),
                  config::to_toml({.model = source().model}), batches_.data, batches_.fit.size(), batches_.sequences,
                  convert_.fit_steps, convert_.seed, request_.experts);
  folder_ = convert_.cache / "heads" / sha256_of(key).substr(0, 16);
  make_folder(folder_);
  LayerConversion conversions(convert_, *opened_.model, batches_, /*several=*/true);
  const std::int64_t n = source().model.n_layers;
  Progress progress("convert: heads", n, "layer");
  for (std::int64_t layer = 0; layer < n; ++layer) {
    rows_.push_back(cached(folder_ / fmt::format("layer{}.safetensors", layer), [&] {
      std::vector<HeadsRow> rows;
      for (const Heads& heads : candidates(source().model, layer, request_.experts)) {
        if (rows.empty()) {
          rows.push_back({.heads = heads, .loss = 0.0, .fitted = {}, .costs = {}});
        } else if (std::optional<HeadsRow> row = measured(conversions, heads, layer)) {
          rows.push_back(std::move(*row));
        }
      }
      return rows;
    }));
    for (HeadsRow& row : rows_.back()) {
      row.gives_keys = row.heads.heads > 0 && gives_keys(source().model, layer, row.heads.kv_heads);
    }
    progress.update(layer + 1);
  }
}

std::optional<HeadsRow> HeadsTable::measured(LayerConversion& conversions, const Heads& heads,
                                             std::int64_t layer) const {
  const FewerLines quiet;
  std::vector<Heads> all;
  for (std::int64_t other = 0; other < source().model.n_layers; ++other) {
    all.push_back(other == layer ? heads : heads_of(source().model.of_layer(other).attention));
  }
  const ConvertRequest request = request_for(all);
  try {
    config_of(request);
  } catch (const UserError&) {
    return std::nullopt;  // the source's other settings exclude these heads
  }
  const std::unique_ptr<models::Model> model = model_of(request);
  std::vector<LayerError> errors;
  conversions.convert(*model, layer, errors);
  HeadsRow row{.heads = heads, .loss = 0.0, .fitted = {}, .costs = {}};
  if (!heads.shares) {
    add_fitted(row, *model, layer);
  }
  row.loss = std::max(0.0, loss_of(*model, batches_.held_out) - loss_before_);  // a negative difference is noise
  return row;
}

double HeadsTable::cost(const std::string& name, const config::ModelOptions& layer, double step_seconds) const {
  if (layer.attention.share_kv > 0 && name != "step_time") {  // the cost that a second layer adds
    config::ModelOptions own = layer;
    own.attention.share_kv = 0;
    config::ModelOptions pair = own;
    pair.n_layers = 2;
    pair.layers = {{.repeat = 1, .attention = {}, .mlp = {}},
                   {.repeat = 1, .attention = {{"share_kv", "1"}}, .mlp = {}}};
    return cost(name, pair, step_seconds) - cost(name, own, step_seconds);
  }
  if (name == "macs") {
    return static_cast<double>(cost::executed_cost(layer, 1).attention_macs);
  }
  return name == "kv_cache" ? static_cast<double>(cost::decoding_cache_elements(layer))
                            : std::round(attention_seconds(layer, batches_.sequences) / step_seconds * kTimeUnits);
}

void HeadsTable::add_costs() {
  for (const std::string& name : cost_names_) {
    const double step = name == "step_time" ? step_seconds(source().model, batches_.fit.front()) : 0.0;
    std::map<std::string, double> known;  // by the layer's options
    double total = 0.0;
    for (std::size_t layer = 0; layer < rows_.size(); ++layer) {
      const config::ModelOptions own = source().model.of_layer(static_cast<std::int64_t>(layer));
      for (HeadsRow& row : rows_[layer]) {
        config::ModelOptions only = with_heads(own, row.heads);
        only.n_layers = 1;
        const std::string key = fmt::format("{}", fmt::join(config::differing_keys(only.attention, {}), " "));
        const auto found = known.find(key);
        row.costs.push_back(found != known.end() ? found->second : cost(name, only, step));
        known[key] = row.costs.back();
      }
      total += rows_[layer].front().costs.back();
    }
    fixed_.push_back(name == "step_time" ? std::max(0.0, kTimeUnits - total) : 0.0);
    totals_.push_back(total + fixed_.back());
    if (totals_.back() == 0.0) {
      user_error("convert: --budget: {} of {} is 0, so there is nothing to limit", name, opened_.name);
    }
  }
}

}  // namespace headroom::convert
