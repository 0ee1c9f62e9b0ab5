#include "reader.h"

#include <ATen/core/grad_mode.h>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "training/tasks/classes/classification.h"

namespace headroom::inspect {
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

Reader::Reader(const store::OpenedModel& opened) : opened_(&opened), tokenizer_(tokenizer_of(opened)) {}

at::Tensor Reader::parameter(std::string_view parameter) const {
  for (const nn::Parameter& made : model().parameters().in_creation_order()) {
    if (made.name == parameter) {
      return made.tensor.detach();
    }
  }
  fail("{}: has no parameter {}", name(), parameter);
}

std::vector<AttentionLayer> Reader::attention_layers() const {
  std::vector<AttentionLayer> all;
  const config::ModelOptions& o = options();
  if (o.kind == config::ModelKind::encoder_decoder) {
    add_stack(all, "encoder.", o.n_layers, /*with_cross=*/false);
    add_stack(all, "decoder.", o.decoder_layers(), /*with_cross=*/true);
  } else {
    add_stack(all, "", o.n_layers, /*with_cross=*/false);
  }
  return all;
}

void Reader::read(const Reading& reading, models::Memory& memory, nn::Observer& observer) const {
  const at::NoGradGuard no_graph;
  nn::Context inner = context();
  inner.observer = &observer;
  if (const auto* language = dynamic_cast<const models::LanguageModel*>(&model())) {
    // No target counts: the vocabulary's scores are left out.
    language->score(reading.tokens, at::full_like(reading.tokens, -1), memory, inner);
    return;
  }
  logits(reading, &observer);
}

at::Tensor Reader::logits(const Reading& reading, nn::Observer* observer) const {
  nn::Context inner = context();
  inner.observer = observer;
  models::Memory none;
  if (const auto* language = dynamic_cast<const models::LanguageModel*>(&model())) {
    return language->logits(reading.tokens, none, inner);
  }
  if (const auto* masked = dynamic_cast<const models::MaskedLanguageModel*>(&model())) {
    return masked->logits(reading.tokens, {}, inner);
  }
  if (const auto* pairs = dynamic_cast<const models::EncoderDecoder*>(&model())) {
    return pairs->logits({.source = reading.tokens, .valid_source = {}, .target = reading.target, .valid_target = {}},
                         inner);
  }
  if (const auto* classes = dynamic_cast<const models::ClassModel*>(&model()); classes && options().reads_tokens()) {
    models::Batch batch;
    batch.tensors["tokens"] = reading.tokens;
    if (reading.target.defined()) {
      batch.tensors["second"] = reading.target;
    }
    return classes->class_logits(batch, inner);
  }
  user_error("{}: is a model of kind {}, which reads no text", name(), config::name_of(options().kind));
}

std::string Reader::token_text(std::int64_t id, Side side) const {
  const auto token = static_cast<std::int32_t>(id);
  const tokenizers::Tokenizer& known = tokenizer(side);
  if (id >= known.vocabulary_size()) {
    return fmt::format("<{}>", id);  // a special token of the model
  }
  // What it adds to a text: a blank in front of it is lost at the beginning of one.
  std::vector<std::int32_t> ids;
  try {
    ids = known.encode("a");
  } catch (const UserError&) {  // a vocabulary of the bytes that its text held
  }
  std::string text = tokenizers::text_after(known, ids, token);
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

}  // namespace headroom::inspect
