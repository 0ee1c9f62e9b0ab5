#include <algorithm>
#include <functional>

#include "checker.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/attention_part.h"
#include "parse.h"

namespace headroom::config {
namespace {

using detail::Checker;
using detail::Origin;

void check_tokenizer(const Config& config, Origin origin) {
  const TokenizerOptions& t = config.tokenizer;
  const std::int64_t known = config.model.vocabulary_size;
  const std::int64_t special = n_special_tokens(config.model.kind);
  const std::string besides = special == 0 ? "" : fmt::format(" and {} special tokens", special);
  const Checker model(origin, "model"), tokenizer(origin, "tokenizer");
  tokenizer.require(t.source_model.empty() || config.model.source_vocabulary_size > 0, "source_model",
                    "needs model.source_vocabulary_size, the number of its tokens, got 0");
  if (has_tokenizer(config) || !config.train.start_from.empty() || config.model.kind == ModelKind::vision) {
    return;  // the size is known only once the file is read; images have no tokens
  }
  tokenizer.require(t.vocabulary_size > 0 || t.kind == TokenizerKind::words, "vocabulary_size",
                    "must be above 0 with {}", detail::setting("kind", t.kind));
  if (t.kind == TokenizerKind::bytes) {
    // Fewer than 256 if only the byte values of the training text have ids.
    const std::int64_t size = std::min(kByteValues, t.vocabulary_size) + special;
    model.require(known == size, "vocabulary_size", "must be {}, the size of the bytes tokenizer{}, got {}", size,
                  besides, known);
    tokenizer.require(t.vocabulary_size <= kByteValues, "vocabulary_size", "must be at most {} with {}, got {}",
                      kByteValues, detail::setting("kind", t.kind), t.vocabulary_size);
  } else {
    model.require(known >= t.vocabulary_size + special, "vocabulary_size",
                  "must be at least {}, the size of the tokenizer{}, got {}", t.vocabulary_size + special, besides,
                  known);
  }
}

void check_train(const TrainOptions& t, Origin origin) {
  const Checker check(origin, "train");
  check.require(t.batch_size % t.accumulate == 0, "accumulate", "must divide batch_size = {}, got {}", t.batch_size,
                t.accumulate);
  check.require(t.gradient_accumulators == 0 || t.accumulate % t.gradient_accumulators == 0, "gradient_accumulators",
                "must be 0 or divide accumulate = {}, got {}", t.accumulate, t.gradient_accumulators);
  check.require(t.betas.size() == 2, "betas", "must be two numbers, got {}", t.betas.size());
  check.require(is_device(t.device), "device", "must be \"auto\", \"cpu\", \"cuda\" or \"cuda:<n>\", got \"{}\"",
                t.device);
  constexpr double kShortestGradient = 1e-20;  // smaller scale factors underflow float32
  check.require(t.clip_norm == 0.0 || t.clip_norm >= kShortestGradient, "clip_norm",
                "must be 0 (no clipping) or at least {}, got {}", kShortestGradient, t.clip_norm);
  constexpr double kLargest = 1e30;  // the product with a learning rate must fit float32
  check.require(t.weight_decay <= kLargest, "weight_decay", "must be at most {}, got {}", kLargest, t.weight_decay);
  check.require(t.steps > 0 || !t.start_from.empty(), "steps",
                "must be at least 1, or 0 with start_from, which is not set, got {}", t.steps);
  check.require(t.warmup_steps <= t.steps, "warmup_steps", "must be at most steps = {}, got {}", t.steps,
                t.warmup_steps);
}

void check_batch_tokens(const Config& config, Origin origin) {
  const Checker check(origin, "train");
  const std::int64_t least = config.model.context_length * config.train.accumulate;
  check.require(config.train.batch_tokens == 0 || config.train.batch_tokens >= least, "batch_tokens",
                "must be 0 or at least {}, one sequence of model.context_length for each micro-batch, got {}", least,
                config.train.batch_tokens);
}

void check_sequences(const Config& config, const Checker& check) {
  const DataOptions& data = config.data;
  if (data.synthetic == Synthetic::none) {
    return;
  }
  check.require(config.model.kind == ModelKind::language_model, "synthetic",
                "\"{}\" needs model.kind = \"language_model\", not \"{}\"", name_of(data.synthetic),
                name_of(config.model.kind));
  check.require(config.tokenizer.kind == TokenizerKind::bytes, "synthetic",
                "\"{}\" needs tokenizer.kind = \"bytes\", not \"{}\"", name_of(data.synthetic),
                name_of(config.tokenizer.kind));
  check.require(data.train.empty() && data.validation.empty() && data.generator == Generator::none, "synthetic",
                "\"{}\" needs data.train = [], data.validation = [] and data.generator = \"none\"",
                name_of(data.synthetic));
  check.require(config.model.memory_length == 0, "synthetic",
                "\"{}\" has independent rows and needs model.memory_length = 0, got {}", name_of(data.synthetic),
                config.model.memory_length);
}

void check_data(const Config& config, Origin origin) {
  const DataOptions& data = config.data;
  const Checker check(origin, "data");
  check.require(!data.json_field.empty(), "json_field", "must not be empty");
  const std::pair<const char*, const std::vector<std::string>*> files[] = {
      {"train", &data.train},
      {"validation", &data.validation},
      {"train_target", &data.train_target},
      {"validation_target", &data.validation_target}};
  for (const auto& [key, names] : files) {
    check.require(std::find(names->begin(), names->end(), "") == names->end(), key,
                  "must be file names, got an empty one");
  }
  check.require_distinct("classes", data.classes);
  const std::size_t weights = data.mixture.size(), names = data.train.size();
  check.require(weights == 0 || weights == names, "mixture",
                "must have {} weights, one for each entry of data.train, got {}", names, weights);
  check.require(data.max_length_ratio == 0.0 || data.max_length_ratio >= 1.0, "max_length_ratio",
                "must be 0 or at least 1, got {}", data.max_length_ratio);
  check.require(data.validation_target.empty() || !data.validation.empty(), "validation_target",
                "must be [] without data.validation, the sources of these targets");
  check.require(config.model.memory_length == 0 || data.batching == Batching::streams, "batching",
                "must be \"streams\" with model.memory_length = {}: independent chunks have no memory",
                config.model.memory_length);
  const bool listops = data.generator == Generator::listops || data.generator == Generator::listops_long;
  check.require(!listops || config.model.kind == ModelKind::classifier, "generator",
                "\"{}\" needs model.kind = \"classifier\", not \"{}\"", name_of(data.generator),
                name_of(config.model.kind));
  check_sequences(config, check);
  check.require(data.generator != Generator::composition || config.model.kind == ModelKind::language_model, "generator",
                "\"composition\" needs model.kind = \"language_model\", not \"{}\"", name_of(config.model.kind));
}

void check_cutoffs(const Checker& here, const ModelOptions& model) {
  const std::vector<std::int64_t>& cutoffs = model.adaptive_cutoffs;
  const auto fall = std::adjacent_find(cutoffs.begin(), cutoffs.end(), std::greater_equal<>());
  here.require(fall == cutoffs.end(), "adaptive_cutoffs", "must ascend, got {} before {}",
               fall == cutoffs.end() ? 0 : fall[0], fall == cutoffs.end() ? 0 : fall[1]);
  here.require(cutoffs.empty() || cutoffs.back() < model.vocabulary_size, "adaptive_cutoffs",
               "must stay below vocabulary_size = {}, got {}", model.vocabulary_size,
               cutoffs.empty() ? 0 : cutoffs.back());
}

void check_kind(const Checker& here, const ModelOptions& m) {
  const std::string kind = detail::setting("kind", m.kind);
  here.require(!m.has_classes() || m.n_classes >= 2, "n_classes", "must be at least 2 with {}, got {}", kind,
               m.n_classes);
  here.require(!m.has_classes() || !m.tied_embeddings, "tied_embeddings",
               "must be false with {}, whose head predicts classes", kind);
  if (m.kind == ModelKind::vision) {
    here.require(m.has_whole_patches(), "patch_size", "must divide image_size = {}, got {}", m.image_size,
                 m.patch_size);
    here.require(m.attention.position->added_vectors() != AddedVectors::fixed || m.d_model % 4 == 0, "d_model",
                 "must be a multiple of 4 with 2-D sinusoidal positions, got {}", m.d_model);
    here.require(m.context_length == m.patches(), "context_length", "must be {}, the number of patches, got {}",
                 m.patches(), m.context_length);
  }
}

void check_model(const ModelOptions& model, Origin origin) {
  const Checker here(origin, "model");
  here.require(model.memory_length == 0 || model.memory_length == model.context_length, "memory_length",
               "must be 0 or context_length = {}, got {}", model.context_length, model.memory_length);
  check_cutoffs(here, model);
  check_kind(here, model);
  detail::check_layers(model, origin);
}

}  // namespace

bool is_token_file(std::string_view name) {
  const std::string lower = lower_case(name);
  return lower.ends_with(".tokens") || lower.ends_with(".safetensors");
}

bool is_device(std::string_view name) {
  constexpr std::string_view kNumbered = "cuda:";
  if (!name.starts_with(kNumbered)) {
    return name == "auto" || name == "cpu" || name == "cuda";
  }
  name.remove_prefix(kNumbered.size());
  return !name.empty() && name.size() <= 3 && name.find_first_not_of("0123456789") == std::string_view::npos;
}

void check(const ModelOptions& model, std::string_view origin) {
  check_model(model, {.config = origin});
}

bool has_tokenizer(const Config& config) {
  const DataOptions& data = config.data;
  return !config.tokenizer.model.empty() || std::ranges::any_of(data.train, is_token_file) ||
         std::ranges::any_of(data.validation, is_token_file);
}

void check(const Config& config, std::string_view name) {
  const Origin origin = {.config = name, .given = &config.given};
  check_model(config.model, origin);
  check_tokenizer(config, origin);
  check_train(config.train, origin);
  check_batch_tokens(config, origin);
  check_data(config, origin);
  detail::check_unused(config, origin, /*with_model=*/true);
}

void detail::check_apart_from_model(const Config& config, std::string_view name) {
  const Origin origin = {.config = name, .given = &config.given};
  check_train(config.train, origin);
  check_data(config, origin);
  detail::check_unused(config, origin, /*with_model=*/false);
}

}  // namespace headroom::config
