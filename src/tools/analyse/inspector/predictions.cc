#include "predictions.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::inspector {
namespace {

constexpr std::int64_t kPositionsAtOnce = 256;  // limits the V logits per position that are held in memory

struct Unembedding {
  at::Tensor w, b;  // [d, V], [V] or undefined
};

at::Tensor model_parameter(const models::Model& model, const std::string& name) {
  return model.parameters().at(name).detach().to(at::kFloat);
}

std::optional<Unembedding> unembedding(const models::LanguageModel& model) {
  const config::ModelOptions& o = model.options();
  if (!o.adaptive_cutoffs.empty()) {
    return std::nullopt;
  }
  Unembedding un;
  un.w = o.tied_embeddings ? model_parameter(model, "embed").t() : model_parameter(model, "head.w");
  if (o.head_bias) {
    un.b = model_parameter(model, "head.b");
  }
  return un;
}

// One forward pass. Computes distributions over the vocabulary on demand, for a block of positions.
class PredictionPass {
 public:
  PredictionPass(const models::LanguageModel& model, const at::Tensor& ids, const nn::Context& context)
      : un_(unembedding(model)) {
    const std::string last = fmt::format("layer{}.out", model.options().n_layers - 1);
    nn::Recorder recorder({last, "norm_f"});
    ObserverChain both(context.observer, recorder);
    nn::Context inner = context;
    inner.observer = &both;
    models::Memory memory;
    const at::Tensor inputs = ids.unsqueeze(0);
    if (un_) {  // skips the output layer
      model.score(inputs, at::full_like(inputs, -1), memory, inner);
    } else {
      logits_ = model.logits(inputs, memory, inner)[0];
    }
    stream = recorder.at(last)[0].to(at::kFloat);
    normed = recorder.at("norm_f")[0].to(at::kFloat);
  }

  at::Tensor log_probability(std::int64_t begin, std::int64_t count) const {
    if (!un_) {
      return logits_.narrow(0, begin, count).to(at::kFloat).log_softmax(-1);
    }
    const at::Tensor logits = normed.narrow(0, begin, count).matmul(un_->w);
    return (un_->b.defined() ? logits + un_->b : logits).log_softmax(-1);
  }

  const std::optional<Unembedding>& vocabulary() const { return un_; }

  at::Tensor stream, normed;  // [T, d] before and after the final norm

 private:
  std::optional<Unembedding> un_;
  at::Tensor logits_;
};

void append_rows(at::Tensor& to, const at::Tensor& more) {
  to = to.defined() ? at::cat({to, more}) : more;
}

void for_chunks(std::int64_t n, const std::function<void(std::int64_t begin, std::int64_t count)>& act) {
  for (std::int64_t begin = 0; begin < n; begin += kPositionsAtOnce) {
    act(begin, std::min(kPositionsAtOnce, n - begin));
  }
}

void append_predictions(Predictions& p, const at::Tensor& log_p, const at::Tensor& next, std::int64_t n_likeliest) {
  const auto [values, index] = log_p.topk(std::min(n_likeliest, log_p.size(1)), -1);
  const at::Tensor right = log_p.gather(1, next.unsqueeze(1));
  append_rows(p.likeliest, index);
  append_rows(p.probability, values.exp());
  append_rows(p.next_probability, right.squeeze(1).exp());
  append_rows(p.next_rank, log_p.gt(right).sum(1));
  append_rows(p.entropy, -(log_p.exp() * log_p).nan_to_num(0.0).sum(1));
}

// logit = norm(h) . w + b, where norm(h) = (h - mean) factor * scale + bias; RMS norms have no mean and bias.
void set_directions(Predictions& p, const models::LanguageModel& model, const Unembedding& un, const at::Tensor& h,
                    const at::Tensor& normed) {
  const config::ModelOptions& o = model.options();
  const at::Tensor scale = model_parameter(model, "norm_f.scale");
  const bool centres = o.norm == config::Norm::layer;
  const at::Tensor centred = centres ? h - h.mean(-1, /*keepdim=*/true) : h;
  const at::Tensor factor = (centred.square().mean(-1, /*keepdim=*/true) + o.last_norm_epsilon()).rsqrt();
  for (std::size_t i = 0; i < Predictions::kTargets; ++i) {
    const at::Tensor columns = un.w.index_select(1, p.target[i]).t();  // [T, d]
    at::Tensor direction = columns * scale;
    p.constant[i] = at::zeros({h.size(0)}, h.options());
    if (centres) {
      direction = direction - direction.mean(-1, /*keepdim=*/true);
      p.constant[i] = (columns * model_parameter(model, "norm_f.bias")).sum(-1);
    }
    p.logit[i] = (normed * columns).sum(-1);
    if (un.b.defined()) {
      const at::Tensor bias = un.b.index_select(0, p.target[i]);
      p.logit[i] = p.logit[i] + bias;
      p.constant[i] = p.constant[i] + bias;
    }
    p.direction[i] = direction * factor;
  }
  p.linear = true;
}

}  // namespace

Predictions predict(const models::LanguageModel& model, const at::Tensor& ids, const nn::Context& context,
                    std::int64_t n_likeliest) {
  const at::NoGradGuard no_grad;
  const PredictionPass pass(model, ids, context);
  const at::Tensor next = at::cat({ids.slice(0, 1), ids.slice(0, 0, 1)});
  Predictions p;
  for_chunks(ids.size(0), [&](std::int64_t begin, std::int64_t count) {
    append_predictions(p, pass.log_probability(begin, count), next.narrow(0, begin, count), n_likeliest);
  });
  p.next_probability[-1] = 0.0;
  p.next_rank[-1] = 0;
  p.target[1] = p.likeliest.select(1, 0);
  p.target[0] = next.clone();
  p.target[0][-1] = p.target[1][-1];
  const config::ModelOptions& o = model.options();
  if (pass.vocabulary() && o.norm_position == config::NormPosition::pre && !o.output_norms) {
    set_directions(p, model, *pass.vocabulary(), pass.stream, pass.normed);
  }
  return p;
}

PredictionChanges changes_of_predictions(const models::LanguageModel& model, const at::Tensor& ids,
                                         const nn::Context& context, std::int64_t k) {
  const at::NoGradGuard no_grad;
  nn::Context plain = context;
  plain.observer = nullptr;
  const PredictionPass before(model, ids, plain), after(model, ids, context);
  PredictionChanges changes;
  for_chunks(ids.size(0), [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor log_p = before.log_probability(begin, count), log_q = after.log_probability(begin, count);
    const at::Tensor p = log_p.exp(), q = log_q.exp();
    append_rows(changes.divergence, (p * (log_p - log_q)).nan_to_num(0.0).sum(1).clamp_min(0.0));
    const at::Tensor token = std::get<1>((p - q).abs().topk(std::min(k, p.size(1)), -1));
    append_rows(changes.token, token);
    append_rows(changes.before, p.gather(1, token));
    append_rows(changes.after, q.gather(1, token));
  });
  return changes;
}

std::vector<DirectLogits> direct_logits(const Attribution& a, const std::vector<at::Tensor>& directions,
                                        std::int64_t n_experts) {
  const at::NoGradGuard no_grad;
  const auto type = a.weights.scalar_type();
  const at::Tensor outputs = a.weights.matmul(a.values.sum(2).to(type));  // [H, T, w]
  std::vector<at::Tensor> by_expert;
  if (a.value_expert.max().item<std::int64_t>() >= 0) {
    for (std::int64_t e = 0; e < n_experts; ++e) {
      const at::Tensor own = (a.values * a.value_expert.eq(e).unsqueeze(3)).sum(2).to(type);
      by_expert.push_back(a.weights.matmul(own));
    }
  }
  std::vector<DirectLogits> all;
  for (const at::Tensor& direction : directions) {
    const at::Tensor ways = readout(a, direction), whole = ways.sum(2);  // [H, T, O, w], [H, T, w]
    const at::Tensor way = (ways * outputs.unsqueeze(2)).sum(-1);        // [H, T, O]
    const at::Tensor none = at::zeros({way.size(1), way.size(0), 0}, way.options());
    DirectLogits logits{.heads = way.sum(-1).t(),
                        .bias = (a.rest.to(direction.scalar_type()) * direction).sum(-1),
                        .value_experts = none,
                        .output_experts = none};
    if (a.output_expert.max().item<std::int64_t>() >= 0) {
      const at::Tensor experts = at::zeros({way.size(0), way.size(1), n_experts}, way.options());
      logits.output_experts = experts.scatter_add(2, a.output_expert, way).transpose(0, 1);
    }
    std::vector<at::Tensor> values =
        transformed(by_expert, [&](const at::Tensor& result) { return (result * whole).sum(-1).t(); });
    if (!values.empty()) {
      logits.value_experts = at::stack(values, 2);
    }
    all.push_back(std::move(logits));
  }
  return all;
}

}  // namespace headroom::inspector
