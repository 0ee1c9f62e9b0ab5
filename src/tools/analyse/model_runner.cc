#include "model_runner.h"

#include <ATen/core/grad_mode.h>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "layers.h"
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
  return layers_.empty() || std::find(layers_.begin(), layers_.end(), layer) != layers_.end();
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
  std::erase_if(all, [&](const AttentionLayer& layer) { return !includes(layer.layer); });
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

}  // namespace headroom::analyse
