// position = "alibi": the score of a key falls linearly with its distance, with a fixed slope for each head (ALiBi,
// Press et al. 2022). position = "forgetting": each token multiplies the weights of all tokens before it by a forget
// gate of each head (Forgetting Transformer, Lin et al. 2025).
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class BiasPosition : public PositionPart {
 public:
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    check.require(
        model.kind == ModelKind::language_model, "position",
        "must not be \"{}\" with {}, whose attention is not causal: the bias is defined for earlier keys only", name(),
        detail::setting("kind", model.kind));
    check.require(a.score->has_scores(), "position", "must not be \"{}\" with {}, which has no scores to add a bias to",
                  name(), detail::setting("score", a.score));
    check.require(a.projection->has_fixed_heads(), "position",
                  "must not be \"{}\" with {}, which routes each token to other heads: the bias belongs to one head",
                  name(), detail::setting("projection", a.projection));
  }
  bool has_distances() const override { return true; }
  bool needs_causal() const override { return true; }
};

class Alibi : public BiasPosition {};

// The gates of a token are computed from the token, or are parameters of the heads.
class Forgetting : public BiasPosition {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<PositionOptions>();
    detail::add_strict(fields, "forget", own.forget,
                       "forgetting: gates computed from each token, or one learned gate for each head");
    detail::add_strict(fields, "forget_times", own.forget_times, at_least(1),
                       "forgetting, forget = head: shortest and longest time in tokens in which a weight initially "
                       "falls by a factor e, spread logarithmically over the heads; []: gates of 1/2");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    BiasPosition::check(check, model);
    const auto& own = model.attention.of<PositionOptions>();
    check.require(own.forget_times.empty() || own.forget == Forget::head, "forget_times",
                  "needs forget = \"head\", not \"{}\"", name_of(own.forget));
    check.require(own.forget_times.empty() || own.forget_times.size() == 2, "forget_times",
                  "must have the shortest and the longest time, got {} numbers", own.forget_times.size());
  }

  std::vector<Example> examples() const override {
    return {{"forgetting", [](AttentionOptions&) {}}, {"forgetting by head", [](AttentionOptions& o) {
                                                         o.of<PositionOptions>().forget = Forget::head;
                                                         o.of<PositionOptions>().forget_times = {1, 8};
                                                       }}};
  }

  // The logarithms of the gates.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact gates = by_token(a) ? z.s * a.n_heads : 0;
    return {.macs = gates * z.d, .memory = gates};
  }

 private:
  static bool by_token(const AttentionOptions& a) { return a.of<PositionOptions>().forget == Forget::token; }
};

const Registration<Alibi> kAlibi("alibi", "a bias that falls linearly with the distance (ALiBi)");
const Registration<Forgetting> kForgetting("forgetting", "a bias from forget gates (FoX)");

}  // namespace
}  // namespace headroom::config
