#include <fmt/format.h>

#include "figures.h"
#include "training/cost/cost.h"

namespace headroom::cost::detail {

using namespace config;

namespace {

// Sizes of an attention layer in the notation of appendix B. Defaults: the small language models.
struct LayerSizes {
  std::int64_t n = 256, d_x = 128, d = 16, h = 8;
};

// Returns the multiplications and additions of the matrix multiplication [rows x inner][inner x columns].
Exact operations(Exact rows, std::int64_t inner, Exact columns) {
  return rows * columns * (2 * inner - 1);
}

// Returns the operations of appendix B, summed over its matrix multiplications: `heads` heads with `keys` keys per
// position, whose scores are summed, and H D output channels, as in the softmax baseline.
Exact attention_operations(const LayerSizes& z, std::int64_t heads, std::int64_t keys) {
  const Exact projections = operations(z.n, z.d_x, z.d) * (keys + 2);
  const Exact scores = operations(z.n, z.d, z.n) * keys + Exact(z.n) * z.n * (keys - 1);
  const Exact values = operations(z.n, z.n, z.d);
  return (projections + scores + values) * heads + operations(z.n, heads * z.d, Exact(z.h) * z.d);
}

void add_appendix(Figures& figures) {
  const LayerSizes z;
  const auto [n, d_x, d, h] = z;
  const auto printed = [](std::int64_t value) { return fmt::format("{}", value); };
  const std::string sizes = fmt::format("N={} Dx={} D={} H={}", n, d_x, d, h);
  figures.push_back(count("Softmax, N^2H(4D-1) + NHD(6Dx+2HD-5), " + sizes, "operations",
                          printed(n * n * h * (4 * d - 1) + n * h * d * (6 * d_x + 2 * h * d - 5)),
                          attention_operations(z, h, 1)));
  figures.push_back(because(count("MGK, H/2 heads, N^2H(3D-0.5) + NHD(4Dx+HD-4), " + sizes, "operations",
                                  printed(n * n * h * (6 * d - 1) / 2 + n * h * d * (4 * d_x + h * d - 4)),
                                  attention_operations(z, h / 2, 2)),
                            "the closed form's last constant is 3.5 by the paper's own general formula"));
  const std::int64_t m = 2;
  figures.push_back(count("MGK, (H/M)[N^2((2M+2)D-1) + ND((M+2)(2Dx-1)-1)] + NHD(2(H/M)D-1), M=2, " + sizes,
                          "operations",
                          printed(h / m * (n * n * ((2 * m + 2) * d - 1) + n * d * ((m + 2) * (2 * d_x - 1) - 1)) +
                                  n * h * d * (2 * (h / m) * d - 1)),
                          attention_operations(z, h / m, m)));
  const auto parameters = [&](const char* recipe, const std::vector<std::string>& changes) {
    return attention_parameters(model_of(recipe, changes));
  };
  figures.push_back(count("Softmax, 3HDDx + (HD)^2, " + sizes, "attention_parameters",
                          printed(3 * h * d * d_x + h * d * h * d), parameters("mgk/wt103_small_softmax_h8", {})));
  figures.push_back(count("MGK, H/2 heads, 2HDDx + (HD)^2/2 + H, " + sizes, "attention_parameters",
                          printed(2 * h * d * d_x + h * d * h * d / 2 + h),
                          parameters("mgk/wt103_small_mgk_h4", {"model.attention.prior=head"})));
}

}  // namespace

Figures mgk_figures() {
  Figures figures;
  add_appendix(figures);
  figures.push_back(count("WikiText-103, Softmax 8 heads (medium)", "parameters", "90M",
                          count_parameters(model_of("mgk/wt103_medium_softmax_h8"))));
  // Table 6.
  const std::string measured = "measured on the authors' A100, including what their framework stores besides";
  for (const auto& [row, memory, seconds] :
       {std::tuple("Softmax 8 heads", "58.00", "0.357"), std::tuple("Transformer-MGK 4 heads", "53.58", "0.278"),
        std::tuple("Transformer-sMGK 4 heads", "45.50", "0.227"), std::tuple("Linear 8 heads", "3.38", "0.055"),
        std::tuple("Transformer-MLK 4 heads", "2.90", "0.043"),
        std::tuple("Transformer-sMLK 4 heads", "2.83", "0.042")}) {
    figures.push_back(underivable(fmt::format("Table 6: {}", row), "gigabytes", memory, measured));
    figures.push_back(underivable(fmt::format("Table 6: {}", row), "seconds_per_step", seconds, measured));
  }
  for (const char* figure : {"Fig. 3", "Fig. 7", "Fig. 13", "Fig. 14"}) {
    figures.push_back(underivable(fmt::format("{}: operations and parameters by heads", figure), "operations",
                                  "(curves)", "drawn without figures; recipes mgk/lra_* give our own counts"));
  }
  return figures;
}

}  // namespace headroom::cost::detail
