#include <algorithm>
#include <system_error>

#include "data/texts/kept.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/data/token_file.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

std::string fingerprint(const std::vector<fs::path>& files) {
  std::string all;
  for (const fs::path& file : files) {
    std::error_code ignored;
    all += fmt::format("{}\n{} {}\n", fs::absolute(file).lexically_normal().string(), fs::file_size(file, ignored),
                       fs::last_write_time(file, ignored).time_since_epoch().count());
  }
  return all;
}

// The one tokenizer that every file given agrees on.
class Agreement {
 public:
  void add(const std::string& where, const std::string& name) {
    if (where_.empty()) {
      where_ = where;
      name_ = name;
    } else if (name != name_) {
      misuse("{}: was made with tokenizer {}, but {} with {}", where, name, where_, name_);
    }
  }

 private:
  std::string where_, name_;
};

// One split as it is given: either token files or text.
struct SplitInput {
  std::vector<fs::path> token_files;
  std::unique_ptr<tokenizers::TextSource> text;
};

SplitInput open_input(const config::DataOptions& data, Split split, Content content) {
  const bool shared =
      data.validation.empty() && std::any_of(data.train.begin(), data.train.end(), config::is_token_file);
  if (split == Split::validation && shared) {
    misuse("data.validation: must name a token file, as data.train does: nothing is held out of one");
  }
  const std::vector<std::string>& patterns = split == Split::train ? data.train : data.validation;
  const auto tokens = std::count_if(patterns.begin(), patterns.end(), config::is_token_file);
  if (tokens == 0) {
    return {.token_files = {}, .text = open_split(data, split, content)};
  }
  if (tokens != std::ssize(patterns)) {
    misuse("{}: must name either text or token files, not both",
           split == Split::train ? "data.train" : "data.validation");
  }
  return {.token_files = expand_patterns(patterns), .text = nullptr};
}

// That of options.model, if it names one.
std::shared_ptr<const tokenizers::Tokenizer> given_tokenizer(const config::TokenizerOptions& options) {
  if (options.model.empty()) {
    return nullptr;
  }
  std::shared_ptr<const tokenizers::Tokenizer> given =
      options.by_line ? tokenizers::load_tokenizer_by_line(options.model) : tokenizers::load_tokenizer(options.model);
  if (options.kind == config::TokenizerKind::bpe && given->kind() != options.kind) {
    misuse("tokenizer.model: {} is no byte-level BPE tokenizer, as tokenizer.kind = \"bpe\" asks for, but {}",
           options.model, given->name());
  }
  return given;
}

// The one `given` by options.model or that of the splits' token files, which must all agree; null when there is
// neither.
std::shared_ptr<const tokenizers::Tokenizer> find_tokenizer(const config::TokenizerOptions& options,
                                                            std::shared_ptr<const tokenizers::Tokenizer> found,
                                                            const std::vector<const SplitInput*>& splits) {
  Agreement agreement;
  if (found) {
    agreement.add("tokenizer.model " + options.model, found->name());
  }
  for (const SplitInput* split : splits) {
    for (const fs::path& path : split->token_files) {
      const TokenFile file(path);
      agreement.add(path.string(), file.tokenizer_name());
      if (!found) {
        found = file.tokenizer();
      }
    }
  }
  return found;
}

// The split as one token file, made now if need be.
fs::path token_file_of(SplitInput& split, const tokenizers::Tokenizer& tokenizer, const fs::path& cache_folder) {
  if (split.token_files.size() == 1) {
    TokenFile(split.token_files.front()).verify();
    return split.token_files.front();
  }
  const std::string content = split.text ? split.text->fingerprint() : fingerprint(split.token_files);
  fs::path path = cache_folder / (cache_name(content + "\n" + tokenizer.name()) + ".tokens");
  const auto names_it = [&](const fs::path& path_of_kept) {
    const TokenFile kept(path_of_kept);
    kept.verify();
    return kept.tokenizer_name() == tokenizer.name();
  };
  if (!open_cached(path, names_it).value_or(false)) {
    split.text ? write_token_file(*split.text, tokenizer, path) : join_token_files(split.token_files, path);
    const TokenFile made(path);
    log_info("data: {} tokens from {} of text, kept in {}", format_count(static_cast<double>(made.size())),
             format_bytes(static_cast<double>(made.text_bytes())), path.string());
  }
  return path;
}

}  // namespace

PreparedData prepare_data(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                          const fs::path& cache_folder) {
  const std::shared_ptr<const tokenizers::Tokenizer> given = given_tokenizer(tokenizer);
  const Content content = content_for(given ? given->kind() : tokenizer.kind);
  SplitInput train = open_input(data, Split::train, content), validation = open_input(data, Split::validation, content);
  make_folder(cache_folder);
  remove_leftovers(cache_folder);
  PreparedData prepared;
  prepared.tokenizer = find_tokenizer(tokenizer, given, {&train, &validation});
  if (!prepared.tokenizer) {
    prepared.tokenizer = trained_tokenizer(tokenizer, *train.text, cache_folder);
  }
  prepared.train = token_file_of(train, *prepared.tokenizer, cache_folder);
  prepared.train_name = corpus_name(data, Split::train);
  prepared.validation_name = corpus_name(data, Split::validation);
  prepared.validation = token_file_of(validation, *prepared.tokenizer, cache_folder);
  return prepared;
}

}  // namespace headroom::data
