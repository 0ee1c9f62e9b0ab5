#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/synthetic/run_text.h"
#include "data/text/token_cache.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "token_file.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

std::string fingerprint(const std::vector<fs::path>& files) {
  std::string all;
  for (const fs::path& file : files) {
    all += content_sha256(file) + "\n";
  }
  return all;
}

// Checks that all files have the same tokenizer.
class Agreement {
 public:
  void add(const std::string& where, const std::string& name) {
    if (where_.empty()) {
      where_ = where;
      name_ = name;
    } else if (name != name_) {
      user_error("{}: was made with tokenizer {}, but {} with {}", where, name, where_, name_);
    }
  }

 private:
  std::string where_, name_;
};

// A corpus or a validation split as the user gave it: either token files or text.
struct PartInput {
  std::vector<fs::path> token_files;
  std::unique_ptr<tokenizers::TextSource> text;
  std::string name;
  Split split = Split::train;
  double held_out = 0.0;  // fraction of the token files held out for validation
  config::Order order = config::Order::shuffled;
};

PartInput open_input(const config::DataOptions& data, Split split, Content content) {
  const bool shared = data.validation.empty();
  const std::vector<std::string>& patterns = split == Split::train || shared ? data.train : data.validation;
  const auto tokens = std::ranges::count_if(patterns, config::is_token_file);
  PartInput input{
      .token_files = {}, .text = nullptr, .name = corpus_name(data, split), .split = split, .order = data.order};
  if (tokens == 0) {
    input.text = open_split(data, split, content);
    return input;
  }
  if (tokens != std::ssize(patterns)) {
    user_error("{}: must name either text or token files, not both",
               split == Split::train ? "data.train" : "data.validation");
  }
  input.token_files = expand_patterns(patterns);
  input.held_out = shared ? data.validation_fraction : 0.0;
  if (shared && !(input.held_out > 0.0)) {
    user_error("data.validation: must name at least one file when data.validation_fraction is 0");
  }
  return input;
}

// Returns the options of each corpus of a mixture; without a mixture, `data` itself.
std::vector<config::DataOptions> corpora_of(const config::DataOptions& data) {
  if (data.mixture.empty()) {
    return {data};
  }
  std::vector<config::DataOptions> corpora(data.train.size(), data);
  for (std::size_t i = 0; i < corpora.size(); ++i) {
    corpora[i].train = {data.train[i]};
    corpora[i].mixture.clear();
  }
  return corpora;
}

std::vector<PartInput> open_training(const config::DataOptions& data, Content content) {
  return transformed(corpora_of(data),
                     [&](const config::DataOptions& corpus) { return open_input(corpus, Split::train, content); });
}

// Opens the validation files as one input; if there are none, the held-out part of each corpus.
std::vector<PartInput> open_validation(const config::DataOptions& data, Content content) {
  std::vector<PartInput> inputs;
  for (const config::DataOptions& corpus : corpora_of(data)) {
    if (inputs.empty() || data.validation.empty()) {
      inputs.push_back(open_input(corpus, Split::validation, content));
    }
  }
  return inputs;
}

// The concatenation of several texts, which it does not own.
class ConcatenatedText : public tokenizers::TextSource {
 public:
  explicit ConcatenatedText(std::vector<tokenizers::TextSource*> texts) : texts_(std::move(texts)) {}

  bool next(std::string& block) override {
    while (at_ < texts_.size() && !texts_[at_]->next(block)) {
      ++at_;
    }
    return at_ < texts_.size();
  }
  void rewind() override {
    at_ = 0;
    for (tokenizers::TextSource* text : texts_) {
      text->rewind();
    }
  }
  std::int64_t bytes_read() const override { return sum(&tokenizers::TextSource::bytes_read); }
  std::int64_t bytes_total() const override { return sum(&tokenizers::TextSource::bytes_total); }
  std::string fingerprint() const override {
    std::string all;
    for (const tokenizers::TextSource* text : texts_) {
      all += (all.empty() ? "" : "\n") + text->fingerprint();
    }
    return all;
  }

 private:
  std::int64_t sum(std::int64_t (tokenizers::TextSource::*part)() const) const {
    return sum_over(texts_, [&](const tokenizers::TextSource* text) { return (text->*part)(); });
  }

  std::vector<tokenizers::TextSource*> texts_;
  std::size_t at_ = 0;
};

// Loads the tokenizer options.model; null if not set.
std::shared_ptr<const tokenizers::Tokenizer> given_tokenizer(const config::TokenizerOptions& options) {
  if (options.model.empty()) {
    return nullptr;
  }
  std::shared_ptr<const tokenizers::Tokenizer> given = tokenizers::load_tokenizer(options.model, options.min_size);
  if (options.kind == config::TokenizerKind::bpe && given->kind() != options.kind) {
    user_error("tokenizer.model: {} must be a byte-level BPE tokenizer (tokenizer.kind = \"bpe\"), got {}",
               options.model, given->name());
  }
  return given;
}

// Returns `found` (the tokenizer options.model) or the tokenizer of the token files, which must all agree; null if
// there is neither.
std::shared_ptr<const tokenizers::Tokenizer> find_tokenizer(const config::TokenizerOptions& options,
                                                            std::shared_ptr<const tokenizers::Tokenizer> found,
                                                            const std::vector<const PartInput*>& inputs) {
  Agreement agreement;
  if (found) {
    agreement.add("tokenizer.model " + options.model, found->name());
  }
  for (const PartInput* input : inputs) {
    for (const fs::path& path : input->token_files) {
      const TokenFile file(path);
      agreement.add(path.string(), file.tokenizer_name());
      if (!found) {
        found = file.tokenizer();
      }
    }
  }
  return found;
}

// Returns the cached token file of this content and tokenizer. Calls `make` to write it if it is missing.
template <class Make>
fs::path cached_tokens(const std::string& content, const tokenizers::Tokenizer& tokenizer, const fs::path& cache_folder,
                       const Make& make) {
  fs::path path = cache_folder / (cache_name(content + "\n" + tokenizer.name()) + ".tokens");
  const auto has_tokenizer = [&](const fs::path& cached) {
    const TokenFile file(cached);
    file.verify();
    return file.tokenizer_name() == tokenizer.name();
  };
  if (!open_cached(path, has_tokenizer).value_or(false)) {
    make(path);
    const TokenFile made(path);
    const std::string bytes = made.unknown() ? format_bytes(static_cast<double>(made.text_bytes())) : "an unknown size";
    log_info("data: {} tokens from {} of text, cached in {}", format_count(static_cast<double>(made.size())), bytes,
             path.string());
  }
  return path;
}

fs::path one_file_of(const std::vector<fs::path>& files, const tokenizers::Tokenizer& tokenizer,
                     const fs::path& cache_folder) {
  if (files.size() == 1) {
    TokenFile(files.front()).verify();
    return files.front();
  }
  return cached_tokens(fingerprint(files), tokenizer, cache_folder,
                       [&](const fs::path& path) { join_token_files(files, path); });
}

// Returns the input as one token file.
PreparedPart prepare(PartInput& input, const tokenizers::Tokenizer& tokenizer, const fs::path& cache_folder) {
  if (input.text) {
    const auto encode = [&](const fs::path& path) { write_token_file(*input.text, tokenizer, path); };
    return {.file = cached_tokens(input.text->fingerprint(), tokenizer, cache_folder, encode), .name = input.name};
  }
  const fs::path whole = one_file_of(input.token_files, tokenizer, cache_folder);
  if (!(input.held_out > 0.0)) {
    return {.file = whole, .name = input.name};
  }
  const TokenFile all(whole, input.name);
  const std::vector<Range> held = held_out_tokens(all, input.held_out, input.order);
  if (input.split == Split::train) {
    return {.file = whole, .name = input.name, .parts = complement(held, all.size())};
  }
  std::string content = fingerprint({whole}) + "held out";
  for (const Range& range : held) {
    content += fmt::format(" {}-{}", range.begin, range.end);
  }
  return {.file = cached_tokens(content, tokenizer, cache_folder,
                                [&](const fs::path& path) { write_held_out(all, held, path); }),
          .name = input.name};
}

// Returns the validation inputs as one token file.
PreparedPart prepare_together(std::vector<PartInput>& inputs, const tokenizers::Tokenizer& tokenizer,
                              const fs::path& cache_folder) {
  PreparedPart all = prepare(inputs.front(), tokenizer, cache_folder);
  if (inputs.size() == 1) {
    return all;
  }
  std::vector<fs::path> files = {all.file};
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    files.push_back(prepare(inputs[i], tokenizer, cache_folder).file);
  }
  return {.file = one_file_of(files, tokenizer, cache_folder),
          .name = fmt::format("{} and of {} more", all.name, inputs.size() - 1)};
}

// Trains a tokenizer on the training texts.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of_texts(const config::TokenizerOptions& options,
                                                                const std::vector<PartInput>& train,
                                                                const fs::path& cache_folder) {
  std::vector<tokenizers::TextSource*> texts =
      transformed(train, [](const PartInput& input) { return input.text.get(); });
  ConcatenatedText all(std::move(texts));
  return trained_tokenizer(options, all, cache_folder);
}

}  // namespace

PreparedData prepare_data(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                          const fs::path& cache_folder) {
  const std::shared_ptr<const tokenizers::Tokenizer> given = given_tokenizer(tokenizer);
  const Content content = content_for(given ? given->kind() : tokenizer.kind);
  std::vector<PartInput> train = open_training(data, content), validation = open_validation(data, content);
  std::vector<const PartInput*> all;
  for (const std::vector<PartInput>* inputs : {&train, &validation}) {
    std::transform(inputs->begin(), inputs->end(), std::back_inserter(all),
                   [](const PartInput& input) { return &input; });
  }
  make_folder(cache_folder);
  remove_leftovers(cache_folder);
  PreparedData prepared;
  prepared.tokenizer = find_tokenizer(tokenizer, given, all);
  if (!prepared.tokenizer) {
    prepared.tokenizer = tokenizer_of_texts(tokenizer, train, cache_folder);
  }
  tokenizers::require_source_vocabulary(*prepared.tokenizer, 0,
                                        given ? "tokenizer.model: " + tokenizer.model : std::string("data.train"));
  for (PartInput& corpus : train) {
    prepared.train.push_back(prepare(corpus, *prepared.tokenizer, cache_folder));
  }
  prepared.validation = prepare_together(validation, *prepared.tokenizer, cache_folder);
  return prepared;
}

PreparedPart prepare_validation(const config::DataOptions& data,
                                const std::shared_ptr<const tokenizers::Tokenizer>& tokenizer,
                                const fs::path& cache_folder) {
  std::vector<PartInput> inputs = open_validation(data, content_for(tokenizer->kind()));
  make_folder(cache_folder);
  remove_leftovers(cache_folder);
  return prepare_together(inputs, *tokenizer, cache_folder);
}

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;  // read at a time

std::vector<std::int32_t> some_tokens(const TokenFile& file, std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kMostTokens, end - begin)));
  file.copy(begin, std::ssize(ids), ids.data());
  return ids;
}

// Returns the first position at or after `wanted` that follows a line end; else the last such position before `wanted`;
// else `wanted`. A line end at the end of the file does not count. `line_end` < 0: the tokenizer has no line-end token.
std::int64_t line_begin_near(const TokenFile& file, std::int64_t wanted, std::int32_t line_end) {
  if (line_end < 0) {
    return wanted;
  }
  const std::int64_t last = file.size() - 1;
  for (std::int64_t at = wanted - 1; at < last; at += kMostTokens) {
    const std::vector<std::int32_t> ids = some_tokens(file, at, last);
    const auto found = std::ranges::find(ids, line_end);
    if (found != ids.end()) {
      return at + (found - ids.begin()) + 1;
    }
  }
  for (std::int64_t end = wanted - 1; end > 0; end -= std::min(end, kMostTokens)) {
    const std::vector<std::int32_t> ids = some_tokens(file, std::max<std::int64_t>(end - kMostTokens, 0), end);
    const auto found = std::find(ids.rbegin(), ids.rend(), line_end);
    if (found != ids.rend()) {
      return end - (found - ids.rbegin());
    }
  }
  return wanted;
}

// Returns the size in bytes of the text that tokens [begin, end) decode to. Decodes line by line where possible,
// because some tokenizers insert a space between tokens or drop the leading space.
std::int64_t decoded_bytes(const TokenFile& file, const tokenizers::Tokenizer& tokenizer, std::int64_t begin,
                           std::int64_t end) {
  const std::int32_t line_end = tokenizer.line_end_id();
  std::int64_t bytes = 0;
  for (std::int64_t at = begin; at < end;) {
    std::vector<std::int32_t> ids = some_tokens(file, at, end);
    if (at + std::ssize(ids) < end && line_end >= 0) {
      const auto last = std::find(ids.rbegin(), ids.rend(), line_end);
      ids.resize(last == ids.rend() ? ids.size() : static_cast<std::size_t>(ids.rend() - last));
    }
    bytes += std::ssize(tokenizer.decode(ids));
    at += std::ssize(ids);
  }
  return bytes;
}

}  // namespace

std::vector<Range> held_out_tokens(const TokenFile& whole, double share, config::Order order) {
  if (whole.size() < 2) {
    user_error("data.validation: must name files: {} has a single token, so none can be held out", whole.name());
  }
  if (order == config::Order::shuffled && !whole.documents().empty()) {
    return drawn_documents(whole.documents(), share);
  }
  const auto count = static_cast<std::int64_t>(share * static_cast<double>(whole.size()));
  const std::int64_t wanted = std::clamp<std::int64_t>(whole.size() - count, 1, whole.size() - 1);
  return {{line_begin_near(whole, wanted, whole.tokenizer()->line_end_id()), whole.size()}};
}

void write_held_out(const TokenFile& whole, const std::vector<Range>& held, const std::filesystem::path& path) {
  const std::unique_ptr<tokenizers::Tokenizer> tokenizer = whole.tokenizer();
  const auto bytes_of = [&](const std::vector<Range>& parts) {
    return sum_over(parts, [&](const Range& part) { return decoded_bytes(whole, *tokenizer, part.begin, part.end); });
  };
  std::optional<std::int64_t> text_bytes;
  if (whole.unknown() && whole.unknown()->tokens == 0) {
    const std::int64_t bytes = bytes_of(held);
    if (bytes > 0 && bytes + bytes_of(complement(held, whole.size())) == whole.decoded_bytes()) {
      text_bytes = bytes;
    }
  }
  write_part_of_token_file(TokenFile(whole.path(), whole.name(), held), text_bytes, path);
}

}  // namespace headroom::data
