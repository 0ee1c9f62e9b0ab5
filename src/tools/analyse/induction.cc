#include "induction.h"

#include <algorithm>

#include "analysis.h"
#include "foundation/core/random.h"
#include "headroom/config/attention_part.h"
#include "layers.h"

namespace headroom::inspect {

at::Tensor prefix_matching(const at::Tensor& weights, std::int64_t n) {
  // Query n + i, key i + 1.
  return weights.narrow(1, n, n).narrow(2, 1, n).diagonal(0, 1, 2).mean(-1);
}

at::Tensor copying(const at::Tensor& scores, const at::Tensor& looks) {
  const at::Tensor raised = (scores - scores.mean(-1, /*keepdim=*/true)).clamp_min(0.0);
  const at::Tensor all = raised.sum(-1, /*keepdim=*/true);
  return (raised / all.clamp_min(1e-30) * looks).sum(-1).mean(-1);
}

namespace {

constexpr std::int64_t kSequences = 8;
// Tokens before the repetition: models that repeat what is near need not find what is far.
constexpr std::int64_t kLengths[] = {10, 64};
constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kListedHeads = 12;

// Sums over sequences, by head; of layers whose tokens choose heads, by how often each was chosen.
struct Scores {
  at::Tensor prefix, copy, count;  // [heads], double
};

struct Head {
  std::string layer;
  std::int64_t head = 0;
  double prefix = 0.0, copy = 0.0;
};

class Induction : public Analysis {
 public:
  Findings finish(const Reader& reader) override {
    Findings found;
    const std::vector<std::int64_t> tokens = tokens_to_draw(reader);
    const std::int64_t most = std::min(reader.options().context_length / 2, static_cast<std::int64_t>(tokens.size()));
    if (most < 2) {
      found.summary = "the context is too short for a repetition";
      return found;
    }
    const at::Tensor direct = direct_matrix(reader, /*through_norm=*/true);
    std::int64_t done = 0;
    for (const std::int64_t length : kLengths) {
      const std::int64_t n = std::min(length, most);
      if (n == done) {
        continue;
      }
      done = n;
      scores_.clear();
      shown_.clear();
      for (std::int64_t i = 0; i < kSequences; ++i) {
        score(reader, repeated(n, tokens, mix(kSeed, static_cast<std::uint64_t>(i))), n, direct);
      }
      report(reader, n, found);
    }
    found.summary = fmt::format("best head: {} head {}, prefix matching {:.3f}, copying {:.3f}, {} tokens back",
                                best_.layer, best_.head, best_.prefix, best_.copy, best_tokens_);
    return found;
  }

 private:
  // All but the line end, after which models have learned that something else begins.
  static std::vector<std::int64_t> tokens_to_draw(const Reader& reader) {
    std::vector<std::int64_t> all;
    for (std::int64_t id = 0; id < reader.tokenizer().vocabulary_size(); ++id) {
      if (id != reader.tokenizer().line_end_id()) {
        all.push_back(id);
      }
    }
    return all;
  }

  // [1, 2 n]: different random tokens, twice.
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

  void score(const Reader& reader, const at::Tensor& tokens, std::int64_t n, const at::Tensor& direct) {
    Reading reading;
    reading.tokens = tokens.to(reader.model().device());
    nn::Recorder recorder(
        {"*.attention.probs_composed", "*.attention.o", "*.attention.select.*", "*.attention.select_out.*"});
    models::Memory none;
    reader.read(reading, none, recorder);
    const at::Tensor of_tokens = direct.index_select(1, tokens[0].narrow(0, 0, n).to(direct.device()));  // [d, n]
    for (const AttentionLayer& layer : reader.attention_layers()) {
      const at::Tensor weights = recorder.at(layer.name + ".probs_composed")[0].to(at::kFloat);
      const at::Tensor o = recorder.at(layer.name + ".o").narrow(2, n, n).to(at::kFloat);
      const Choice choice = choice_of(recorder, layer.name, n);
      const at::Tensor scores = head_outputs(reader, layer.name, o, choice)[0].matmul(of_tokens);  // [H, n, n]
      // Both occurrences of a token.
      const at::Tensor looks = weights.narrow(1, n, n).unflatten(2, {2, n}).sum(2);
      add(reader, layer.name, prefix_by_query(weights, n), copying_by_query(scores, looks), choice);
      if (shown_.find(layer.name) == shown_.end()) {
        shown_[layer.name] = weights.to(at::kCPU);
      }
    }
  }

  static at::Tensor prefix_by_query(const at::Tensor& weights, std::int64_t n) {
    return weights.narrow(1, n, n).narrow(2, 1, n).diagonal(0, 1, 2);  // [H, n]
  }
  static at::Tensor copying_by_query(const at::Tensor& scores, const at::Tensor& looks) {
    std::vector<at::Tensor> each;
    for (std::int64_t i = 0; i < scores.size(1); ++i) {
      each.push_back(copying(scores.narrow(1, i, 1), looks.narrow(1, i, 1)));
    }
    return at::stack(each, 1);
  }

  // Of the second half's queries.
  static Choice choice_of(const nn::Recorder& recorder, const std::string& layer, std::int64_t n) {
    for (const char* side : {".select_out", ".select"}) {
      if (recorder.values.contains(layer + side + ".index")) {
        return {recorder.at(layer + side + ".index").narrow(0, n, n),
                recorder.at(layer + side + ".weight").narrow(0, n, n)};
      }
    }
    return {};
  }

  // `prefix` and `copy` [H, n].
  void add(const Reader& reader, const std::string& layer, const at::Tensor& prefix, const at::Tensor& copy,
           const Choice& choice) {
    const config::AttentionOptions& o = reader.options().attention;
    Scores& sums = scores_[layer];
    const std::int64_t heads = o.projection->all_heads(o);
    if (!sums.count.defined()) {
      sums.prefix = at::zeros({heads}, at::kDouble);
      sums.copy = at::zeros({heads}, at::kDouble);
      sums.count = at::zeros({heads}, at::kDouble);
    }
    const at::Tensor which = chooses_heads(o) ? choice.index.squeeze(1).t()  // [H, n]
                                              : at::arange(heads, at::kLong).unsqueeze(1).expand(prefix.sizes());
    const at::Tensor flat = which.reshape({-1}).to(at::kCPU);
    sums.prefix.scatter_add_(0, flat, prefix.reshape({-1}).to(at::kCPU, at::kDouble));
    sums.copy.scatter_add_(0, flat, copy.reshape({-1}).to(at::kCPU, at::kDouble));
    sums.count.scatter_add_(0, flat, at::ones(flat.sizes(), at::kDouble));
  }

  void report(const Reader& reader, std::int64_t n, Findings& found) {
    std::vector<Head> heads;
    std::vector<at::Tensor> prefixes, copies;
    std::vector<std::string> names;
    for (const AttentionLayer& layer : reader.attention_layers()) {
      const Scores& sums = scores_.at(layer.name);
      const at::Tensor count = sums.count.clamp_min(1.0), prefix = sums.prefix / count, copy = sums.copy / count;
      prefixes.push_back(prefix);
      copies.push_back(copy);
      names.push_back(layer.name.substr(0, layer.name.find('.')));
      for (std::int64_t h = 0; h < prefix.size(0); ++h) {
        heads.push_back({names.back(), h, prefix[h].item<double>(), copy[h].item<double>()});
      }
    }
    std::stable_sort(heads.begin(), heads.end(), [](const Head& a, const Head& b) { return a.prefix > b.prefix; });
    const at::Tensor prefix = at::stack(prefixes), copy = at::stack(copies);  // [L, heads]
    found.tensors[fmt::format("prefix_matching.{}", n)] = prefix;
    found.tensors[fmt::format("copying.{}", n)] = copy;
    Json ranked = Json::array();
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const Head& head = heads[i];
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
    found.figures["lengths"].push_back({{"tokens", n},
                                        {"sequences", kSequences},
                                        {"by_chance", 1.0 / static_cast<double>(n)},
                                        {"heads", std::move(ranked)}});
    const std::string back = fmt::format(", {} tokens back", n);
    const auto picture = [&](const std::string& caption, const char* remark, const at::Tensor& values) {
      found.pictures.push_back({.caption = caption + back,
                                .remark = remark,
                                .markup = draw::heat_map({.title = caption,
                                                          .cells = cells_of(values),
                                                          .shade = {.full = 1.0},
                                                          .row_names = names,
                                                          .column_label = "head"})});
    };
    picture("prefix matching", "weight on what came after the current token the last time, by layer and head", prefix);
    picture("copying", "share of what a head makes likelier that it looks at", copy);
    found.pictures.push_back(
        {.caption = "heads by prefix matching" + back,
         .remark = fmt::format("on {} sequences of {} random tokens and their repetition", kSequences, n),
         .markup = html_table({"head", "prefix matching", "copying"}, rows)});
    show_best(reader, heads.front(), back, found);
    if (heads.front().prefix > best_.prefix || best_tokens_ == 0) {
      best_ = heads.front();
      best_tokens_ = n;
    }
  }

  void show_best(const Reader& reader, const Head& best, const std::string& back, Findings& found) const {
    if (chooses_heads(reader.options().attention)) {
      return;  // each query has others
    }
    const at::Tensor weights = shown_.at(best.layer + ".attention")[best.head];
    found.pictures.push_back(
        {.caption = fmt::format("{} head {} on repeated random tokens{}", best.layer, best.head, back),
         .remark = "an induction head has a line one key right of the first half's diagonal",
         .markup = draw::heat_map({.title = "the best head's map",
                                   .cells = cells_of(weights),
                                   .shade = {.full = weights.max().item<double>()},
                                   .row_label = "query",
                                   .column_label = "key"})});
  }

  std::map<std::string, Scores, std::less<>> scores_;
  std::map<std::string, at::Tensor, std::less<>> shown_;  // of the first sequence
  Head best_;
  std::int64_t best_tokens_ = 0;
};

std::string refuse_without_induction(const config::ModelOptions& options) {
  const std::string why = refuse_all_but_language_models(options);
  return why.empty() ? refuse_without_scores(options) : why;
}

const Registration kInduction({.name = "induction",
                               .place = 3,
                               .about = "Which heads find a repetition and copy what followed the last time.",
                               .refusal = refuse_without_induction,
                               .make = [](const Reader& /*reader*/) -> std::unique_ptr<Analysis> {
                                 return std::make_unique<Induction>();
                               }});

}  // namespace
}  // namespace headroom::inspect
