// What heads write: the tokens that a head's value and output matrices turn a token into (DCMHA, Eq. 12), and what each
// head contributes to an answer, by integrated gradients (Sundararajan et al. 2017; DCMHA, Appendix G.1).
//
// Eq. 12: x = embed(t), x += MLP_0(norm(x)), scores = unembed(norm_l(x) W_V W_O). A sequence of one token whose weight
// is set to 1 gives it whatever the layer is made of. Without that, composed heads multiply the value by the composed
// weight of a lone token, which may be negative.
#include <ATen/core/grad_mode.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "analysis.h"
#include "foundation/core/machine/log.h"
#include "foundation/draw/svg.h"
#include "layers.h"
#include "vocabulary.h"

namespace headroom::inspect {
namespace {

constexpr std::int64_t kTokensLookedAt = 24;
constexpr std::int64_t kTopTokens = 10;
constexpr std::int64_t kAnswerContext = 128;  // tokens in front of the answer at most
constexpr std::int64_t kSteps = 20;           // of the path from nothing to the heads' results

class Circuits : public Analysis {
 public:
  std::int64_t samples() const override { return 1; }
  void end(const Reading& reading) override { reading_ = reading; }

  Findings finish(const Reader& reader) override {
    Findings found;
    const std::vector<std::int64_t> tokens = words_of(reader);
    if (!tokens.empty()) {
      show_circuits(reader, tokens, found);
    }
    if (reading_.tokens.size(1) > 1) {
      show_gradients(reader, found);
    }
    return found;
  }

 private:
  // Different tokens of the text, those with letters.
  std::vector<std::int64_t> words_of(const Reader& reader) const {
    std::vector<std::int64_t> all;
    std::set<std::int64_t> seen;
    const at::Tensor ids = reading_.tokens[0].to(at::kCPU).contiguous();
    for (std::int64_t i = 0; i < ids.numel() && std::ssize(all) < kTokensLookedAt; ++i) {
      const std::int64_t id = ids.const_data_ptr<std::int64_t>()[i];
      const std::string_view kind = kTokenKinds[static_cast<std::size_t>(token_kind(reader.token_text(id)))];
      if ((kind == "capitalised" || kind == "lower case") && seen.insert(id).second) {
        all.push_back(id);
      }
    }
    return all;
  }

  // After the embedding and the first MLP, without attention: [N, 1, d].
  static at::Tensor after_first_mlp(const Reader& reader, const Reading& single) {
    Replacer replacer({"layer0.out"});
    replacer.instead["layer0.attention.out"] = at::zeros({1});
    models::Memory none;
    reader.read(single, none, replacer);
    return replacer.at("layer0.out");
  }

  void show_circuits(const Reader& reader, const std::vector<std::int64_t>& tokens, Findings& found) const {
    Reading single;
    single.tokens = at::tensor(tokens, at::kLong).unsqueeze(1).to(reader.model().device());
    const at::Tensor x = after_first_mlp(reader, single), unembed = direct_matrix(reader, /*through_norm=*/false);
    std::string markup;
    for (const AttentionLayer& layer : reader.attention_layers()) {
      const std::string name = layer.name;
      Replacer replacer({name + ".o", name + ".value_sum", name + ".select.index", name + ".select.weight",
                         name + ".select_out.index", name + ".select_out.weight"});
      replacer.instead[layer.layer == 0 ? "embedding" : fmt::format("layer{}.out", layer.layer - 1)] = x;
      replacer.instead[fmt::format("{}.{}", name, kFinalWeights)] = at::ones({1});
      models::Memory none;
      reader.read(single, none, replacer);
      Choice choice;
      for (const char* side : {".select_out", ".select"}) {
        if (replacer.values.contains(name + side + ".index")) {
          choice = {replacer.at(name + side + ".index"), replacer.at(name + side + ".weight")};
        }
      }
      // An output gate is no part of the circuit: it depends on the query.
      const at::Tensor value =
          replacer.at(name + (replacer.values.contains(name + ".value_sum") ? ".value_sum" : ".o"));
      const at::Tensor written = head_outputs(reader, name, value.to(at::kFloat), choice).squeeze(2);
      const at::Tensor scores = written.matmul(unembed).to(at::kCPU);  // [N, H, V]
      markup += fmt::format("<details><summary>{}</summary>{}</details>\n", name,
                            list_top(reader, name, tokens, scores, found));
    }
    found.pictures.push_back({.caption = "what heads make of tokens",
                              .remark = "first tokens through a head's value and output matrices alone (Eq. 12)",
                              .markup = markup,
                              .whole = true});
  }

  // Of each head, the first tokens by score for each token, and how often the token itself is among them.
  static std::string list_top(const Reader& reader, const std::string& layer, const std::vector<std::int64_t>& tokens,
                              const at::Tensor& scores, Findings& found) {
    const at::Tensor top = std::get<1>(scores.topk(std::min(kTopTokens, scores.size(2)), -1)).contiguous();
    const at::Tensor own = at::tensor(tokens, at::kLong).view({-1, 1, 1}).eq(top).any(-1).to(at::kDouble).mean(0);
    found.tensors[layer + ".top"] = top;
    Json& heads = found.figures["ov"][layer];
    std::string markup;
    for (std::int64_t h = 0; h < scores.size(1); ++h) {
      Json one = {{"head", h}, {"copies", own[h].item<double>()}};
      std::vector<std::vector<std::string>> rows;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::vector<std::string> to = texts_of(reader, top[static_cast<std::int64_t>(i)][h]);
        one["tokens"].push_back({{"token", reader.token_text(tokens[i])}, {"to", to}});
        std::vector<std::string> escaped;
        for (const std::string& text : to) {
          escaped.push_back(draw::escape(shown(text)));
        }
        rows.push_back(
            {draw::escape(shown(reader.token_text(tokens[i]))), fmt::format("{}", fmt::join(escaped, " \u00b7 "))});
      }
      heads.push_back(std::move(one));
      markup += fmt::format("<h4>{} {}: {:.0f}% of tokens are among their own first {}</h4>{}",
                            chooses_heads(reader.options().attention) ? "choice" : "head", h,
                            100.0 * own[h].item<double>(), kTopTokens, html_table({"token", "becomes"}, rows));
    }
    return markup;
  }

  // ln p(answer) where the layer's heads give `o`, or what they give by themselves; `observer` sees it.
  static at::Tensor log_probability(const Reader& reader, const Reading& before, std::int64_t answer,
                                    nn::Observer& observer) {
    return reader.logits(before, &observer).select(1, -1)[0].to(at::kFloat).log_softmax(-1)[answer];
  }

  void show_gradients(const Reader& reader, Findings& found) const {
    const std::int64_t t = std::min(reading_.tokens.size(1) - 1, kAnswerContext);
    Reading before;
    before.tokens = reading_.tokens.narrow(1, 0, t);
    const auto answer = reading_.tokens[0][t].item<std::int64_t>();
    nn::Recorder whole({"layer*.attention.o"});
    const double full = log_probability(reader, before, answer, whole).item<double>();
    std::vector<at::Tensor> by_head;
    std::vector<std::string> names;
    double most_missed = 0.0;
    const std::vector<AttentionLayer> layers = reader.attention_layers();
    Progress progress("integrating", std::ssize(layers) * kSteps, "passes");
    std::int64_t passes = 0;
    for (const AttentionLayer& layer : layers) {
      const std::string name = layer.name + ".o";
      const at::Tensor o = whole.at(name).detach();
      const at::Tensor shares = integrated(reader, before, answer, name, o);  // [H, T]
      progress.update(passes += kSteps);
      Replacer off({});
      off.instead[name] = at::zeros({1});
      const double without = log_probability(reader, before, answer, off).item<double>();
      const double missed = full - without - shares.sum().item<double>();
      most_missed = std::max(most_missed, std::abs(missed));
      found.figures["gradients"]["layers"][layer.name] = {
          {"by_head", numbers_of(shares.sum(1))}, {"all_heads", full - without}, {"residual", missed}};
      found.tensors[layer.name + ".gradients"] = shares.to(at::kCPU);
      by_head.push_back(shares.sum(1).to(at::kCPU));
      names.push_back(layer.name.substr(0, layer.name.find('.')));
    }
    const std::string text = reader.token_text(answer);
    Json& figures = found.figures["gradients"];
    figures["answer"] = text;
    figures["log_probability"] = full;
    figures["steps"] = kSteps;
    const at::Tensor all = at::stack(by_head);
    found.pictures.insert(
        found.pictures.begin(),
        {.caption = fmt::format("what heads contribute to \u201c{}\u201d after {} tokens", shown(text), t),
         .remark = "integrated gradients of its log-probability, by layer and head; two colours: for it and against it",
         .markup = draw::heat_map({.title = "contributions of heads",
                                   .cells = cells_of(all),
                                   .shade = {.full = all.abs().max().item<double>()},
                                   .row_names = names,
                                   .column_label = "head"})});
    const auto best = all.argmax().item<std::int64_t>();
    found.summary = fmt::format("\u201c{}\u201d has most from {} head {}: {:.3f} of ln p = {:.3f}; residual {:.1e}",
                                shown(text), names[static_cast<std::size_t>(best / all.size(1))], best % all.size(1),
                                all.view({-1})[best].item<double>(), full, most_missed);
  }

  // The path integral of the derivative along a layer's results, from 0 to `o` [1, H, T, w], by the midpoint rule: [H,
  // T]. What comes after the layer sees each point of the path.
  static at::Tensor integrated(const Reader& reader, const Reading& before, std::int64_t answer,
                               const std::string& name, const at::Tensor& o) {
    const at::AutoGradMode with_graph(true);
    at::Tensor sum = at::zeros_like(o, at::kFloat);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      stop_if_interrupted();
      at::Tensor point = (o * ((static_cast<double>(step) + 0.5) / static_cast<double>(kSteps))).requires_grad_(true);
      Replacer replacer({});
      replacer.instead[name] = point;
      log_probability(reader, before, answer, replacer).backward();
      sum += point.grad();
    }
    return (sum * o / static_cast<double>(kSteps)).sum(-1)[0].to(at::kDouble).detach();
  }

  Reading reading_;
};

std::string refuse_without_circuits(const config::ModelOptions& options) {
  if (options.adaptive_cutoffs.size() > 0) {
    return "its adaptive softmax has no one output matrix";
  }
  return refuse_all_but_language_models(options);
}

const Registration kCircuits({.name = "circuits",
                              .place = 8,
                              .about = "What heads write: the tokens they turn a token into, and what they contribute "
                                       "to the text's last token.",
                              .refusal = refuse_without_circuits,
                              .make = [](const Reader& /*reader*/) -> std::unique_ptr<Analysis> {
                                return std::make_unique<Circuits>();
                              }});

}  // namespace
}  // namespace headroom::inspect
