#include "model_runner.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "training/tasks/classes/classification.h"

namespace headroom::analyse {
namespace {

void add_stack(std::vector<AttentionLayer>& all, const std::string& stack, std::int64_t layers, bool with_cross) {
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool encoder = stack == "encoder.";
    all.push_back({.name = fmt::format("{}layer{}.attention", stack, layer), .layer = layer, .encoder = encoder});
    if (with_cross) {
      all.push_back({.name = fmt::format("{}layer{}.cross", stack, layer), .layer = layer, .cross = true});
    }
  }
}

}  // namespace

std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const store::OpenedModel& opened) {
  return opened.config().model.kind == config::ModelKind::classifier ? tasks::sequence_tokenizer(opened.config())
                                                                     : opened.checkpoint.tokenizer;
}

ModelRunner::ModelRunner(const store::OpenedModel& opened) : ModelRunner(opened, {}, opened.model->options()) {}

ModelRunner::ModelRunner(const store::OpenedModel& opened, std::vector<std::int64_t> layers,
                         config::ModelOptions options)
    : opened_(&opened), options_(std::move(options)), layers_(std::move(layers)), tokenizer_(tokenizer_of(opened)) {}

bool ModelRunner::includes(std::int64_t layer) const {
  return layers_.empty() || std::ranges::find(layers_, layer) != layers_.end();
}

at::Tensor ModelRunner::find_parameter(std::string_view parameter) const {
  constexpr std::string_view kLayer = "layer";
  std::string stored(parameter);
  if (options().n_groups > 0 && parameter.starts_with(kLayer)) {  // repeated layers share parameters
    stored = fmt::format("{}{}{}", kLayer, layer_index(parameter) % options().n_groups,
                         parameter.substr(parameter.find('.')));
  }
  for (const nn::Parameter& made : model().parameters().in_creation_order()) {
    if (made.name == stored) {
      const at::Tensor value = made.tensor.detach();
      return at::isReducedFloatingType(value.scalar_type()) ? value.to(at::kFloat) : value;  // of a large model
    }
  }
  return {};
}

at::Tensor ModelRunner::parameter(std::string_view parameter) const {
  at::Tensor found = find_parameter(parameter);
  if (!found.defined()) {
    fail("{}: has no parameter {}", name(), parameter);
  }
  return found;
}

std::vector<AttentionLayer> ModelRunner::attention_layers() const {
  std::vector<AttentionLayer> all;
  const config::ModelOptions& o = options();
  if (o.kind == config::ModelKind::encoder_decoder) {
    add_stack(all, "encoder.", o.n_layers, /*with_cross=*/false);
    add_stack(all, "decoder.", o.decoder_layers(), /*with_cross=*/true);
  } else {
    add_stack(all, "", o.n_layers, /*with_cross=*/false);
  }
  std::erase_if(all, [&](const AttentionLayer& layer) {
    return !includes(layer.layer) || !o.of_layer(layer.layer).attention.has_heads();
  });
  return all;
}

void ModelRunner::forward(const InputBatch& input, models::Memory& memory, nn::Observer& observer) const {
  const at::NoGradGuard no_graph;
  nn::Context inner = context();
  inner.observer = &observer;
  if (const auto* language = dynamic_cast<const models::LanguageModel*>(&model())) {
    // Targets of -1 are ignored, so no logits are computed.
    language->score(input.tokens, at::full_like(input.tokens, -1), memory, inner);
    return;
  }
  logits(input, &observer);
}

at::Tensor ModelRunner::logits(const InputBatch& input, nn::Observer* observer) const {
  nn::Context inner = context();
  inner.observer = observer;
  models::Memory none;
  if (const auto* language = dynamic_cast<const models::LanguageModel*>(&model())) {
    return language->logits(input.tokens, none, inner);
  }
  if (const auto* masked = dynamic_cast<const models::MaskedLanguageModel*>(&model())) {
    return masked->logits(input.tokens, {}, inner);
  }
  if (const auto* pairs = dynamic_cast<const models::EncoderDecoder*>(&model())) {
    return pairs->logits({.source = input.tokens, .valid_source = {}, .target = input.target, .valid_target = {}},
                         inner);
  }
  if (const auto* classes = dynamic_cast<const models::ClassModel*>(&model()); classes && options().reads_tokens()) {
    models::Batch batch;
    batch.tensors["tokens"] = input.tokens;
    if (input.target.defined()) {
      batch.tensors["second"] = input.target;
    }
    return classes->class_logits(batch, inner);
  }
  user_error("{}: expected a model that reads text, got one of kind {}", name(), config::name_of(options().kind));
}

std::string token_text(const tokenizers::Tokenizer& spelling, std::int64_t id) {
  const auto token = static_cast<std::int32_t>(id);
  if (id >= spelling.vocabulary_size()) {
    return fmt::format("<{}>", id);  // a special token of the model
  }
  // Decoded after another token, because tokenizers drop the leading blank at the start of a text.
  std::vector<std::int32_t> before;
  try {
    before = spelling.encode("a");
  } catch (const UserError&) {  // "a" is not in the vocabulary
  }
  std::string text = tokenizers::text_after(spelling, before, token);
  if (text.empty()) {
    return token == spelling.begin_id() ? "<s>" : token == spelling.end_id() ? "</s>" : fmt::format("<{}>", id);
  }
  if (is_utf8(text)) {
    return text;
  }
  std::string spelled;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    spelled += byte < 0x80 ? std::string(1, c) : fmt::format("\\x{:02X}", byte);
  }
  return spelled;
}

void stop_if_interrupted() {
  if (interrupted()) {
    throw InterruptedError("interrupted");
  }
}

std::int64_t layer_index(std::string_view name) {
  constexpr std::string_view kLayer = "layer";
  const std::string_view after = name.substr(name.find(kLayer) + kLayer.size());
  return whole_number(after.substr(0, after.find('.'))).value_or(0);
}

std::string layer_of(std::string_view value) {
  return std::string(value.substr(0, value.rfind('.')));
}

std::string_view value_of(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

std::string_view weights_value(const config::AttentionOptions& options) {
  return options.score->has_scores() ? "probs_composed" : "probs";
}

at::Tensor attention_matrices(const at::Tensor& weights, const config::AttentionOptions& options) {
  if (options.score->has_scores()) {
    return weights;
  }
  const at::Tensor sizes = weights.abs();  // the weights of a delta rule may be negative
  return sizes / sizes.sum(-1, /*keepdim=*/true);
}

std::string applies_always(const config::ModelOptions& /*options*/) {
  return {};
}

std::string refuse_without_head_matrices(const config::ModelOptions& options) {
  const auto& projection = options.attention.projection;
  if (options.attention.share_kv > 0) {
    return "its layers use the keys and values of others (share_kv); the analysis needs each layer's own matrices";
  }
  return projection->has_head_matrices()
             ? ""
             : fmt::format("its projection is \"{}\"; the analysis needs one query, key and value matrix per head",
                           projection.name());
}

std::string refuse_all_but_language_models(const config::ModelOptions& options) {
  return options.kind == config::ModelKind::language_model
             ? ""
             : fmt::format("it is of kind {}; the analysis needs a language model", config::name_of(options.kind));
}

RoutedExperts routing_of(const nn::Recorder& recorder, const std::string& layer) {
  for (const char* site : {".select_out", ".select"}) {
    if (recorder.values.contains(layer + site + ".index")) {
      return {recorder.at(layer + site + ".index"), recorder.at(layer + site + ".weight")};
    }
  }
  return {};
}

at::Tensor head_outputs(const ModelRunner& runner, const std::string& layer, const at::Tensor& o,
                        const RoutedExperts& routing) {
  at::Tensor w = runner.parameter(layer + ".w_o").to(o.scalar_type());
  const std::int64_t b = o.size(0), h = o.size(1), t = o.size(2);
  const config::AttentionOptions& options = runner.options().attention;
  if (options.projection->heads_per_expert(options) > 1) {
    w = w.transpose(0, 1).flatten(0, 1);  // in the order of heads_in_slots()
  }
  const bool experts = w.dim() == 4;
  if (!experts && !routes_heads(options)) {
    return at::einsum("bhte,hed->bhtd", {o, w});
  }
  // One row per token: [N, H, w].
  const at::Tensor rows = o.transpose(1, 2).reshape({b * t, h, -1});
  at::Tensor sum;
  if (!experts) {  // slot h holds the h-th routed head
    const at::Tensor index = heads_in_slots(routing, options),
                     weight = routing_of_slots(routing, options).weight.flatten(1).to(o.scalar_type());  // [N, H]
    const at::Tensor all = at::einsum("nhe,xed->nhxd", {rows, w});
    sum = all.gather(2, index.view({b * t, h, 1, 1}).expand({-1, -1, 1, w.size(2)})).squeeze(2) * weight.unsqueeze(2);
  } else {
    const at::Tensor all = at::einsum("nhe,hxed->nhxd", {rows, w});
    const at::Tensor gate = dense_gates(routing, w.size(1)).to(o.scalar_type());
    sum = (all * gate.unsqueeze(3)).sum(2);
  }
  return sum.view({b, t, h, -1}).transpose(1, 2);
}

at::Tensor direct_logit_matrix(const ModelRunner& runner, bool through_norm) {
  const config::ModelOptions& o = runner.options();
  at::Tensor matrix = (o.tied_embeddings ? runner.parameter("embed").t() : runner.parameter("head.w")).to(at::kFloat);
  if (through_norm && o.norm_position == config::NormPosition::pre) {
    matrix = matrix * runner.parameter("norm_f.scale").to(at::kFloat).unsqueeze(1);
    matrix = o.norm == config::Norm::layer ? matrix - matrix.mean(0, /*keepdim=*/true) : matrix;
  }
  return matrix;
}

bool routes_heads(const config::AttentionOptions& options) {
  return !options.projection->has_fixed_heads();
}

RoutedExperts routing_of_slots(const RoutedExperts& routing, const config::AttentionOptions& options) {
  const std::int64_t heads = options.projection->heads_per_expert(options);
  return heads == 1 ? routing
                    : RoutedExperts{routing.index.expand({-1, heads, -1}), routing.weight.expand({-1, heads, -1})};
}

at::Tensor heads_in_slots(const RoutedExperts& routing, const config::AttentionOptions& options) {
  const at::Tensor index = routing_of_slots(routing, options).index;
  const at::Tensor group = at::arange(index.size(1), index.options()).view({1, -1, 1});
  return (index + group * options.projection->router_width(options)).flatten(1);
}

at::Tensor dense_gates(const RoutedExperts& routing, std::int64_t n_experts) {
  const at::Tensor weight = routing.weight.to(at::kFloat);
  return at::zeros({weight.size(0), weight.size(1), n_experts}, weight.options()).scatter(2, routing.index, weight);
}

bool Replacer::wants(std::string_view name) const {
  return instead.contains(name) || nn::Recorder::wants(name);
}

at::Tensor Replacer::observe(std::string_view name, at::Tensor value) {
  if (nn::Recorder::wants(name)) {
    nn::Recorder::observe(name, value);
  }
  const auto found = instead.find(name);
  return found == instead.end() ? value : found->second.to(value.scalar_type()).expand(value.sizes()).contiguous();
}

void add_to(at::Tensor& sum, const at::Tensor& more) {
  sum = sum.defined() ? sum + more : more;
}

draw::Cells cells_of(const at::Tensor& matrix) {
  const at::Tensor flat = matrix.detach().to(at::kCPU, at::kFloat).contiguous();
  return {.rows = static_cast<std::size_t>(flat.size(0)),
          .columns = static_cast<std::size_t>(flat.size(1)),
          .values = {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()}};
}

std::vector<double> to_vector(const at::Tensor& vector) {
  const at::Tensor flat = vector.detach().to(at::kCPU, at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

std::vector<std::string> token_texts(const ModelRunner& runner, const at::Tensor& tokens, TextSide side) {
  const at::Tensor flat = tokens.reshape({-1}).to(at::kCPU, at::kLong).contiguous();
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    texts.push_back(runner.token_text(flat.const_data_ptr<std::int64_t>()[i], side));
  }
  return texts;
}

std::string display_text(std::string_view token) {
  std::string text;
  for (const char c : token) {
    text += c == '\n' ? std::string("\u21b5") : c == '\t' ? std::string("\u21e5") : std::string(1, c);
  }
  const bool blank = std::ranges::all_of(text, [](char c) { return c == ' '; });
  return blank ? std::string("\u2423") : text.front() == ' ' ? text.substr(1) : text;
}

Json heat_map_of(draw::HeatMap map, const at::Tensor& values, double full) {
  map.cells = cells_of(values);
  map.shade.full = full > 0.0 ? full : values.abs().max().item<double>();
  return block_of(map);
}

at::Tensor shade_end(const at::Tensor& weights) {
  constexpr double kShaded = 0.995;
  const at::Tensor sizes = weights.abs().to(at::kFloat), seen = sizes.masked_select(sizes.gt(0.0));
  const auto place = static_cast<std::int64_t>(std::ceil(kShaded * static_cast<double>(seen.numel())));
  return place == 0 ? at::zeros({}) : std::get<0>(seen.kthvalue(place));
}

Json attention_map(draw::HeatMap map, const at::Tensor& weights) {
  map.cells = cells_of(weights);
  map.shade = {.full = shade_end(weights).item<double>(), .power = 0.5};
  return block_of(map);
}

Json table_of(const std::vector<std::string>& head, const std::vector<std::vector<Json>>& rows) {
  return {{"table", {{"columns", head}, {"rows", rows}}}};
}

}  // namespace headroom::analyse
