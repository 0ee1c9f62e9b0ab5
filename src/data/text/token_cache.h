// What is made from data once and kept: names of cached files, and tokenizers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/tokenizers/tokenizer.h"
#include "text.h"

namespace headroom::data {

// The name of a file made from what `text` describes.
std::string cache_name(std::string_view text);

// A cached file that is there and whole; a damaged one is made again.
template <class Open>
auto open_cached(const std::filesystem::path& path, Open&& open) -> std::optional<decltype(open(path))> {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::nullopt;
  }
  try {
    return open(path);
  } catch (const UserError& error) {
    log_warning("{}; it is made again", error.what());
    return std::nullopt;
  }
}

// A tokenizer trained on the text, or the one that was made from it before.
std::shared_ptr<const tokenizers::Tokenizer> trained_tokenizer(const config::TokenizerOptions& options,
                                                               tokenizers::TextSource& text,
                                                               const std::filesystem::path& cache_folder);

}  // namespace headroom::data
