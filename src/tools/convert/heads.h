// Decides how many heads each layer of a dense model needs, within a budget: `headroom convert --heads auto`. Each
// layer is converted alone to each number of heads, and the added loss is measured. If these losses add up, the best
// choice under the budget is found exactly. docs/heads.md describes the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "tools/convert/convert.h"

namespace headroom::convert {

// A limit of the budget. Costs are shares of the source's costs: `macs` is executed multiply-accumulates of attention,
// `kv_cache` elements of the full KV cache, `step_time` seconds of a training step. `loss` is added nats.
inline constexpr std::string_view kBudgetKeys[] = {"macs", "kv_cache", "step_time", "loss"};
struct Limit {
  std::string key;
  double value = 1.0;
};
// Parses "macs=0.5,kv_cache=0.25". Throws UserError for an unknown or repeated key and for values outside (0, 1].
std::vector<Limit> parse_budget(const std::string& text);

// A choice for one layer: its values, whether it needs keys of the layer below, and whether it gives keys to the next.
struct LayerOption {
  std::vector<double> values;
  bool takes_keys = false, gives_keys = false;
};

// Chooses one option per layer: the sum of values[minimise] over the layers is minimal, the sum of each values[i] is at
// most limits[i], and a layer below an option that takes keys gives keys. Exact: partial choices are discarded only if
// another one is at least as good in all values and gives keys as well. options[layer][option]; nullopt if no choice
// satisfies the limits.
using LayerOptions = std::vector<LayerOption>;
std::optional<std::vector<std::size_t>> allocate(const std::vector<LayerOptions>& options,
                                                 const std::vector<double>& limits, std::size_t minimise);

// A way to convert the attention of a layer.
struct Heads {
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t experts = 0;  // SwitchHead's experts per head; 0: dense heads
  bool shares = false;       // uses the keys and values of the layer below; kv_heads is 0
  friend bool operator==(const Heads&, const Heads&) = default;
};
// "4 heads", "8 heads, 2 key heads", "8 heads, shared keys", "2 heads x 4 experts".
std::string name_of(const Heads& heads);

struct LayerChoice {
  Heads heads;
  double loss = 0.0;           // nats that the layer adds if it alone is converted, after a short fit
  std::vector<double> shares;  // share of the source layer's costs, in the order of HeadsResult::costs
};

// A choice for all layers. The predicted loss is the sum of the losses that the layers add alone.
struct HeadsChoice {
  std::vector<LayerChoice> layers;
  std::vector<double> shares;  // share of the source's costs
  double predicted = 0.0;
};

struct HeadsResult {
  std::vector<std::string> costs;  // the budget's keys without "loss"; "macs" if there are none
  HeadsChoice chosen;
  double measured = 0.0;               // loss that the chosen layers add before the joint fit
  bool corrected = false;              // the losses of the layers were corrected, and the choice changed
  Conversion conversion;               // the result
  config::Config config;               // config of the result
  std::optional<HeadsChoice> uniform;  // the best choice with equal layers and at most the same costs
  double uniform_loss = 0.0;           // loss of that conversion on held-out tokens
  // For the page: choices for budgets of the first cost, and the best uniform choices, by ascending cost.
  std::vector<HeadsChoice> curve, uniforms;
};

struct HeadsRequest {
  ConvertRequest convert;  // `to` and `target` are ignored
  std::vector<Limit> budget;
  std::int64_t experts = 0;  // above 0: SwitchHead with this number of experts per head is a candidate, too
};

// Writes the checkpoint request.convert.out. The measured losses are cached, so another budget needs no new
// measurements. Throws what convert::convert() throws, and UserError for a budget that cannot be met.
HeadsResult choose_heads_by_layer(const HeadsRequest& request);

// `loss_before`, `loss_after`, `heads` and `kv_heads` (by layer), `predicted`, `measured`, `corrected`, `costs` (shares
// of the source's costs), `layers` (`layer`, `heads`, `kv_heads`, `experts`, `shared_with`: the owner of the keys or
// null, `loss`, `costs`), `uniform` (`heads`, `kv_heads`, `experts`, `loss_after`, `costs`; null if there is none),
// `parameters`.
Json to_json(const HeadsResult& result);
std::string to_text(const HeadsResult& result);
// Returns an HTML page with the heads of each layer as bars, and the loss against the budget.
std::string to_page(const HeadsResult& result, const HeadsRequest& request);

}  // namespace headroom::convert
