// score = "linear": feature maps instead of a softmax, so that a sum over the keys takes the place of their scores,
// with one key or a mixture of keys at each position (linear Transformers; MLK and sMLK of Transformer-MGK).
#include <algorithm>

#include "foundation/config/checker.h"
#include "foundation/core/linear_chunk.h"
#include "key_mixture.h"

namespace headroom::config {
namespace {

class LinearScore : public ScorePart {
 public:
  std::string_view name() const override { return "linear"; }
  std::string_view about() const override { return "linear attention by feature maps"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::describe_key_mixture(fields, o);
    fields.add("feature_map", o.feature_map, "linear: elu(x) + 1, or that divided by its sum over the channels");
    fields.add("linear_mixing", o.linear_mixing, "linear: components are summed after or before the feature map");
    fields.add("normaliser", o.normaliser, "linear: divide by the sum of a query's weights, or not");
    fields.add("normaliser_epsilon", o.normaliser_epsilon, at_least(0), "linear: added to that sum");
    fields.add("score_scale", o.score_scale, "linear: factor of the weights: 1, or 1/sqrt(d_head)");
    fields.add("output_scale", o.output_scale,
               "linear: factor of the result: 1, 1/sqrt(d_head), or 1/sqrt of the sequence's length");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string score = detail::setting("score", a.score);
    detail::check_prior(check, a);
    check.require(a.scale == Scale::inv_sqrt, "scale",
                  "must be \"inv_sqrt\" (unused) with {}, whose score_scale and output_scale are factors of their own",
                  score);
    check.require(a.prior_update != PriorUpdate::soft_e, "prior_update",
                  "\"soft_e\" needs score = \"gaussian_mixture\", whose keys take a share of each pair");
    check.require(a.position != "rope" || model.memory_length == 0, "position",
                  "must not be \"rope\" with {} and memory_length = {}: feature maps do not keep rotations, so keys of "
                  "the memory would change when their positions do",
                  score, model.memory_length);
  }

  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}

  std::vector<Example> examples() const override {
    return {{"linear", [](AttentionOptions& o) { o.keys = Keys::single; }},
            {"linear, own keys", [](AttentionOptions&) {}},
            {"linear, shifted keys", [](AttentionOptions& o) {
               o.keys = Keys::shifted;
               o.prior = Prior::head_position;
             }}};
  }

  std::int64_t key_components(const AttentionOptions& a) const override { return detail::components_of(a); }
  std::int64_t key_projections(const AttentionOptions& a) const override {
    return a.keys == Keys::own ? detail::components_of(a) : 1;
  }
  bool has_scores() const override { return false; }
  bool is_bilinear() const override { return false; }
  bool is_normalised() const override { return false; }

  Sizes tensors(const AttentionOptions& a, Exact sources) const override {
    return detail::key_mixture_tensors(a, sources);
  }

  // Causal, chunks of t <= kLinearChunk queries: 2 t t e inside, t e e from the state (none before the first chunk
  // without memory) a head; t e e into it a key/value head (not the last chunk's); memory: M e e. Not causal: T e e a
  // head and S e e a key/value head.
  Exact products(const AttentionOptions& a, const Span& span) const override {
    const Exact square = Exact(a.d_head) * a.d_head;
    if (!span.causal) {
      return square * (span.sources * a.computed_kv_heads() + span.queries * a.n_heads);
    }
    const std::int64_t t = span.queries.value(), rest = t % kLinearChunk, before = span.sources.value() - t;
    const Exact inside = Exact(t / kLinearChunk) * kLinearChunk * kLinearChunk + Exact(rest) * rest;
    const Exact reading = before > 0 ? t : t - std::min(t, kLinearChunk);
    const Exact kept = before + (t - 1) / kLinearChunk * kLinearChunk;
    return (inside * a.d_head * 2 + reading * square) * a.n_heads + kept * square * a.computed_kv_heads();
  }

  // (C + 1)THe^2 MACs; features and state, (C + 1)THe + He^2 numbers.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = Exact(a.n_heads) * a.d_head, features = (z.s + z.t) * heads;
    return detail::more_keys(a, z) + PaperTerms{.macs = features * a.d_head, .memory = features + heads * a.d_head};
  }

  // G (e e + e), the R keys summed.
  std::optional<Exact> state_numbers(const AttentionOptions& a) const override {
    return Exact(a.computed_kv_heads()) * (Exact(a.d_head) * a.d_head + a.d_head);
  }
  bool keeps_width() const override { return false; }
};

const Registration<LinearScore> kLinearScore;

}  // namespace
}  // namespace headroom::config
