// Measures the cost of results that do not depend on batching (docs/reproducibility.md), on a SwitchHead model of 47M
// parameters.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <span>

#include "headroom/config/config.h"
#include "headroom/models/language_model.h"
#include "timing.h"
#include "workload.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t kBitsTexts = 8, kBitsPrompt = 64, kBitsTokens = 16;

class BitsModel {
 public:
  explicit BitsModel(const BenchOptions& options)
      : model_(config::load_config("switchhead/wt103_47m").model, 1, at::TensorOptions(at::kFloat)),
        context_(context_for(options.precision, at::kCPU)) {
    if (context_.compute_dtype) {
      model_.parameters().cache_weights_in(*context_.compute_dtype);
    }
    at::manual_seed(1);
    tokens_ =
        at::randint(model_.options().vocabulary_size, {kBitsTexts, model_.options().context_length + 1}, at::kLong);
  }

  // Continues `rows` texts by kBitsTokens tokens each. `batched`: with kernels that depend on the number of rows.
  void decode(std::int64_t rows, bool batched) const {
    nn::Context context = context_;
    context.batched = batched;
    std::vector<models::DecodeState> states;
    for (std::int64_t row = 0; row < rows; ++row) {
      states.push_back(model_.start_decoding());
    }
    for (std::int64_t i = 0; i < kBitsTokens; ++i) {
      const at::Tensor next = tokens_.narrow(1, i, 1).repeat({rows / kBitsTexts, 1}).contiguous();
      model_.decode(models::decode_rows(next, states), context);
    }
  }

  // Scores all texts at once.
  void score(bool split_invariant) const {
    const at::NoGradGuard no_grad;
    models::Memory memory;
    const std::int64_t length = model_.options().context_length;
    model_.score(tokens_.narrow(1, 0, length), tokens_.narrow(1, 1, length), memory, with(split_invariant));
  }

  // Reads a prompt of kBitsPrompt + 1 tokens: the last one is read separately.
  void read(bool split_invariant) const {
    models::DecodeState state = model_.start_decoding();
    const std::span<const std::int64_t> tokens(tokens_.const_data_ptr<std::int64_t>(), kBitsPrompt + 1);
    model_.read({&state, tokens.first(kBitsPrompt)}, with(split_invariant));
    const models::DecodeRow last{&state, tokens.subspan(kBitsPrompt)};
    model_.decode({&last, 1}, with(split_invariant));
  }

 private:
  nn::Context with(bool split_invariant) const {
    nn::Context context = context_;
    context.split_invariant = split_invariant;
    return context;
  }

  models::LanguageModel model_;
  nn::Context context_;
  at::Tensor tokens_;
};

}  // namespace

std::vector<Row> bits(const BenchOptions& options) {
  const BitsModel subject(options);
  std::vector<Contender> contenders;
  for (const std::int64_t rows : {kBitsTexts, 16 * kBitsTexts}) {
    contenders.push_back({.name = fmt::format("{} x {} tokens, batched", rows, kBitsTokens),
                          .work = [&subject, rows] { subject.decode(rows, true); },
                          .reference = contenders.size()});
    contenders.push_back({.name = "the same, batch-invariant",
                          .work = [&subject, rows] { subject.decode(rows, false); },
                          .reference = contenders.size() - 1});
  }
  contenders.push_back({.name = fmt::format("scores of {} texts, any kernels", kBitsTexts),
                        .work = [&] { subject.score(false); },
                        .reference = contenders.size()});
  contenders.push_back({.name = "the same, independent of batching",
                        .work = [&] { subject.score(true); },
                        .reference = contenders.size() - 1});
  contenders.push_back({.name = fmt::format("prompt of {} + 1 tokens, any kernels", kBitsPrompt),
                        .work = [&] { subject.read(false); },
                        .reference = contenders.size()});
  contenders.push_back({.name = "the same, independent of batching",
                        .work = [&] { subject.read(true); },
                        .reference = contenders.size() - 1});
  return compare(contenders, options);
}

}  // namespace headroom::bench
