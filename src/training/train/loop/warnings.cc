#include "start.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "data/text/text.h"
#include "foundation/core/machine/log.h"
#include "headroom/core/files.h"

namespace headroom::train {
namespace {

// Warns if the user wrote an empty list, which is probably a mistake. (The first log line names the corpus anyway.)
void warn_of_no_data(const config::Config& config) {
  const auto given = config.given.find("data.train");
  if (given != config.given.end() && config.data.train.empty() && config.data.generator == config::Generator::none) {
    log_warning("data.train: names no files ({}), so the run is trained on {}", given->second,
                data::corpus_name(config.data, data::Split::train));
  }
}

// Warns of keys that have no effect because another key is not given, or because all training data is prepared tokens.
void warn_of_unread_keys(const config::Config& config) {
  const auto warn = [&](bool unread, const char* why, std::initializer_list<std::string> keys) {
    for (const std::string& key : keys) {
      if (const auto given = config.given.find(key); unread && given != config.given.end()) {
        log_warning("{}: {} has no effect {}", given->second, key, why);
      }
    }
  };
  warn(!config.given.contains("train.teacher"), "without train.teacher",
       {"train.teacher_sha256", "train.teacher_weight", "train.teacher_temperature"});
  warn(!config.given.contains("train.start_from"), "without train.start_from", {"train.start_sha256"});
  warn(!config.data.train.empty() && std::ranges::all_of(config.data.train, config::is_token_file),
       "on token files; `headroom data prepare` takes --separator", {"data.separator"});
}

// Warns of a tokenizer.kind that a classifier ignores, because it always reads bytes or the symbols of ListOps.
void warn_of_unread_tokenizer(const config::Config& config) {
  using config::TokenizerKind;
  const bool symbols = config.data.generator != config::Generator::none;
  const TokenizerKind read = symbols ? TokenizerKind::words : TokenizerKind::bytes;
  const auto given = config.given.find("tokenizer.kind");
  if (config.model.has_classes() && given != config.given.end() && config.tokenizer.kind != read) {
    log_warning("{}: tokenizer.kind = {} has no effect with model.kind = {}", given->second,
                config::name_of(config.tokenizer.kind), config::name_of(config.model.kind));
  }
}

// Warns of keys that contradict the existing tokenizer. With train.start_from they are errors.
void warn_of_tokenizer(const config::Config& config, const tokenizers::Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !config::has_tokenizer(config) || !config.train.start_from.empty()) {
    return;
  }
  const auto warn = [&](const std::string& key, const auto& value) {
    if (const auto given = config.given.find(key); given != config.given.end()) {
      log_warning("{}: {} = {} has no effect: the run uses the existing tokenizer {}", given->second, key, value,
                  tokenizer->name());
    }
  };
  if (config.tokenizer.kind != tokenizer->kind()) {
    warn("tokenizer.kind", config::name_of(config.tokenizer.kind));
  }
  const bool is_padded = config.tokenizer.kind == config::TokenizerKind::bpe && !config.vocabulary_follows_tokenizer;
  if (config.tokenizer.vocabulary_size != tokenizer->vocabulary_size() && !is_padded) {
    warn("tokenizer.vocabulary_size", config.tokenizer.vocabulary_size);
  }
}

// Returns a file's size, 0 for a folder.
std::uintmax_t size_of(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? std::filesystem::file_size(path) : 0;
}

// Returns the hash of a file; for a folder, its path with links resolved.
std::string identity_of(const std::filesystem::path& path) {
  std::error_code missing;
  return size_of(path) > 0 ? content_sha256(path) : std::filesystem::canonical(path, missing).string();
}

// Warns if a validation file, or a copy of it, is also training data. Only files of equal size are hashed.
void warn_of_seen_data(const config::DataOptions& data) {
  std::set<std::uintmax_t> sizes;
  const std::vector<std::filesystem::path> validation = data::expand_patterns(data.validation);
  std::ranges::transform(validation, std::inserter(sizes, sizes.end()), size_of);
  std::set<std::string> trained;
  for (const std::filesystem::path& file : data::expand_patterns(data.train)) {
    if (sizes.contains(size_of(file))) {
      trained.insert(identity_of(file));
    }
  }
  for (const std::filesystem::path& file : validation) {
    if (!trained.empty() && trained.contains(identity_of(file))) {
      log_warning("data.validation: {} is also training data, so validation does not measure generalisation",
                  file.string());
      return;
    }
  }
}

}  // namespace

void require_data_files(const config::DataOptions& data) {
  for (const std::vector<std::string>* patterns : {&data.train, &data.validation}) {
    for (const std::filesystem::path& path : data::expand_patterns(*patterns)) {
      if (std::error_code unknown; !std::filesystem::exists(path, unknown)) {
        data::open_text({path.string()}, data);  // throws, with the download command if there is one
      }
    }
  }
}

void log_warnings(const config::Config& config, const tokenizers::Tokenizer* tokenizer) {
  for (const std::string& sentence : config::unused_keys(config)) {
    log_warning("{}", sentence);
  }
  warn_of_unread_keys(config);
  warn_of_no_data(config);
  warn_of_unread_tokenizer(config);
  warn_of_tokenizer(config, tokenizer);
  warn_of_seen_data(config.data);
}

}  // namespace headroom::train
