#include "balance.h"

#include "headroom/core/error.h"

namespace headroom::models {
namespace {

double balance_coefficient(const config::ModelOptions& o, const std::string& kind) {
  const config::AttentionOptions& a = o.attention;
  const std::pair<const char*, double> known[] = {{"entropy", o.mlp.entropy_coefficient},
                                                  {"routing_entropy", a.entropy_coefficient},
                                                  {"switch", a.switch_coefficient},
                                                  {"switch_slots", a.switch_slots_coefficient},
                                                  {"cv", a.cv_coefficient},
                                                  {"z", a.z_coefficient}};
  for (const auto& [name, coefficient] : known) {
    if (kind == name) {
      return coefficient;
    }
  }
  fail("balance loss {}: no coefficient belongs to it", kind);
}

}  // namespace

Loss with_balance(at::Tensor cross_entropy, BalanceLosses losses, const config::ModelOptions& options,
                  const nn::Context& context) {
  Loss loss;
  loss.cross_entropy = std::move(cross_entropy);
  for (const auto& [kind, value] : losses) {
    const at::Tensor term = value * balance_coefficient(options, kind);
    loss.regulariser = loss.regulariser.defined() ? loss.regulariser + term : term;
  }
  if (context.losses != nullptr) {
    *context.losses = std::move(losses);
  }
  return loss;
}

}  // namespace headroom::models
