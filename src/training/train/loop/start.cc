#include "start.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/store/open_model.h"
#include "headroom/store/run_folder.h"
#include "state.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "train.start_from";

// Keys of `model` that a run may set anew: what training does, and how far layers see. All others decide which
// parameters there are or what they mean.
bool may_change(std::string_view key) {
  constexpr std::string_view kBeginnings[] = {"model.initialisation",   "model.embedding_std",
                                              "model.context_length",   "model.memory_length",
                                              "model.attention.window", "model.attention.rope_base"};
  constexpr std::string_view kEnds[] = {"dropout", "_coefficient"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [key](std::string_view begin) { return key.starts_with(begin); }) ||
         std::any_of(std::begin(kEnds), std::end(kEnds), [key](std::string_view end) { return key.ends_with(end); });
}

// Where the config was given this key, to begin a message with.
std::string place_of(const config::Config& config, const std::string& key) {
  const auto given = config.given.find(key);
  return given == config.given.end() ? key : fmt::format("{}: {}", given->second, key);
}

void require_same_model(const config::Config& config, const config::Config& was, const fs::path& file) {
  const auto is = config::flatten(config), there = config::flatten(was);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto& [key, value] = is[i];
    const bool asked = config.given.contains(key) || key == "model.kind";
    if (key.starts_with("model.") && asked && !may_change(key) && value != there[i].second) {
      user_error("{} must be {}, as in {} ({}), got {}", place_of(config, key), there[i].second, file.string(), kKey,
                 value);
    }
  }
}

void require_same_tokenizer(const config::Config& config, const store::Checkpoint& checkpoint, const fs::path& file) {
  const config::TokenizerOptions& is = config.tokenizer;
  const tokenizers::Tokenizer& there = *checkpoint.tokenizer;
  if (config.given.contains("tokenizer.kind") && is.kind != there.kind()) {
    user_error("{} must be \"{}\", that of the tokenizer in {} ({}), got \"{}\"", place_of(config, "tokenizer.kind"),
               config::name_of(there.kind()), file.string(), kKey, config::name_of(is.kind));
  }
  if (config.given.contains("tokenizer.vocabulary_size") && is.vocabulary_size != there.vocabulary_size() &&
      is.vocabulary_size != checkpoint.config.tokenizer.vocabulary_size) {
    user_error("{} must be {}, that of the tokenizer in {} ({}), got {}", place_of(config, "tokenizer.vocabulary_size"),
               there.vocabulary_size(), file.string(), kKey, is.vocabulary_size);
  }
  if (!is.model.empty()) {
    const std::string name = tokenizers::load_tokenizer(is.model, there.vocabulary_size())->name();
    if (name != there.name() && name != there.for_targets().name()) {
      user_error("{}: {} is {}, but the tokenizer in {} ({}) is {}", place_of(config, "tokenizer.model"), is.model,
                 name, file.string(), kKey, there.for_targets().name());
    }
  }
  if (!is.source_model.empty()) {
    const std::string name = tokenizers::load_tokenizer(is.source_model)->name();
    if (name != there.for_sources().name()) {
      user_error("{}: {} is {}, but the sources' tokenizer in {} ({}) is {}",
                 place_of(config, "tokenizer.source_model"), is.source_model, name, file.string(), kKey,
                 there.for_sources().name());
    }
  }
}

// The keys that may change decide about shapes with some kinds of positions.
void require_same_shapes(const config::Config& config, const store::Checkpoint& checkpoint, const fs::path& file) {
  const auto shapes = models::make_model(config.model, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
  for (const nn::Parameter& parameter : shapes->parameters().stored()) {
    const auto found = checkpoint.tensors.find("model." + parameter.name);
    if (found == checkpoint.tensors.end() || found->second.sizes() != parameter.tensor.sizes()) {
      user_error(
          "{} must be {}, as in {} ({}), whose parameter \"{}\" has a number of its own for each position, got {}",
          place_of(config, "model.context_length"), checkpoint.config.model.context_length, file.string(), kKey,
          parameter.name, config.model.context_length);
    }
  }
}

config::Config filled(config::Config config, const store::Checkpoint& checkpoint) {
  const config::GivenKeys given = config.given;
  config::take_values(config, checkpoint.config, [&given](std::string_view key) {
    const bool of_tokenizer = key.starts_with("tokenizer.") && !key.ends_with("model");
    return (key.starts_with("model.") || of_tokenizer) && !given.contains(key);
  });
  if (checkpoint.tokenizer) {
    config.tokenizer.kind = checkpoint.tokenizer->kind();
    config.tokenizer.vocabulary_size = checkpoint.tokenizer->vocabulary_size();
  }
  return config;
}

}  // namespace

std::optional<Start> open_start(const config::Config& config) {
  if (config.train.start_from.empty()) {
    return std::nullopt;
  }
  Start start;
  start.file = store::find_checkpoint(config.train.start_from);
  start.checkpoint = store::read_checkpoint(start.file);
  start.parameters_sha256 = parameters_sha256(store::build_model(start.checkpoint)->parameters());
  return start;
}

config::Config begin_with(config::Config config, const Start& start) {
  const std::string& expected = config.train.start_sha256;
  if (!expected.empty() && expected != start.parameters_sha256) {
    user_error("{} is {}, but the parameters in {} ({}) have the hash {}: they are no longer those that were meant",
               place_of(config, "train.start_sha256"), expected, start.file.string(), kKey, start.parameters_sha256);
  }
  require_same_model(config, start.checkpoint.config, start.file);
  if (start.checkpoint.tokenizer) {
    require_same_tokenizer(config, start.checkpoint, start.file);
  }
  config = filled(std::move(config), start.checkpoint);
  config::check(config, kKey);
  require_same_shapes(config, start.checkpoint, start.file);
  config.train.start_sha256 = start.parameters_sha256;
  return config;
}

config::Config with_start(config::Config config) {
  const std::optional<Start> start = open_start(config);
  return start ? begin_with(std::move(config), *start) : config;
}

config::Config go_on_with(config::Config config, const Past& past) {
  if (config.train.start_sha256.empty()) {
    config.train.start_sha256 = past.checkpoint.config.train.start_sha256;
  }
  return filled(std::move(config), past.checkpoint);
}

tasks::TaskData open_data(const tasks::Task& task, config::Config config, const fs::path& file, const fs::path& cache) {
  constexpr std::string_view kHere = "tokenizer.model";  // nobody gave it
  if (!config.model.has_classes()) {                     // those read no text
    config.tokenizer.model = file.string();
    config.tokenizer.source_model.clear();
  }
  try {
    return task.open(config, cache);
  } catch (const UserError& error) {
    std::string text = error.what();
    if (const std::size_t at = text.find(kHere); at != std::string::npos) {
      text.replace(at, kHere.size(), kKey);
    }
    throw UserError(text);
  }
}

std::unique_ptr<models::Model> first_model(const Start& start, const config::ModelOptions& options, at::Device device) {
  store::Checkpoint checkpoint{
      .config = {}, .step = 0, .tokenizer = {}, .tensors = start.checkpoint.tensors, .metadata = {}};
  checkpoint.config.model = options;
  return store::build_trainable(checkpoint, device);
}

}  // namespace headroom::train
