#include <fmt/format.h>

#include "figures.h"
#include "headroom/config/part_options.h"
#include "training/cost/cost.h"
#include "training/cost/count.h"

namespace headroom::cost::detail {

using namespace config;

namespace {

double share(Exact part, Exact whole) {
  return static_cast<double>(part.value()) / static_cast<double>(whole.value());
}

Exact attention_macs(const ModelOptions& model) {
  return forward_macs(*on_meta_device(model), 1).layers.front().attention;
}

// Returns the part of a layer's `count` that dynamic composition adds.
template <class Count>
Exact added_by_composition(const ModelOptions& model, const Count& count) {
  ModelOptions plain = model;
  plain.attention.composition = "none";
  return count(model) + -count(plain).value();
}

// Table 2. The printed ratios follow the formulas in its last row, which omit terms of the order of R / e. The remark
// gives the full count for the layers as implemented here.
void add_ratios(Figures& figures) {
  struct Row {
    const char* name;
    const char* recipe;
    std::int64_t length;
    const char* parameters;
    const char* flops;
  };
  constexpr Row kRows[] = {{"1.4B", "dcmha/1b4_dcformer_pp", 2048, "2.6%", "4.8%"},
                           {"6.9B", "dcmha/6b9_dcformer_pp", 2048, "1.3%", "1.9%"},
                           {"6.9B", "dcmha/6b9_dcformer_pp", 4096, "", "2.4%"},
                           {"6.9B", "dcmha/6b9_dcformer_pp", 8192, "", "3.3%"}};
  for (const Row& row : kRows) {
    const ModelOptions model =
        model_of(row.recipe, {fmt::format("model.context_length={}", row.length), "model.n_layers=1"});
    const Exact d = model.d_model, s = row.length;
    const double rank = static_cast<double>(model.attention.of<config::CompositionOptions>().compose_rank),
                 e = static_cast<double>(model.attention.d_head);
    const double rho = static_cast<double>(row.length) / static_cast<double>(model.d_model);
    const std::string name = fmt::format("Table 2, {}, S={}", row.name, row.length);
    if (row.parameters[0] != '\0') {
      figures.push_back(
          because(ratio(name + ": (2R+1)/(3e)", "extra_parameters", row.parameters, (2 * rank + 1) / (3 * e)),
                  fmt::format("in full, (8dHR + 16H^2R^2 + 4dH)/(12d^2): {:.2f}%",
                              100 * share(added_by_composition(model, attention_parameters), d * d * 12))));
    }
    // The paper also counts the elementwise application of the gates, once per side and stage.
    const Exact extra = added_by_composition(model, attention_macs) + s * s * model.attention.n_heads * 4;
    figures.push_back(
        because(ratio(name + ": 4(2R+1)(1+rho)/((12+rho)e)", "extra_flops", row.flops,
                      4 * (2 * rank + 1) * (1 + rho) / ((12 + rho) * e)),
                fmt::format("in full, every product: {:.2f}%", 100 * share(extra, d * s * (d * 12 + s)))));
  }
}

// Tables 3, 7 and 8.
void add_sizes(Figures& figures) {
  for (const auto& [name, recipe] :
       {std::pair("405M", "dcmha/405m_dcformer_pp"), std::pair("834M", "dcmha/834m_dcformer_pp"),
        std::pair("1.4G", "dcmha/1b4_dcformer_pp")}) {
    const ModelOptions m = model_of(recipe);
    const Exact d = m.d_model;
    PaperFigure figure = count(fmt::format("Table 3: L={} d={}", m.n_layers, m.d_model), "parameters", name,
                               Exact(m.n_layers) * d * d * 12 + d * 2 * m.vocabulary_size);
    figure.printed = name == std::string("1.4G") ? "1.4B" : name;
    figures.push_back(because(std::move(figure), "12Ld^2 + 2Vd, V = 50256, as for the original architecture"));
  }
  const Exact small = count_parameters(model_of("dcmha/vit_s16")), medium = count_parameters(model_of("dcmha/vit_m16"));
  const Exact composed = count_parameters(model_of("dcmha/dcvit_s16"));
  figures.push_back(count("Table 7: ViT-S/16", "parameters", "22M", small));
  figures.push_back(count("Table 7: ViT-M/16", "parameters", "39M", medium));
  figures.push_back(ratio("Table 8: DCViT-S/16", "relative_size", "1.03", share(composed, small)));
  figures.push_back(
      because(ratio("Table 8: ViT-M/16", "relative_size", "1.72", share(medium, small)),
              fmt::format("{:.2f} is its size relative to DCViT-S/16, not ViT-S/16", share(medium, composed))));
}

}  // namespace

Figures dcmha_figures() {
  Figures figures;
  add_ratios(figures);
  add_sizes(figures);
  const std::string speed = "a speed measured on the authors' TPU v3 and A100";
  for (const auto& [row, training, inference] :
       {std::tuple("2.8B", "396, 295", "151/164, 133"), std::tuple("6.9B", "201, 167", "83.2/88.7, 78.6"),
        std::tuple("13B", "203, 171", "45.5/48.1, 43.3"), std::tuple("33B", "84, 75", "19.9/21.0, 18.9")}) {
    figures.push_back(underivable(fmt::format("Table 6: {}", row), "training_tokens_per_second", training, speed));
    figures.push_back(underivable(fmt::format("Table 6: {}", row), "inference_tokens_per_second", inference, speed));
  }
  for (const auto& [row, training, inference] :
       {std::tuple("1:1", "167", "78.6"), std::tuple("3:1", "174", "82.39"), std::tuple("7:1", "177", "84.46"),
        std::tuple("1:1 QW", "184", "82.89"), std::tuple("3:1 QW", "186", "85.97")}) {
    figures.push_back(underivable(fmt::format("Table 10: {}", row), "training_tokens_per_second", training, speed));
    figures.push_back(underivable(fmt::format("Table 10: {}", row), "inference_tokens_per_second", inference, speed));
  }
  return figures;
}

}  // namespace headroom::cost::detail
