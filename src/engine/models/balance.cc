#include "balance.h"

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::models {
namespace {

double balance_coefficient(const config::ModelOptions& o, const std::string& kind) {
  for (const auto& losses : {o.attention.projection->balance_losses(o.attention), o.mlp.balance_losses()}) {
    for (const config::BalanceLoss& loss : losses) {
      if (kind == loss.name) {
        return loss.coefficient;
      }
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
