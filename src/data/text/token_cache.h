// Dataset ids, the names of cached files, and cached tokenizers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

// Returns the short dataset id: the first 16 hex digits of a SHA-256. Finishes the hash.
std::string dataset_id(Sha256& hash);

// Returns the cache file name, without extension, of data derived from the data and options that `text` describes.
std::string cache_name(std::string_view text);

// Opens a cached file. Returns nullopt if it is missing or corrupt, so that the caller recreates it.
template <class Open>
auto open_cached(const std::filesystem::path& path, Open&& open) -> std::optional<decltype(open(path))> {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::nullopt;
  }
  try {
    return open(path);
  } catch (const UserError& error) {
    log_warning("{}; it will be created again", error.what());
    return std::nullopt;
  }
}

// Trains a tokenizer on the text, or loads the one cached in `cache_folder`.
std::shared_ptr<const tokenizers::Tokenizer> trained_tokenizer(const config::TokenizerOptions& options,
                                                               tokenizers::TextSource& text,
                                                               const std::filesystem::path& cache_folder);

}  // namespace headroom::data
