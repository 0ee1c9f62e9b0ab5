#include <fmt/format.h>

#include "figures.h"
#include "headroom/config/part_options.h"
#include "training/cost/cost.h"

namespace headroom::cost::detail {

namespace {

struct TableRow {
  const char* name = nullptr;
  const char* recipe = nullptr;
  const char* macs = nullptr;
  const char* memory = nullptr;
};

// SwitchHead draft, Tables 2, 3 and 5.
constexpr TableRow kSwitchHead[] = {
    {"Transformer-XL 47M H=10", "switchhead/wt103_47m_dense_h10", "453.4M", "3.5M"},
    {"Transformer-XL 47M H=2", "switchhead/wt103_47m_dense_h2", "453.4M", "1.4M"},
    {"SwitchHead 47M H=2 k=2", "switchhead/wt103_47m", "170.4M", "0.8M"},
    {"SwitchHead 47M H=2 k=3", "switchhead/c4_47m", "202.5M", "0.8M"},
    {"MoA 47M n=2", "switchhead/wt103_47m_moa_h2", "140.1M", "0.7M"},
    {"MoA 47M n=4", "switchhead/wt103_47m_moa_h4", "223.5M", "1.3M"},
    {"MoA 47M n=6", "switchhead/wt103_47m_moa_h6", "306.8M", "1.9M"},
    {"MoA 47M n=8", "switchhead/wt103_47m_moa_h8", "390.2M", "2.6M"},
    {"Transformer-XL 262M H=16", "switchhead/wt103_262m_dense_h16", "5.4G", "21.0M"},
    {"Transformer-XL 262M H=2", "switchhead/wt103_262m_dense_h2", "5.4G", "6.3M"},
    {"SwitchHead 262M H=2 E=8 k=4", "switchhead/wt103_262m", "2.0G", "2.9M"},
    {"SwitchHead 262M H=4 E=4 k=2", "switchhead/c4_262m", "2.4G", "5.6M"},
    {"MoA 262M n=2", "switchhead/wt103_262m_moa_h2", "1.1G", "2.7M"},
    {"MoA 262M n=4", "switchhead/wt103_262m_moa_h4", "1.7G", "5.1M"},
    {"MoA 262M n=8", "switchhead/wt103_262m_moa_h8", "2.9G", "9.9M"},
    {"MoA 262M n=12", "switchhead/wt103_262m_moa_h12", "4.1G", "14.7M"},
    {"Transformer-XL Enwik8 41M H=8", "switchhead/enwik8_41m_dense_h8", "1.6G", "10.5M"},
    {"Transformer-XL Enwik8 41M H=2", "switchhead/enwik8_41m_dense_h2", "1.6G", "4.2M"},
    {"SwitchHead Enwik8 41M H=2", "switchhead/enwik8_41m", "709.3M", "2.8M"},
    {"Transformer RoPE 45M H=10", "switchhead/wt103_45m_rope_dense_h10", "560.9M", "6.1M"},
    {"Transformer RoPE 45M H=2", "switchhead/wt103_45m_rope_dense_h2", "560.9M", "1.9M"},
    {"SwitchHead RoPE 45M H=2", "switchhead/wt103_45m_rope", "285.6M", "1.3M"},
    {"Transformer RoPE 244M H=16", "switchhead/wt103_244m_rope_dense_h16", "6.4G", "37.7M"},
    {"Transformer RoPE 244M H=2", "switchhead/wt103_244m_rope_dense_h2", "6.4G", "8.4M"},
    // RoPE models have no memory (C = 1), but this row was printed with C = 2.
    {"SwitchHead RoPE 243M H=4 (C=2)", "switchhead/wt103_243m_rope", "4.2G", "18.4M"},
};

// Returns the multiply-accumulates by Eq. 13 (SwitchHead) or 14 (MoA) of the final paper, which count the positions of
// both chunks and omit the routing; empty for other models. The printed tables do not follow these equations.
std::string by_equation(const config::ModelOptions& m) {
  const config::AttentionOptions& a = m.attention;
  if (a.position.name() != "relative") {
    return {};
  }
  const Exact t = m.context_length, d = m.d_model, e = a.d_head, h = a.n_heads, s = t + m.memory_length;
  const Exact pairs = t * s * 2 * e, positions = s * 2 * e * d;
  if (a.projection.name() == "experts") {
    const Exact macs =
        h * (t * 2 * e * d + t * 2 * a.of<config::RoutingOptions>().top_k * e * (d + 1) + pairs + positions);
    return fmt::format("Eq. 13: {}", short_count(macs.value()));
  }
  if (a.projection.name() == "routed_heads") {
    return fmt::format("Eq. 14: {}", short_count(((h * 2 + 2) * t * e * d + h * pairs + positions).value()));
  }
  return {};
}

}  // namespace

Figures switchhead_figures() {
  Figures figures;
  for (const TableRow& row : kSwitchHead) {
    const config::ModelOptions model = model_of(row.recipe);
    const PaperCost cost = paper_cost(model);
    figures.push_back(because(count(row.name, "attention_macs", row.macs, cost.attention_macs), by_equation(model)));
    figures.push_back(count(row.name, "attention_memory", row.memory, cost.attention_memory));
  }
  return figures;
}

}  // namespace headroom::cost::detail
