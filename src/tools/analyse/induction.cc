// Induction heads (Olsson et al. 2022; SwitchHead, section 4): on a repeated sequence they attend to the token after
// the previous occurrence of the current one, and raise its logit.
#include <algorithm>

#include "analyse.h"
#include "foundation/core/random.h"
#include "headroom/config/attention_part.h"
#include "measures.h"
#include "model_runner.h"

namespace headroom::analyse {

at::Tensor prefix_matching(const at::Tensor& weights, std::int64_t n) {
  return weights.narrow(1, n, n).narrow(2, 1, n).diagonal(0, 1, 2);
}

double prefix_matching_by_chance(std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t visible = n + 1; visible <= 2 * n; ++visible) {
    sum += 1.0 / static_cast<double>(visible);
  }
  return sum / static_cast<double>(n);
}

at::Tensor copying(const at::Tensor& logits, const at::Tensor& attended) {
  const at::Tensor raised = (logits - logits.mean(-1, /*keepdim=*/true)).clamp_min(0.0);
  const at::Tensor all = raised.sum(-1, /*keepdim=*/true);
  return (raised / all.clamp_min(1e-30) * attended).sum(-1);
}

namespace {

constexpr std::int64_t kSequences = 8;
constexpr std::int64_t kLengths[] = {10, 64};  // tokens before the repetition: a short and a long distance
constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kListedHeads = 12;

// Sums over each head's queries, [heads] float64. `count` is the number of queries, which is smaller for routed heads.
struct InductionSums {
  at::Tensor prefix, copy, count;
};

struct HeadScores {
  std::string layer;
  std::int64_t head = 0;
  double prefix = 0.0, copy = 0.0;
};

class InductionAnalysis : public Analysis {
 public:
  Findings finish(const ModelRunner& runner) override {
    Findings found;
    const std::vector<std::int64_t> tokens = tokens_to_draw(runner);
    const std::int64_t most = std::min(runner.options().context_length / 2, static_cast<std::int64_t>(tokens.size()));
    if (most < 2) {
      found.summary = "the context is too short for a repeated sequence";
      return found;
    }
    const at::Tensor direct = direct_logit_matrix(runner, /*through_norm=*/true);
    std::int64_t done = 0;
    for (const std::int64_t length : kLengths) {
      const std::int64_t n = std::min(length, most);
      if (n == done) {
        continue;
      }
      done = n;
      sums_.clear();
      shown_.clear();
      for (std::int64_t i = 0; i < kSequences; ++i) {
        score(runner, repeated(n, tokens, mix(kSeed, static_cast<std::uint64_t>(i))), n, direct);
      }
      report(runner, n, found);
    }
    found.summary = fmt::format(
        "best head: {} head {}, prefix matching {:.3f} (chance {:.3f}), copying {:.3f} (chance {:.3f}), at a distance "
        "of {}",
        best_.layer, best_.head, best_.prefix, prefix_matching_by_chance(best_tokens_), best_.copy,
        copying_by_chance(best_tokens_), best_tokens_);
    return found;
  }

 private:
  static double copying_by_chance(std::int64_t n) { return 1.0 / static_cast<double>(n); }

  // All tokens except the line end, which separates unrelated texts.
  static std::vector<std::int64_t> tokens_to_draw(const ModelRunner& runner) {
    std::vector<std::int64_t> all;
    for (std::int64_t id = 0; id < runner.tokenizer().vocabulary_size(); ++id) {
      if (id != runner.tokenizer().line_end_id()) {
        all.push_back(id);
      }
    }
    return all;
  }

  // Returns n different random tokens followed by the same n tokens: [1, 2 n].
  static at::Tensor repeated(std::int64_t n, std::vector<std::int64_t> tokens, std::uint64_t seed) {
    Random random(seed);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      std::swap(tokens[at], tokens[at + random.below(tokens.size() - at)]);
    }
    tokens.resize(static_cast<std::size_t>(n));
    const at::Tensor once = at::tensor(tokens, at::kLong).unsqueeze(0);
    return at::cat({once, once}, 1);
  }

  void score(const ModelRunner& runner, const at::Tensor& tokens, std::int64_t n, const at::Tensor& direct) {
    InputBatch input;
    input.tokens = tokens.to(runner.model().device());
    const config::AttentionOptions& o = runner.options().attention;
    const std::string weights_name(weights_value(o));
    nn::Recorder recorder(
        {"*.attention." + weights_name, "*.attention.o", "*.attention.select.*", "*.attention.select_out.*"});
    models::Memory none;
    runner.forward(input, none, recorder);
    const at::Tensor of_tokens = direct.index_select(1, tokens[0].narrow(0, 0, n).to(direct.device()));  // [d, n]
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const at::Tensor weights = attention_matrices(recorder.at(layer.name + "." + weights_name)[0].to(at::kFloat), o);
      const at::Tensor results = recorder.at(layer.name + ".o").narrow(2, n, n).to(at::kFloat);
      RoutedExperts routing = routing_of(recorder, layer.name);
      if (routing.index.defined()) {  // keep the queries of the second half
        routing = {routing.index.narrow(0, n, n), routing.weight.narrow(0, n, n)};
      }
      const at::Tensor logits = head_outputs(runner, layer.name, results, routing)[0].matmul(of_tokens);  // [H, n, n]
      // The summed weight on both occurrences of each token.
      const at::Tensor attended = weights.narrow(1, n, n).unflatten(2, {2, n}).sum(2);
      add(runner, layer.name, prefix_matching(weights, n), copying(logits, attended), routing);
      if (shown_.find(layer.name) == shown_.end()) {
        shown_[layer.name] = weights.to(at::kCPU);
      }
    }
  }

  // `prefix` and `copy` are [H, n].
  void add(const ModelRunner& runner, const std::string& layer, const at::Tensor& prefix, const at::Tensor& copy,
           const RoutedExperts& routing) {
    const config::AttentionOptions& o = runner.options().attention;
    InductionSums& sums = sums_[layer];
    const std::int64_t heads = o.projection->all_heads(o);
    if (!sums.count.defined()) {
      sums.prefix = at::zeros({heads}, at::kDouble);
      sums.copy = at::zeros({heads}, at::kDouble);
      sums.count = at::zeros({heads}, at::kDouble);
    }
    const at::Tensor which = routes_heads(o) ? heads_in_slots(routing, o).t()  // [H, n]
                                             : at::arange(heads, at::kLong).unsqueeze(1).expand(prefix.sizes());
    const at::Tensor flat = which.reshape({-1}).to(at::kCPU);
    sums.prefix.scatter_add_(0, flat, prefix.reshape({-1}).to(at::kCPU, at::kDouble));
    sums.copy.scatter_add_(0, flat, copy.reshape({-1}).to(at::kCPU, at::kDouble));
    sums.count.scatter_add_(0, flat, at::ones(flat.sizes(), at::kDouble));
  }

  void report(const ModelRunner& runner, std::int64_t n, Findings& found) {
    std::vector<HeadScores> heads;
    std::vector<at::Tensor> prefixes, copies;
    std::vector<std::string> names;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const InductionSums& sums = sums_.at(layer.name);
      const at::Tensor count = sums.count.clamp_min(1.0), prefix = sums.prefix / count, copy = sums.copy / count;
      prefixes.push_back(prefix);
      copies.push_back(copy);
      names.push_back(layer_of(layer.name));
      for (std::int64_t h = 0; h < prefix.size(0); ++h) {
        heads.push_back({names.back(), h, prefix[h].item<double>(), copy[h].item<double>()});
      }
    }
    std::ranges::stable_sort(heads, [](const auto& a, const auto& b) { return a.prefix > b.prefix; });
    const at::Tensor prefix = at::stack(prefixes), copy = at::stack(copies);  // [L, heads]
    found.tensors[fmt::format("prefix_matching.{}", n)] = prefix;
    found.tensors[fmt::format("copying.{}", n)] = copy;
    Json ranked = Json::array();
    std::vector<std::vector<Json>> rows;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const HeadScores& head = heads[i];
      ranked.push_back({{"rank", i + 1},
                        {"layer", head.layer},
                        {"head", head.head},
                        {"prefix_matching", head.prefix},
                        {"copying", head.copy}});
      if (std::ssize(rows) < kListedHeads) {
        rows.push_back({fmt::format("{} head {}", head.layer, head.head), fmt::format("{:.3f}", head.prefix),
                        fmt::format("{:.3f}", head.copy)});
      }
    }
    const double prefix_chance = prefix_matching_by_chance(n), copy_chance = copying_by_chance(n);
    rows.push_back({"chance", fmt::format("{:.3f}", prefix_chance), fmt::format("{:.3f}", copy_chance)});
    found.metrics["lengths"].push_back({{"tokens", n},
                                        {"sequences", kSequences},
                                        {"by_chance", {{"prefix_matching", prefix_chance}, {"copying", copy_chance}}},
                                        {"heads", std::move(ranked)}});
    const std::string back = fmt::format(", distance {}", n);
    const auto figure = [&](const std::string& caption, const char* remark, double chance, const at::Tensor& values) {
      found.figures.push_back(
          {.caption = caption + back,
           .remark = fmt::format("{}; by chance {:.3f}", remark, chance),
           .blocks = Json::array({heat_map_of({.title = caption, .row_names = names, .column_label = "head"}, values,
                                              /*full=*/1.0)})});
    };
    figure("prefix matching", "attention to the token after the previous occurrence of the current one", prefix_chance,
           prefix);
    figure("copying", "share of a head's positive effect on the logits that falls on the tokens it attends to",
           copy_chance, copy);
    found.figures.push_back({.caption = "heads by prefix matching" + back,
                             .remark = fmt::format("{} sequences of {} random tokens, repeated once; prefix matching "
                                                   "by chance: equal weights on all tokens so far",
                                                   kSequences, n),
                             .blocks = Json::array({table_of({"head", "prefix matching", "copying"}, rows)})});
    show_best(runner, heads.front(), back, found);
    if (heads.front().prefix > best_.prefix || best_tokens_ == 0) {
      best_ = heads.front();
      best_tokens_ = n;
    }
  }

  void show_best(const ModelRunner& runner, const HeadScores& best, const std::string& back, Findings& found) const {
    if (routes_heads(runner.options().attention)) {
      return;  // the routed heads differ from query to query
    }
    const at::Tensor weights = shown_.at(best.layer + ".attention")[best.head];
    found.figures.push_back(
        {.caption = fmt::format("{} head {} on repeated random tokens{}", best.layer, best.head, back),
         .remark = fmt::format("an induction head shows a line one key to the right of the first half's diagonal; {}",
                               kAttentionShades),
         .blocks = Json::array(
             {attention_map({.title = "the best head's map", .row_label = "query", .column_label = "key"}, weights)})});
  }

  std::map<std::string, InductionSums, std::less<>> sums_;
  std::map<std::string, at::Tensor, std::less<>> shown_;  // attention weights of the first sequence, by layer
  HeadScores best_;
  std::int64_t best_tokens_ = 0;
};

const AnalysisRegistration kInduction(
    {.name = "induction",
     .order = 3,
     .about = "Heads that find the previous occurrence of a token and copy what followed.",
     .refusal = refuse_all_but_language_models,
     .make = make_analysis<InductionAnalysis>});

}  // namespace
}  // namespace headroom::analyse
