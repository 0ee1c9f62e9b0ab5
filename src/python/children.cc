// What a block and a model consist of, each child a layer by itself: Python makes modules of them.
#include <torch/library.h>

#include "engine/models/block.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "layer.h"
#include "refusal.h"

namespace headroom::python {
namespace {

using Children = std::vector<std::pair<std::string, Layer>>;  // each under the name that its parameters begin with

// The order in which a block makes its parameters.
Children children_of_block(const Layer& block) {
  const Layer norm{.kind = "norm", .model = block.model}, mlp{.kind = "mlp", .model = block.model};
  const Layer attention{.kind = "attention", .causal = block.causal, .index = block.index, .model = block.model};
  Children children = {{"norm_1", norm}, {"attention", attention}, {"norm_2", norm}, {"ffn", mlp}};
  if (block.cross) {
    Layer across{.kind = "attention", .causal = false, .cross = true, .model = block.model};
    across.model.attention = block.model.attention.across_sequences();
    children.emplace_back("norm_cross", norm);
    children.emplace_back("cross", across);
  }
  return children;
}

// `n` blocks, and the norm after them where there is one.
void add_stack(Children& children, const std::string& scope, Layer block, std::int64_t n, bool norm) {
  block.kind = "block";
  block.model.n_layers = n;
  for (block.index = 0; block.index < n; ++block.index) {
    children.emplace_back(fmt::format("{}layer{}", scope, block.index), block);
  }
  if (norm) {
    children.emplace_back(scope + "norm_f", Layer{.kind = "norm", .model = block.model});
  }
}

Children children_of_model(const Layer& model) {
  const config::ModelOptions& o = model.model;
  Children children;
  Layer block{.kind = "block", .causal = false, .model = o};
  switch (o.kind) {
    case config::ModelKind::language_model:
      block.causal = true;
      add_stack(children, "", block, o.n_layers, true);
      children.emplace_back("head", Layer{.kind = "head", .model = o});
      break;
    case config::ModelKind::encoder_decoder: {
      const bool norm = o.norm_position == config::NormPosition::pre;
      add_stack(children, "encoder.", block, o.n_layers, norm);
      block.causal = block.cross = true;
      add_stack(children, "decoder.", block, o.decoder_layers(), norm);
      break;
    }
    case config::ModelKind::vision:
      block.model.context_length = o.patches();
      [[fallthrough]];
    case config::ModelKind::masked_language_model:
    case config::ModelKind::classifier:
      add_stack(children, "", block, o.n_layers, true);
      break;
  }
  return children;
}

std::string children_of(const std::string& text) {
  const Layer& layer = layer_of(text);
  Json list = Json::array();
  const Children children = layer.kind == "block"   ? children_of_block(layer)
                            : layer.kind == "model" ? children_of_model(layer)
                                                    : Children();
  for (const auto& [name, child] : children) {
    list.push_back({{"name", name}, {"kind", child.kind}, {"layer", describe(child)}});
  }
  return to_json_line(list);
}

at::Tensor remembered(const std::optional<at::Tensor>& memory, const at::Tensor& h, std::int64_t keep) {
  return models::remembered(memory.value_or(at::Tensor()), h, keep);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("children_of", refusing(children_of));
  library.def("remembered", refusing(remembered));
}

}  // namespace headroom::python
