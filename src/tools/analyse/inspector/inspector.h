// The inspector: what one or more models compute for one text, on a self-contained HTML page. It shows attention maps,
// the contributions to each attention layer's output, routed experts, predictions, and the contributions to logits. For
// a classifier it shows class probabilities instead of predictions and logits.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::inspector {

// An array for the page, packed as packing.h describes; the page looks it up by name. T tokens, H heads of the layer
// (of routed heads: slots of a token, times heads of an expert), n contributions and k predictions kept per token, E
// experts, K routed experts, l the layer.
//   thumbnails           uint8 [heads of all layers, side, side]: thumbnail()
//   map.l.h, before.l.h  pack_map() of the attention weights, and of the weights before heads compose
//   contributions.l      uint16 [T, n] source, head, value expert, output expert (65535: none); float16 [T, n] size, a
//                        share of the output's length; for each decomposition float16 [T, n, terms]; float32 [T] length
//                        of the output, error of the sum, size of the bias, size of all others; float32 [T, H] by head;
//                        for each decomposition float32 [T, terms] of the whole output; float16 [T, n, terms] of scores
//   select.l, select_in.l, select_out.l  uint16 [T, heads, K] routed experts, float16 [T, heads, K] their weights
//   predictions          int32 [T, k] tokens, float32 [T, k] probabilities; float32 [T] probability and int32 [T]
//                        rank of the next token; float32 [T] entropy in nats
//   logits               float32 [2, T, 3 + sum over layers of H + 2] for the next and the most likely token: its
//                        logit, the contribution of the embedding and of constants, and per layer of heads, bias and
//                        MLP
//   logit_experts.l      float16 [2, T, H, value experts + output experts] their contributions to the logit
//   changes              with an observer: float32 [T] divergence in nats; int32 [T, k] tokens, float32 [T, k] their
//                        probabilities before and after
struct PackedArray {
  std::string name;
  std::string bytes;
};

struct Inspection {
  Json about;  // shapes, names and settings, which the page needs to read the arrays
  std::vector<PackedArray> packed;
  std::vector<std::int64_t> vocabulary;  // ids of all predicted tokens, ascending
};

struct InspectLimits {
  std::int64_t bytes = 14'000'000;       // approximate size of all packed arrays
  std::int64_t most_contributions = 32;  // per token and layer, the largest; fewer if they do not fit
  bool show_progress = true;
  std::function<void()> check =
      nullptr;  // called before each layer; may throw to end the inspection; default: throws after Ctrl-C
};

// Throws UserError unless the model is a language model or a classifier of single texts.
void require_inspectable(const config::ModelOptions& options);
// Throws UserError if require_inspectable() does, or if `ids` is empty or longer than the model's context_length.
// `context.observer` may change values (ablation.h); the page then shows the changed values. Memory: several copies of
// one layer's pair values [H, T, T].
Inspection inspect_text(const models::Model& model, const std::vector<std::int32_t>& ids, const nn::Context& context,
                        const InspectLimits& limits = {});

struct InspectorView {
  std::string run;  // checkpoints of the same run share a slider
  std::int64_t step = 0;
  Inspection text;
  std::vector<std::string> class_names = {};  // for a classifier; empty: classes are numbered
};

// The page of a server. Its script posts {"model", "text", "switched_off"} to `path` and replaces the page with the
// response.
struct LivePage {
  std::string path;
  std::vector<std::string> models;  // all served models
  std::string model, text;          // what this page shows
  Json switched_off = Json::array();
};

struct InspectorPage {
  std::string title;
  std::vector<std::int32_t> ids;           // empty: a live page without a text
  const tokenizers::Tokenizer& tokenizer;  // shared by all views
  std::vector<InspectorView> views;
  std::optional<LivePage> live = {};
};

std::string render_inspector(const InspectorPage& page);

}  // namespace headroom::inspector
