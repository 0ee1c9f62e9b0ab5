// Tests that every combination of projection, score, composition, position and mask either works or is refused with a
// message, as listed in docs/combinations.md.

#include <cstdlib>
#include <fstream>

#include "combinations.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::combinations_test {

using testing::Choice;
using testing::relative_error;

struct CombinedLayer : Layer {
  config::ModelOptions model;
  bool causal;

  explicit CombinedLayer(const config::ModelOptions& m, at::ScalarType type = at::kDouble)
      : Layer(m.attention, place_in(m), type, /*noise=*/0.4),
        model(m),
        causal(m.kind == config::ModelKind::language_model) {}

  std::int64_t n_source() const { return model.memory_length + model.context_length; }
  // Returns the output for the last context_length tokens of `all` [B, S, d].
  at::Tensor run(const at::Tensor& all, std::optional<at::Tensor> valid = std::nullopt) const {
    return last(all, model.context_length, {}, std::move(valid));
  }
};

at::Tensor tokens(const CombinedLayer& layer) {
  at::manual_seed(11);
  return at::randn({2, layer.n_source(), layer.model.d_model}, at::kDouble);
}

// Compares the derivative along one random direction of all parameters and inputs with a central difference.
void expect_gradient(CombinedLayer& layer, const std::string& name) {
  at::Tensor x = tokens(layer);
  x.requires_grad_(true);
  std::vector<at::Tensor> leaves = {x}, direction;
  for (const Parameter& p : layer.parameters.all()) {
    leaves.push_back(p.tensor);
  }
  const auto objective = [&] {
    const at::Tensor y = layer.run(x);
    return (y * at::cos(at::arange(y.numel(), at::kDouble)).view(y.sizes())).sum();
  };
  const auto gradients = torch::autograd::grad({objective()}, leaves, {}, false, false, /*allow_unused=*/true);
  const at::NoGradGuard no_grad;
  double along = 0.0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    direction.push_back(at::randn_like(leaves[i]));
    along += gradients[i].defined() ? (gradients[i] * direction[i]).sum().item<double>() : 0.0;
  }
  constexpr double kStep = 1e-6;
  const auto moved = [&](double step) {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      leaves[i].add_(direction[i], step);
    }
    const double value = objective().item<double>();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      leaves[i].sub_(direction[i], step);
    }
    return value;
  };
  const auto slope = [&](double step) { return (moved(step) - moved(-step)) / (2.0 * step); };
  // The difference has an error of a third derivative (up to 1e9, from scores of 50 in exp) times step^2 / 6, plus
  // rounding divided by step. Low-rank maps with factors near 0 have larger third derivatives and need a smaller step.
  const double first = slope(kStep), limit = 1e-6 * std::max(1.0, std::abs(first));
  EXPECT_NEAR(along, std::abs(along - first) <= limit ? first : slope(kStep / 4.0), limit) << name;
}

// `whole` is the output for `all`.
void expect_decoding(const CombinedLayer& layer, const at::Tensor& all, const at::Tensor& whole,
                     const std::string& name) {
  RowCaches caches(layer.attention, all.size(0));
  const at::Tensor stepped = caches.read_all(layer.attention, all, {2, 3});  // pieces, then single tokens
  const std::int64_t t = whole.size(1);
  EXPECT_LE(relative_error(stepped.narrow(1, stepped.size(1) - t, t), whole), 1e-10) << name << ": decoding";
}

// Padding and later tokens must not change the result. The batch has two copies with different content in a padded
// token, one without that padding, and one with another last token.
void expect_blindness(const CombinedLayer& layer, const at::Tensor& all, const at::Tensor& whole,
                      const std::string& name) {
  const std::int64_t s = all.size(1), t = layer.model.context_length;
  const at::Tensor changed = all.clone(), later = all.clone(), valid = at::ones({8, s}, at::kBool);
  changed.select(1, s - t + 1).normal_();
  later.select(1, s - 1).normal_();
  valid.narrow(0, 0, 4).select(1, s - t + 1).fill_(false);
  const std::vector<at::Tensor> y = layer.run(at::cat({changed, all, changed, later}), valid).chunk(4);
  const auto others = [&](const at::Tensor& o) { return at::cat({o.narrow(1, 0, 1), o.narrow(1, 2, t - 2)}, 1); };
  EXPECT_LE(relative_error(others(y[0]), others(y[1])), 1e-12) << name << ": padding";
  EXPECT_GT(relative_error(others(y[2]), others(whole)), 1e-6) << name << ": without padding";
  if (layer.causal) {
    EXPECT_LE(relative_error(y[3].narrow(1, 0, t - 1), whole.narrow(1, 0, t - 1)), 1e-12) << name << ": causality";
  }
}

// Returns the result, and the gradients of the tokens and of all parameters.
testing::Evaluated evaluated(const CombinedLayer& layer, const at::Tensor& all, Implementation implementation) {
  std::vector<at::Tensor> leaves = {all.detach().clone().requires_grad_(true)};
  for (const Parameter& p : layer.parameters.all()) {
    leaves.push_back(p.tensor);
  }
  const at::Tensor y = layer.last(leaves[0], layer.model.context_length, {.implementation = implementation});
  const at::Tensor weight = at::cos(at::arange(y.numel(), at::kDouble)).view(y.sizes());
  return {y.detach(), torch::autograd::grad({(y * weight).sum()}, leaves, {}, false, false, /*allow_unused=*/true)};
}

// In single precision, fused training and decoding may have a few times the reference's error. Errors are measured
// against the reference in double precision. Composed heads and mixtures amplify rounding.
void expect_fused(const config::ModelOptions& model, const std::string& name) {
  const CombinedLayer layer(model, at::kFloat), wide(model);
  const at::Tensor all = tokens(wide).to(at::kFloat);
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < wide.parameters.all().size(); ++i) {
      wide.parameters.all()[i].tensor.copy_(layer.parameters.all()[i].tensor);
    }
  }
  testing::Evaluated exact = evaluated(wide, all.to(at::kDouble), Implementation::reference),
                     reference = evaluated(layer, all, Implementation::reference),
                     fused = evaluated(layer, all, Implementation::automatic);
  double rounding = relative_error(reference.value, exact.value);
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    if (exact.gradients[i].defined() && exact.gradients[i].abs().max().item<double>() < 1e-12) {
      EXPECT_LE(fused.gradients[i].abs().max().item<double>(), 1e-5) << name;  // 0, as for shifts of all scores
      exact.gradients[i] = fused.gradients[i] = at::Tensor();
    }
    if (exact.gradients[i].defined()) {
      rounding = std::max(rounding, relative_error(reference.gradients[i], exact.gradients[i]));
    }
  }
  EXPECT_LE(rounding, 1e-3) << name;
  const double bound = std::max(1e-4, 4.0 * rounding);  // fused errors may be 3e-5 where the reference's are smaller
  testing::expect_close(fused, exact, bound, name);
  const at::NoGradGuard no_grad;
  RowCaches caches(layer.attention, all.size(0));
  const at::Tensor stepped = caches.read_all(layer.attention, all, {2, 3});
  const std::int64_t t = exact.value.size(1);
  EXPECT_LE(relative_error(stepped.narrow(1, stepped.size(1) - t, t), exact.value), bound) << name;
}

// Joins the names with equal `text`, in order.
std::vector<std::pair<std::string, std::string>> merged(const std::vector<Choice>& choices,
                                                        const std::function<std::string(const std::string&)>& text) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const Choice& choice : choices) {
    const std::string own = text(choice.name);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.second == own; });
    if (same == groups.end()) {
      groups.emplace_back(choice.name, own);
    } else {
      same->first += fmt::format("; {}", choice.name);
    }
  }
  return groups;
}

// Writes the table of cells and the messages, numbered in order of appearance.
class Page {
 public:
  std::string note(const std::string& sentence) {
    const auto [found, fresh] = numbers_.emplace(sentence, sentences_.size() + 1);
    if (fresh) {
      sentences_.push_back(sentence);
    }
    return std::to_string(found->second);
  }
  void set(const std::string& key, const std::string& cell) { cells_[key] = cell; }

  std::string text() const {
    std::ostringstream page;
    page << R"(# Which parts combine

An attention layer is projection x score x composition x position x mask. Every "yes" below was built and checked in
float64: decoding equals the full pass, and padding and later tokens change nothing. Gradients are compared with finite
differences for the widest causal mask of a combination and without a causal mask. A number refers to the sentence that
refuses the combination when a config is read. The test that checks the combinations writes this page
(`HEADROOM_WRITE_DOCS=1`, program `nn_test`). "both ways" is the attention of encoders, without a causal mask.
)";
    for (const auto& [projections, table] : merged(testing::projections(), [&](auto p) { return tables(p); })) {
      page << "\n## Projection: " << projections << table;
    }
    page << "\n## Output gates\n\nWith dot products, rotary positions and every mask.\n\n" << gates();
    page << "\n## Why not\n";
    for (std::size_t i = 0; i < sentences_.size(); ++i) {
      page << i + 1 << ". " << sentences_[i] << "\n";
    }
    return page.str();
  }

 private:
  std::string gates() const {
    std::string head = "| projection |", rule = "|---|", rows;
    for (const Choice& gate : testing::output_gates()) {
      head += fmt::format(" {} |", gate.name);
      rule += "---|";
    }
    const auto row = [&](const std::string& projection) {
      std::string cells;
      for (const Choice& gate : testing::output_gates()) {
        cells += fmt::format(" {} |", cells_.at(projection + " / " + gate.name));
      }
      return cells;
    };
    for (const auto& [projections, cells] : merged(testing::projections(), row)) {
      rows += fmt::format("| {} |{}\n", projections, cells);
    }
    return head + "\n" + rule + "\n" + rows;
  }

  std::string tables(const std::string& projection) const {
    std::string all;
    for (const auto& [scores, table] :
         merged(testing::scores(), [&](auto s) { return by_composition(projection + "/" + s); })) {
      all += "\n\nScore: " + scores + "\n" + table;
    }
    return all + "\n";
  }

  std::string by_composition(const std::string& key) const {
    std::string head = "\n| composition | mask |", rule = "|---|---|", rows;
    for (const Choice& position : testing::positions()) {
      head += fmt::format(" {} |", position.name);
      rule += "---|";
    }
    for (const auto& [compositions, block] :
         merged(testing::compositions(), [&](auto c) { return by_mask(key + "/" + c); })) {
      std::istringstream lines(block);
      for (std::string line; std::getline(lines, line);) {
        rows += "\n| " + compositions + " " + line;
      }
    }
    return head + "\n" + rule + rows;
  }

  std::string by_mask(const std::string& key) const {
    std::string lines;
    for (const auto& [masks, cells] : merged(testing::masks(), [&](auto m) { return row(key + "/" + m); })) {
      lines += "| " + masks + " |" + cells + "\n";
    }
    return lines;
  }

  std::string row(const std::string& key) const {
    std::string cells;
    for (const Choice& position : testing::positions()) {
      cells += " " + cells_.at(key + "/" + position.name) + " |";
    }
    return cells;
  }

  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> sentences_;
  std::map<std::string, std::string> cells_;  // such as "dense/dot/none/causal/rope" -> "yes"
};

std::string check_combination(const config::ModelOptions& model, const std::string& name, Page& page) {
  if (const std::string why = testing::refusal(model); !why.empty()) {
    return page.note(why);
  }
  CombinedLayer layer(model);
  if (testing::has_widest_mask(model)) {
    expect_gradient(layer, name);
    if (layer.causal) {
      expect_fused(model, name);
    }
  }
  const at::NoGradGuard no_grad;
  const at::Tensor all = tokens(layer), whole = layer.run(all);
  expect_blindness(layer, all, whole, name);
  if (layer.causal) {
    expect_decoding(layer, all, whole, name);
  }
  return "yes";
}

void check_all(Page& page) {
  testing::for_products(testing::all_axes(), [&](const std::string& key, const config::ModelOptions& model) {
    page.set(key, check_combination(model, key, page));
  });
}

void check_gates(Page& page) {
  for (const Choice& projection : testing::gated_projections()) {
    for (const Choice& mask : testing::masks()) {
      config::ModelOptions model = testing::small_model();
      projection.set(model);
      mask.set(model);
      page.set(projection.name, check_combination(model, projection.name + " / " + mask.name, page));
    }
  }
}

TEST(Combinations, EachWorksOrIsRefusedWithASentence) {
  Page page;
  check_all(page);
  check_gates(page);
  const std::string file = std::string(HEADROOM_SOURCE_DIR) + "/docs/combinations.md";
  if (std::getenv("HEADROOM_WRITE_DOCS") != nullptr) {
    std::ofstream(file) << page.text();
  }
  std::ifstream stored(file);
  std::stringstream content;
  content << stored.rdbuf();
  EXPECT_TRUE(content.str() == page.text())
      << file << " is not what this test finds: HEADROOM_WRITE_DOCS=1 writes it anew";
}

}  // namespace headroom::nn::combinations_test
