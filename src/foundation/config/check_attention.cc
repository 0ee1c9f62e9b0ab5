#include "checker.h"
#include "headroom/config/attention_part.h"
#include "windows.h"

namespace headroom::config::detail {
namespace {

template <class Part>
void check_absent(const Checker& check, const PartName<Part>& chosen, const AttentionOptions& a) {
  for (const Part* part : all_parts<Part>()) {
    if (part != chosen.operator->()) {
      part->check_absent(check, a);
    }
  }
}

void check_scores(const Checker& check, const AttentionOptions& a) {
  check.require(a.window == 0 || a.score->has_scores(), "window", "must be 0 with {}, which sums over all keys",
                setting("score", a.score));
  check.require(a.dropout == 0.0 || a.score->has_scores(), "dropout", "must be 0 with {}, which has no weights of keys",
                setting("score", a.score));
  check.require(parse_window_pattern(a.window_pattern).has_value(), "window_pattern",
                "must be local:global layers such as \"1:0\", \"1:1\" or \"3:1\", got \"{}\"", a.window_pattern);
  check.require(a.window > 0 || a.window_pattern == AttentionOptions().window_pattern, "window",
                "must be above 0 for the local layers of window_pattern = \"{}\"", a.window_pattern);
}

}  // namespace

void check_attention(const ModelOptions& model, Origin origin) {
  const Checker check(origin, "model.attention");
  const AttentionOptions& a = model.attention;
  a.projection->check(check, model);
  a.score->check(check, model);
  a.composition->check(check, model);
  a.position->check(check, model);
  a.gate_output->check(check, model);
  check_absent(check, a.projection, a);
  check_absent(check, a.score, a);
  check_absent(check, a.composition, a);
  check_absent(check, a.position, a);
  check_absent(check, a.gate_output, a);
  check_scores(check, a);
}

}  // namespace headroom::config::detail
