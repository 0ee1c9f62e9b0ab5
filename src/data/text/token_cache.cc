#include "token_cache.h"

namespace headroom::data {

namespace {

// Part of every cache file name. Increment it when the same text would give a different file.
constexpr int kCacheVersion = 4;

}  // namespace

std::string dataset_id(Sha256& hash) {
  constexpr std::size_t kDigits = 16;
  return hash.hex().substr(0, kDigits);
}

std::string cache_name(std::string_view text) {
  Sha256 hash;
  hash.update(fmt::format("{}\n", kCacheVersion));
  hash.update(text);
  return dataset_id(hash);
}

std::shared_ptr<const tokenizers::Tokenizer> trained_tokenizer(const config::TokenizerOptions& options,
                                                               tokenizers::TextSource& text,
                                                               const std::filesystem::path& cache_folder) {
  const std::string key =
      fmt::format("{}\n{} {} {} {} {}", text.fingerprint(), config::name_of(options.kind), options.vocabulary_size,
                  options.keep_whitespace, options.split_digits, options.character_coverage);
  const std::filesystem::path path = cache_folder / (cache_name(key) + ".tokenizer");
  if (auto cached = open_cached(path, [](const auto& file) { return tokenizers::load_tokenizer(file); })) {
    return std::move(*cached);
  }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = tokenizers::train_tokenizer(options, text);
  tokenizers::save_tokenizer(*tokenizer, path);
  return tokenizer;
}

}  // namespace headroom::data
