// The effect of heads on the output: the tokens that a head's value-output circuit maps a token to (DCMHA, Eq. 12), and
// each head's contribution to the logit of the last token by integrated gradients (Sundararajan et al. 2017; DCMHA,
// Appendix G.1).
//
// Eq. 12: x = embed(t), x += MLP_0(norm(x)), logits = unembed(norm_l(x) W_V W_O). For any kind of layer, this is a
// forward pass over a single token with its attention weight set to 1. The weight must be set explicitly, because
// composed heads would scale the value by the composed weight, which may be negative.
#include <ATen/core/grad_mode.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "analyse.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/transformed.h"
#include "model_runner.h"
#include "vocabulary.h"

namespace headroom::analyse {
namespace {

constexpr std::int64_t kCircuitTokens = 24;
constexpr std::int64_t kTopTokens = 10;
constexpr std::int64_t kAnswerContext = 128;  // maximum number of tokens before the answer

// Integrated gradients end if the contributions of a layer sum to its effect within kTolerance of the effect, or within
// kRounding nats. Errors of sections may cancel in this sum; their magnitudes must be within ten times as much.
constexpr double kTolerance = 0.01, kRounding = 1e-5;
// The narrowest section of the path. Where tokens are routed, the path has jumps, at which the routing changes.
constexpr double kNarrowest = 1.0 / (1 << 20), kNarrowestRouted = 1.0 / (1 << 6);
constexpr std::int64_t kLeastGradients = 16, kMostGradients = 512;

// Returns ln p(answer | before).
at::Tensor log_probability(const ModelRunner& runner, const InputBatch& before, std::int64_t answer,
                           nn::Observer& observer) {
  return runner.logits(before, &observer).select(1, -1)[0].to(at::kFloat).log_softmax(-1)[answer];
}

// The integrand: ln p(answer | input) as a function of a layer's head outputs, which are the value `value`.
struct PathTarget {
  const InputBatch& input;
  std::int64_t answer;
  std::string value;
};

// Integrated gradients along the straight path from 0 to a layer's head outputs `o` [1, H, T, w], by the midpoint rule
// over sections. The log-probabilities at the ends of a section give the exact sum of its contributions and hence its
// error; the section with the largest error is halved until the errors are small enough. The errors of sections that
// are too narrow to halve are jumps.
class HeadPath {
 public:
  HeadPath(const ModelRunner& runner, PathTarget target, const at::Tensor& o, double full)
      : runner_(runner), target_(std::move(target)), o_(o) {
    const at::NoGradGuard no_graph;
    Replacer off({});
    off.instead[target_.value] = at::zeros({1});
    const double without = log_probability(runner_, target_.input, target_.answer, off).item<double>();
    effect_ = full - without;
    sections_.push_back(section(0.0, 1.0, without, full));
  }

  void integrate() {
    const double most = std::max(kTolerance * std::abs(effect_), kRounding);
    while (gradients_ < kMostGradients) {
      stop_if_interrupted();
      double error = 0.0, magnitude = 0.0;
      Section* worst = nullptr;
      for (Section& one : sections_) {
        if (is_wide(one)) {
          error += one.error;
          magnitude += std::abs(one.error);
          worst = worst == nullptr || std::abs(one.error) > std::abs(worst->error) ? &one : worst;
        }
      }
      const bool precise = std::abs(error) <= most && magnitude <= 10.0 * most;
      if (worst == nullptr || (precise && gradients_ >= kLeastGradients)) {
        return;
      }
      const Section whole = *worst;
      const double middle = (whole.from + whole.to) / 2.0;
      *worst = section(whole.from, middle, whole.at_from, whole.at_middle);
      sections_.push_back(section(middle, whole.to, whole.at_middle, whole.at_to));
    }
  }

  // Returns the change of the log-probability from 0 to the head outputs.
  double effect() const { return effect_; }
  std::int64_t gradients() const { return gradients_; }
  // Returns the part of the effect without a gradient, because the routing changes along the path.
  double jumps() const {
    return std::accumulate(sections_.begin(), sections_.end(), 0.0,
                           [&](double sum, const Section& one) { return sum + (is_wide(one) ? 0.0 : one.error); });
  }
  at::Tensor contributions() const {  // [H, T]
    at::Tensor sum;
    for (const Section& one : sections_) {
      add_to(sum, one.contributions);
    }
    return sum;
  }

 private:
  struct Section {
    double from, to;  // fractions of the path
    double at_from, at_middle, at_to;
    at::Tensor contributions;
    double error;
  };

  bool is_wide(const Section& one) const {
    return one.to - one.from > (runner_.model().options().routes() ? kNarrowestRouted : kNarrowest);
  }

  Section section(double from, double to, double at_from, double at_to) {
    const at::AutoGradMode with_graph(true);
    ++gradients_;
    const at::Tensor point = (o_ * ((from + to) / 2.0)).requires_grad_(true);
    Replacer replacer({});
    replacer.instead[target_.value] = point;
    const at::Tensor at_middle = log_probability(runner_, target_.input, target_.answer, replacer);
    at_middle.backward();
    const at::Tensor by_token = (point.grad() * o_).sum(-1)[0].to(at::kDouble).detach() * (to - from);
    return {.from = from,
            .to = to,
            .at_from = at_from,
            .at_middle = at_middle.item<double>(),
            .at_to = at_to,
            .contributions = by_token,
            .error = at_to - at_from - by_token.sum().item<double>()};
  }

  const ModelRunner& runner_;
  PathTarget target_;
  at::Tensor o_;
  double effect_ = 0.0;
  std::int64_t gradients_ = 0;
  std::vector<Section> sections_;
};

class CircuitsAnalysis : public Analysis {
 public:
  std::int64_t samples() const override { return 1; }
  void end_pass(const InputBatch& input) override { input_ = input; }

  Findings finish(const ModelRunner& runner) override {
    Findings found;
    const std::vector<std::int64_t> tokens = words_of(runner);
    if (!tokens.empty()) {
      show_circuits(runner, tokens, found);
    }
    if (input_.tokens.size(1) > 1) {
      show_gradients(runner, found);
    }
    return found;
  }

 private:
  // Returns the distinct tokens of the text that begin with a letter.
  std::vector<std::int64_t> words_of(const ModelRunner& runner) const {
    std::vector<std::int64_t> all;
    std::set<std::int64_t> seen;
    const at::Tensor ids = input_.tokens[0].to(at::kCPU).contiguous();
    for (std::int64_t i = 0; i < ids.numel() && std::ssize(all) < kCircuitTokens; ++i) {
      const std::int64_t id = ids.const_data_ptr<std::int64_t>()[i];
      const std::string_view kind = kTokenKinds[static_cast<std::size_t>(token_kind(runner.token_text(id)))];
      if ((kind == "capitalised" || kind == "lower case") && seen.insert(id).second) {
        all.push_back(id);
      }
    }
    return all;
  }

  // Returns the residual stream after the embedding and the first MLP, without attention, [N, 1, d].
  static at::Tensor after_first_mlp(const ModelRunner& runner, const InputBatch& single) {
    Replacer replacer({"layer0.out"});
    replacer.instead["layer0.attention.out"] = at::zeros({1});
    models::Memory none;
    runner.forward(single, none, replacer);
    return replacer.at("layer0.out");
  }

  void show_circuits(const ModelRunner& runner, const std::vector<std::int64_t>& tokens, Findings& found) const {
    InputBatch single;
    single.tokens = at::tensor(tokens, at::kLong).unsqueeze(1).to(runner.model().device());
    const at::Tensor x = after_first_mlp(runner, single), unembed = direct_logit_matrix(runner, /*through_norm=*/false);
    Json blocks = Json::array();
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const std::string name = layer.name;
      Replacer replacer({name + ".o", name + ".value_sum", name + ".select.index", name + ".select.weight",
                         name + ".select_out.index", name + ".select_out.weight"});
      replacer.instead[layer.layer == 0 ? "embedding" : fmt::format("layer{}.out", layer.layer - 1)] = x;
      replacer.instead[fmt::format("{}.{}", name, weights_value(runner.options().attention))] = at::ones({1});
      models::Memory none;
      runner.forward(single, none, replacer);
      // The output gate is left out because it depends on the query.
      const at::Tensor value =
          replacer.at(name + (replacer.values.contains(name + ".value_sum") ? ".value_sum" : ".o"));
      const at::Tensor written =
          head_outputs(runner, name, value.to(at::kFloat), routing_of(replacer, name)).squeeze(2);
      const at::Tensor logits = written.matmul(unembed).to(at::kCPU);  // [N, H, V]
      blocks.push_back({{"details", name}, {"blocks", list_top(runner, name, tokens, logits, found)}});
    }
    found.figures.push_back({.caption = "value-output circuits",
                             .remark = "the most likely tokens when a head's value and output matrices alone are "
                                       "applied to a token (DCMHA, Eq. 12)",
                             .blocks = std::move(blocks),
                             .full_width = true});
  }

  // Makes a table per head: for each token, the tokens with the highest logits. Also reports how often a token is among
  // its own top tokens.
  static Json list_top(const ModelRunner& runner, const std::string& layer, const std::vector<std::int64_t>& tokens,
                       const at::Tensor& logits, Findings& found) {
    const at::Tensor top = std::get<1>(logits.topk(std::min(kTopTokens, logits.size(2)), -1)).contiguous();
    const at::Tensor own = at::tensor(tokens, at::kLong).view({-1, 1, 1}).eq(top).any(-1).to(at::kDouble).mean(0);
    found.tensors[layer + ".top"] = top;
    Json& heads = found.metrics["ov"][layer];
    Json blocks = Json::array();
    for (std::int64_t h = 0; h < logits.size(1); ++h) {
      Json one = {{"head", h}, {"copies", own[h].item<double>()}};
      std::vector<std::vector<Json>> rows;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::vector<std::string> to = token_texts(runner, top[static_cast<std::int64_t>(i)][h]);
        one["tokens"].push_back({{"token", runner.token_text(tokens[i])}, {"to", to}});
        rows.push_back({display_text(runner.token_text(tokens[i])),
                        fmt::format("{}", fmt::join(transformed(to, display_text), " \u00b7 "))});
      }
      heads.push_back(std::move(one));
      blocks.push_back({{"subheading", fmt::format("{} {}: {:.0f}% of tokens are among their own top {}",
                                                   routes_heads(runner.options().attention) ? "slot" : "head", h,
                                                   100.0 * own[h].item<double>(), kTopTokens)}});
      blocks.push_back(table_of({"token", "top tokens"}, rows));
    }
    return blocks;
  }

  void show_gradients(const ModelRunner& runner, Findings& found) const {
    const std::int64_t t = std::min(input_.tokens.size(1) - 1, kAnswerContext);
    InputBatch before;
    before.tokens = input_.tokens.narrow(1, 0, t);
    const auto answer = input_.tokens[0][t].item<std::int64_t>();
    nn::Recorder whole({"layer*.attention.o"});
    const double full = log_probability(runner, before, answer, whole).item<double>();
    std::vector<at::Tensor> by_head;
    std::vector<std::string> names;
    double largest_residual = 0.0, largest_jump = 0.0;
    std::int64_t most_steps = 0;
    const std::vector<AttentionLayer> layers = runner.attention_layers();
    Progress progress("integrating", std::ssize(layers), "layers");
    for (const AttentionLayer& layer : layers) {
      HeadPath path(runner, {.input = before, .answer = answer, .value = layer.name + ".o"},
                    whole.at(layer.name + ".o").detach(), full);
      path.integrate();
      progress.update(std::ssize(names) + 1);
      const at::Tensor shares = path.contributions();  // [H, T]
      const double residual = path.effect() - path.jumps() - shares.sum().item<double>();
      largest_residual = std::max(largest_residual, std::abs(residual));
      largest_jump = std::max(largest_jump, std::abs(path.jumps()));
      most_steps = std::max(most_steps, path.gradients());
      found.metrics["gradients"]["layers"][layer.name] = {{"by_head", to_vector(shares.sum(1))},
                                                          {"all_heads", path.effect()},
                                                          {"jumps", path.jumps()},
                                                          {"residual", residual},
                                                          {"steps", path.gradients()}};
      found.tensors[layer.name + ".gradients"] = shares.to(at::kCPU);
      by_head.push_back(shares.sum(1).to(at::kCPU));
      names.push_back(layer_of(layer.name));
    }
    const std::string text = runner.token_text(answer);
    Json& metrics = found.metrics["gradients"];
    metrics["answer"] = text;
    metrics["log_probability"] = full;
    metrics["steps"] = most_steps;
    const at::Tensor all = at::stack(by_head);
    found.figures.insert(
        found.figures.begin(),
        {.caption = fmt::format("contributions of heads to \u201c{}\u201d after {} tokens", display_text(text), t),
         .remark =
             fmt::format("integrated gradients of its log-probability, by layer and head; one colour for positive "
                         "contributions, one for negative; a layer's contributions sum to its effect up to {:.1e}{}",
                         largest_residual,
                         runner.model().options().routes()
                             ? fmt::format(" and jumps of up to {:.1e}, where the routing changes", largest_jump)
                             : ""),
         .blocks = Json::array(
             {heat_map_of({.title = "contributions of heads", .row_names = names, .column_label = "head"}, all)})});
    const auto best = all.argmax().item<std::int64_t>();
    found.summary =
        fmt::format("largest contribution to \u201c{}\u201d (ln p = {:.3f}): {:.3f} by {} head {}; residual {:.1e}",
                    display_text(text), full, all.view({-1})[best].item<double>(),
                    names[static_cast<std::size_t>(best / all.size(1))], best % all.size(1), largest_residual);
  }

  InputBatch input_;
};

std::string refuse_without_circuits(const config::ModelOptions& options) {
  if (options.adaptive_cutoffs.size() > 0) {
    return "its adaptive softmax has no single output matrix";
  }
  return refuse_all_but_language_models(options);
}

const AnalysisRegistration kCircuits({.name = "circuits",
                                      .order = 8,
                                      .about = "The effect of heads on the output: the tokens that a head maps a token "
                                               "to, and each head's contribution to the last token of the text.",
                                      .refusal = refuse_without_circuits,
                                      .make = make_analysis<CircuitsAnalysis>});

}  // namespace
}  // namespace headroom::analyse
