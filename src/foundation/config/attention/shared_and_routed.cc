// projection = "shared_and_routed": dense heads with gates on their outputs. The first shared_heads are used by every
// token; of the others, each token uses the top_k (MoH). All heads are computed.
//
// Symbols in addition to those of attention_part.h: s = shared_heads, E = H - s routed heads, k = top_k.
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class SharedAndRouted : public detail::HeadProjections {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::add_strict(fields, "shared_heads", o.of<SharedHeadOptions>().shared_heads, between(0, 65536),
                       "shared_and_routed: heads that every token uses, the first ones of n_heads");
    detail::describe_top_k(fields, o);
    detail::describe_switch_loss(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::int64_t top_k = a.of<RoutingOptions>().top_k;
    detail::check_groups(check, a);
    check.require(shared(a) < a.n_heads, "shared_heads", "must be below n_heads = {}, got {}", a.n_heads, shared(a));
    check.require(top_k <= router_width(a), "top_k", "must be at most n_heads - shared_heads = {} with {}, got {}",
                  router_width(a), detail::setting("projection", a.projection), top_k);
  }

  std::vector<Example> examples() const override {
    const auto example = [](std::string name, std::int64_t shared_heads) {
      return Example{std::move(name), [shared_heads](AttentionOptions& o) {
                       o.n_heads = 4;
                       o.of<SharedHeadOptions>().shared_heads = shared_heads;
                       o.of<RoutingOptions>().top_k = 2;
                     }};
    };
    return {example("shared_and_routed", 2), example("shared_and_routed, one shared head", 1)};
  }

  bool routes(const AttentionOptions&) const override { return true; }
  std::int64_t router_width(const AttentionOptions& a) const override { return a.n_heads - shared(a); }

  // The scores, and the multiplication of the head outputs by the gates, add (E + s + 2)dT + HTe MACs and (E + s + 2)T
  // floats to dense heads.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact routed = z.t * scores(a);
    return HeadProjections::paper(a, z) +
           PaperTerms{.macs = routed * z.d + z.t * a.n_heads * a.d_head, .memory = routed};
  }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions& a) const override {
    return {{"switch", a.of<RoutedHeadOptions>().switch_coefficient}};
  }

  bool starts_truncated() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} ({} shared, {} of {} routed)", a.n_heads, shared(a), a.of<RoutingOptions>().top_k,
                       router_width(a));
  }
  std::int64_t d_head_step() const override { return 1; }

 private:
  static std::int64_t shared(const AttentionOptions& a) { return a.of<SharedHeadOptions>().shared_heads; }
  std::int64_t scores(const AttentionOptions& a) const {
    return router_width(a) + (shared(a) > 1 ? shared(a) : 0) + (shared(a) > 0 ? 2 : 0);
  }
};

const Registration<SharedAndRouted> kSharedAndRouted("shared_and_routed",
                                                     "dense, with shared heads and top_k routed heads per token (MoH)");

}  // namespace
}  // namespace headroom::config
