// A small byte model, and its log-probabilities computed from their definition.
#pragma once

#include "headroom/models/language_model.h"
#include "tiny/files.h"
#include "training/tasks/language/scoring.h"

namespace headroom::tasks::byte_scores {

inline config::ModelOptions model_options(std::int64_t memory) {
  config::ModelOptions options = tiny::config().model;
  options.context_length = memory > 0 ? 8 : 64;
  options.memory_length = memory;
  return options;
}

// Returns the log-probability of the text's last bytes, from a single pass over the model's context.
inline SpanScore by_definition(const models::LanguageModel& model, const std::string& context,
                               const std::string& answer) {
  const at::NoGradGuard no_grad;
  const std::string text = "\n" + context + answer;
  std::vector<std::int64_t> ids;
  for (const char c : text) {
    ids.push_back(static_cast<unsigned char>(c));
  }
  const at::Tensor all = at::tensor(ids, at::kLong).unsqueeze(0);
  const std::int64_t length = std::ssize(ids) - 1, chunk = model.options().context_length;
  const std::int64_t out = model.options().memory_length > 0 ? 0 : std::max<std::int64_t>(0, length - chunk);
  models::Memory memory;
  std::vector<at::Tensor> parts;
  for (std::int64_t begin = out; begin < length; begin += chunk) {
    parts.push_back(model.logits(all.narrow(1, begin, std::min(chunk, length - begin)), memory, {})[0]);
  }
  const at::Tensor log_p = at::cat(parts).to(at::kDouble).log_softmax(-1);
  SpanScore score;
  for (std::int64_t place = length - std::ssize(answer); place < length; ++place) {
    const at::Tensor now = log_p[place - out];
    score.log_probability += now[ids[static_cast<std::size_t>(place + 1)]].item<double>();
    score.likeliest = score.likeliest && now.argmax().item<std::int64_t>() == ids[static_cast<std::size_t>(place + 1)];
    ++score.tokens;
  }
  return score;
}

}  // namespace headroom::tasks::byte_scores
