#include "activations.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/models/block.h"
#include "engine/models/vocabulary_layers.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/store/checkpoint.h"
#include "training/tasks/task.h"
#include "training/train/loop/start.h"

namespace headroom::convert {
namespace {

bool is_causal(const config::ModelOptions& model) {
  return model.kind == config::ModelKind::language_model;
}

models::Block block_of(const models::Model& model, std::int64_t layer) {
  return part_of(model, nullptr, [&](const nn::Builder& build) {
    return models::Block(model.options().of_layer(layer), place_of(model.options(), layer),
                         build.in(fmt::format("layer{}", layer)));
  });
}

at::Tensor wide(const at::Tensor& value) {
  return value.to(at::kFloat);
}

// sum += own, in float64.
void add(at::Tensor& sum, const at::Tensor& own) {
  if (sum.defined()) {
    sum.add_(own);
  } else {
    sum = own.to(at::kDouble);
  }
}

// Returns z of each head and a constant 1, [B T, H d + 1].
at::Tensor head_features(const at::Tensor& maps, const at::Tensor& source) {
  const at::Tensor z = at::matmul(maps, source.unsqueeze(1)).transpose(1, 2);  // [B, T, H, d]
  at::Tensor features = at::ones({z.size(0), z.size(1), z.size(2) * z.size(3) + 1}, z.options());
  features.narrow(2, 0, z.size(2) * z.size(3)).unflatten(2, {z.size(2), z.size(3)}).copy_(z);
  return features.flatten(0, 1);
}

// Adds features^T features to the square blocks of `gram` on and above the diagonal. For wide models the gram matrix is
// the largest tensor of a conversion, so no second matrix of its size is made.
void add_upper_gram(const at::Tensor& gram, const at::Tensor& features, std::int64_t block) {
  const std::int64_t n = features.size(1);
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t size = std::min(block, n - begin);
    gram.narrow(0, begin, size)
        .narrow(1, begin, n - begin)
        .add_(at::mm(features.narrow(1, begin, size).t(), features.narrow(1, begin, n - begin)));
  }
}

// Copies the blocks above the diagonal to those below.
void mirror_upper(const at::Tensor& gram, std::int64_t block) {
  const std::int64_t n = gram.size(0);
  for (std::int64_t end = block; end < n; end += block) {
    const std::int64_t begin = end - block;
    gram.narrow(0, end, n - end)
        .narrow(1, begin, block)
        .copy_(gram.narrow(0, begin, block).narrow(1, end, n - end).t());
  }
}

}  // namespace

nn::AttentionPlace place_of(const config::ModelOptions& model, std::int64_t layer) {
  const bool causal = is_causal(model);
  return {.d_model = model.d_model,
          .n_layers = model.n_layers,
          .layer = layer,
          .causal = causal,
          .cross = false,
          .window = causal ? model.of_layer(layer).attention.window : 0,
          .context_length = model.context_length,
          .memory_length = causal ? model.memory_length : 0};
}

std::string LayerWalk::prefix() const {
  return fmt::format("layer{}.", layer_);
}

LayerWalk::LayerWalk(const models::Model& model, std::vector<models::Batch> batches)
    : model_(model),
      batches_(std::move(batches)),
      owners_(model.options(), model.options().n_layers),
      shared_(batches_.size()) {}

void LayerWalk::go_to(std::int64_t layer) {
  const at::NoGradGuard guard;
  if (layer_ < 0) {
    const models::Embedding embedding =
        part_of(model_, nullptr, [&](const nn::Builder& build) { return models::Embedding(model_.options(), build); });
    for (const models::Batch& batch : batches_) {
      const at::Tensor& tokens = batch.at("tokens");
      const bool shifts = is_causal(model_.options()) && !batch.find("targets").defined();
      in_.push_back(embedding(shifts ? tokens.slice(1, 0, -1) : tokens, 0, {}));
    }
    layer_ = 0;
  }
  for (; layer_ < layer; ++layer_) {
    if (out_.empty()) {
      run({}, [](const nn::Recorder&) {});
    }
    in_ = std::exchange(out_, {});
  }
}

void LayerWalk::run(const std::vector<std::string>& names, const std::function<void(const nn::Recorder&)>& visit) {
  const at::NoGradGuard guard;
  const models::Block block = block_of(model_, layer_);
  const std::int64_t keep = is_causal(model_.options()) ? model_.options().memory_length : 0;
  const std::vector<std::string> full = transformed(names, [&](const std::string& name) { return prefix() + name; });
  std::vector<at::Tensor> out;
  at::Tensor memory;
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    nn::Recorder recorder(full);
    nn::Context context;
    context.observer = &recorder;
    models::BlockInput input;
    input.h = in_[i];
    input.memory = memory;
    input.shared_keys = owners_.find(static_cast<std::size_t>(layer_), shared_[i]);
    if (const at::Tensor valid = batches_[i].find("valid"); valid.defined() && !is_causal(model_.options())) {
      input.valid_keys = valid;
    }
    if (keep > 0) {
      memory = models::next_memory(memory, in_[i], keep);
    }
    const at::Tensor h = block(input, context.in(fmt::format("layer{}", layer_)));
    if (out_.empty()) {
      out.push_back(h);
    }
    visit(recorder);
  }
  if (out_.empty()) {
    out_ = std::move(out);
  }
}

LayerActivations LayerActivations::narrow(std::int64_t begin, std::int64_t count) const {
  return {x.narrow(0, begin, count), source.narrow(0, begin, count), y.narrow(0, begin, count)};
}

LayerActivations LayerActivations::select(const at::Tensor& sequences) const {
  return {x.index_select(0, sequences), source.index_select(0, sequences), y.index_select(0, sequences)};
}

LayerActivations collect_attention(LayerWalk& walk) {
  const std::string place = walk.prefix() + "attention.";
  std::vector<at::Tensor> x, source, y;
  bool same = true;  // without memory, keys and values come from the layer's own inputs
  walk.run({"attention.x", "attention.source", "attention.out"}, [&](const nn::Recorder& values) {
    if (!source.empty() && values.at(place + "source").size(1) != source.front().size(1)) {
      x.clear(), source.clear(), y.clear();  // the first batches have shorter memory; skip them
    }
    x.push_back(wide(values.at(place + "x")));
    source.push_back(wide(values.at(place + "source")));
    y.push_back(wide(values.at(place + "out")));
    same = same && source.back().is_same(x.back());
  });
  const at::Tensor all = at::cat(x);
  return {all, same ? all : at::cat(source), at::cat(y)};
}

LayerActivations collect_mlp(LayerWalk& walk) {
  std::vector<at::Tensor> x, y;
  walk.run({"ffn.x", "ffn.out"}, [&](const nn::Recorder& values) {
    x.push_back(wide(values.at(walk.prefix() + "ffn.x")));
    y.push_back(wide(values.at(walk.prefix() + "ffn.out")));
  });
  const at::Tensor all = at::cat(x);
  return {all, all, at::cat(y)};
}

at::Tensor covariance_of(LayerWalk& walk) {
  at::Tensor sum;
  double tokens = 0.0;
  walk.run({"attention.source"}, [&](const nn::Recorder& values) {
    const at::Tensor x = wide(values.at(walk.prefix() + "attention.source")).flatten(0, 1);
    add(sum, at::mm(x.t(), x));
    tokens += static_cast<double>(x.size(0));
  });
  return sum / tokens;
}

HeadSums collect_heads(LayerWalk& walk) {
  const std::string place = walk.prefix() + "attention.";
  HeadSums sums;
  walk.run({"attention.source", "attention.probs", "attention.out"}, [&](const nn::Recorder& values) {
    const at::Tensor maps = wide(values.at(place + "probs")), source = wide(values.at(place + "source"));
    const at::Tensor y = wide(values.at(place + "out")).flatten(0, 1);
    const at::Tensor features = head_features(maps, source);
    sums.n_heads = maps.size(1);
    sums.width = source.size(2);
    if (!sums.gram.defined()) {
      sums.gram = at::zeros({features.size(1), features.size(1)}, at::kDouble);
    }
    add_upper_gram(sums.gram, features, sums.width);
    add(sums.cross, at::mm(features.t(), y));
    sums.energy += y.square().sum().item<double>();
    sums.queries += static_cast<double>(y.size(0));
  });
  mirror_upper(sums.gram, sums.width);
  return sums;
}

at::Tensor HeadSums::rows_of(const std::vector<std::int64_t>& heads) const {
  std::vector<at::Tensor> rows =
      transformed(heads, [&](std::int64_t head) { return at::arange(head * width, (head + 1) * width, at::kLong); });
  rows.push_back(at::full({1}, n_heads * width, at::kLong));
  return at::cat(rows);
}

double loss_of(const models::Model& model, const std::vector<models::Batch>& batches) {
  const at::NoGradGuard guard;
  models::Memory memory;
  double sum = 0.0, targets = 0.0;
  for (const models::Batch& batch : batches) {
    const auto n = static_cast<double>(batch.n_targets());
    sum += n * model.loss(batch, memory, {}).cross_entropy.item<double>();
    targets += n;
  }
  return sum / targets;
}

namespace {

constexpr std::int64_t kStepTokens = 2048;   // tokens in a batch of the fit
constexpr std::int64_t kMostTokens = 32768;  // default of ConvertRequest::tokens

// Reads batches of `tokens` tokens in total and half as many held-out ones; nullopt if the text has fewer.
std::optional<Batches> read_batches(const ConvertRequest& request, config::Config config, std::int64_t tokens) {
  const std::int64_t length = config.model.context_length;
  Batches batches{.fit = {},
                  .held_out = {},
                  .sequences = std::max<std::int64_t>(1, std::min(kStepTokens, tokens / 4) / length),
                  .data = {}};
  config.train.batch_size = batches.sequences;
  const tasks::TaskData data = train::open_data_with(tasks::task_for(config, "convert"), config,
                                                     store::find_checkpoint(request.source), request.cache);
  batches.data = data.training->identity();
  const std::int64_t rows = batches.sequences * length;
  const std::int64_t wanted = std::max<std::int64_t>(1, ceil_div(tokens, rows)), held_out = (wanted + 1) / 2;
  for (std::int64_t i = 0; i < wanted + held_out; ++i) {
    if (data.training->position().epoch > 0) {
      return std::nullopt;
    }
    (i < wanted ? batches.fit : batches.held_out).push_back(data.training->next());
  }
  return batches;
}

}  // namespace

Batches read_batches(const ConvertRequest& request, config::Config config) {
  if (!request.data.empty()) {
    if (config.data.synthetic != config::Synthetic::none) {
      user_error("convert: --data: {} was trained on generated sequences (data.synthetic); leave --data out",
                 request.source);
    }
    config.data.train = request.data;
    config.data.validation.clear();
    config.data.mixture.clear();
  }
  config.train.batch_tokens = 0;
  config.train.accumulate = 1;
  config.train.seed = static_cast<std::int64_t>(request.seed);
  const std::int64_t least = request.tokens > 0 ? request.tokens : 4 * config.model.context_length;
  for (std::int64_t tokens = request.tokens > 0 ? request.tokens : std::max(kMostTokens, least); tokens >= least;
       tokens /= 2) {
    try {
      if (std::optional<Batches> batches = read_batches(request, config, tokens)) {
        return std::move(*batches);
      }
    } catch (const UserError&) {  // the text may be too small for a batch of this size, but not for a smaller one
      if (tokens / 2 < least) {
        throw;
      }
    }
  }
  user_error("convert: --data: must have at least {} tokens and half as many held-out ones; give more text{}", least,
             request.tokens > 0 ? ", or fewer --tokens" : "");
}

}  // namespace headroom::convert
