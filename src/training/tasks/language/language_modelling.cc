#include "language_modelling.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "data/synthetic/run_text.h"
#include "data/text/text.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/model_options.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::tasks {
namespace {

using TokenFiles = std::vector<std::shared_ptr<const data::TokenFile>>;

// Returns the identity of the corpus, or the identities and weights of all corpora in a mixture.
std::string identity_of(const TokenFiles& files, const std::vector<double>& weights) {
  std::string all = weights.empty() ? data_identity(*files.front()) : "";
  for (std::size_t i = 0; i < weights.size(); ++i) {
    all += fmt::format("{}{} of {}", all.empty() ? "" : "; ", weights[i], data_identity(*files[i]));
  }
  return all;
}

std::unique_ptr<data::TokenBatches> batches_of(TokenFiles files, const config::Config& config) {
  const data::BatchShape shape = {.batch = config.train.batch_size, .length = config.model.context_length};
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  if (config.data.order == config::Order::shuffled && config.data.batching == config::Batching::streams) {
    for (std::shared_ptr<const data::TokenFile>& file : files) {
      file = std::make_shared<const data::TokenFile>(file->shuffled(seed));
    }
  }
  const std::vector<double>& weights = config.data.mixture;
  if (weights.empty()) {
    return data::make_batches(files.front(), shape, config.data.batching, seed);
  }
  auto batches = data::mix_batches({.files = files, .weights = weights}, shape, config.data.batching, seed);
  if (config.data.batching == config::Batching::streams) {
    log_info("data.mixture: rows of each corpus in a batch of {}: {}", shape.batch,
             fmt::join(data::shares_of(weights, shape.batch), ", "));
  }
  return batches;
}

class TextTraining : public TrainingData {
 public:
  TextTraining(const TokenFiles& files, const config::Config& config) : batches_(batches_of(files, config)) {
    set(identity_of(files, config.data.mixture), batches_.get());
  }

  models::Batch next() override { return to_batch(batches_->next()); }

 private:
  std::unique_ptr<data::TokenBatches> batches_;
};

class TextEvaluation : public EvaluationData {
 public:
  TextEvaluation(std::shared_ptr<const data::TokenFile> tokens, std::shared_ptr<const tokenizers::Tokenizer> tokenizer)
      : tokens_(std::move(tokens)), tokenizer_(std::move(tokenizer)) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    return evaluate_text(model, tokens_, options);
  }
  double rows(const config::Config& config, std::int64_t most_tokens) const override {
    return evaluation_rows(tokens_, config.model, most_tokens);
  }
  std::string identity() const override { return content_identity(*tokens_); }
  std::string sample_prompt() const override {
    constexpr std::int64_t kTokens = 32;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kTokens, tokens_->size())));
    tokens_->copy(0, std::ssize(ids), ids.data());
    const std::string text = tokenizer_->decode(ids);
    return repair_utf8(std::string_view(text).substr(0, text.size() - unfinished_bytes(text)));
  }

 private:
  std::shared_ptr<const data::TokenFile> tokens_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
};

}  // namespace

const Task& language_modelling() {
  static const Task kTask(
      {.name = "language modelling",
       .protocol =
           "perplexity is exp(cross-entropy per token) over the whole validation data, read as contiguous text; "
           "bits per byte are over the bytes to which the tokens decode, and bytes of unknown words cost 8 bits "
           "each",
       .figures = {loss_kind("token"),
                   loss_error_kind(),
                   perplexity_kind(Shown::headline),
                   {.name = "bits_per_byte",
                    .metric = "bits_per_byte",
                    .words = "bits per byte",
                    .unit = "bits",
                    .shown = Shown::table,
                    .decimals = 4},
                   // Present only if the tokenizer could not represent all of the text.
                   {.name = "unknown_share",
                    .metric = "unknown_share",
                    .words = "share of unknown tokens",
                    .unit = "",
                    .better = Better::neither,
                    .decimals = 4,
                    .always = false}},
       .figures_of = text_figures,
       .open = [](const config::Config& config, const std::filesystem::path& cache) -> TaskData {
         TextData text = open_text_data(config, cache);
         return {.tokenizer = text.tokenizer,
                 .training = std::make_unique<TextTraining>(text.train, config),
                 .validation = std::make_unique<TextEvaluation>(text.validation, text.tokenizer)};
       },
       .open_evaluation = [](const EvaluationRequest& request) -> std::unique_ptr<EvaluationData> {
         return std::make_unique<TextEvaluation>(open_evaluation_text(request), request.tokenizer);
       }});
  return kTask;
}

namespace {

namespace fs = std::filesystem;

void check_tokenizer(const data::TokenFile& file, const tokenizers::Tokenizer& tokenizer, std::string_view whose) {
  if (file.tokenizer_name() != tokenizer.name()) {
    user_error("{}: was made with tokenizer {}, but {} is {}", file.name(), file.tokenizer_name(), whose,
               tokenizer.name());
  }
}

// True for the first call with this name.
bool is_new(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> known;
  const std::lock_guard lock(mutex);
  return known.insert(name).second;
}

// Logs a remark if bits per byte are unavailable, or, for a run's data (`trains`), refer to normalised text. Logs it
// once per text and tokenizer.
void remark_on_bits_per_byte(const data::TokenFile& file, bool trains) {
  if (!is_new(file.name() + "\n" + file.tokenizer_name())) {
    return;
  }
  if (!file.unknown()) {
    log_warning(
        "{}: bits per byte are unavailable, because the file does not record unknown text; prepare it again (headroom "
        "data prepare, with --validation-share for a part of a text)",
        file.name());
  } else if (trains && file.decoded_bytes() != file.text_bytes()) {
    log_info(
        "{}: bits per byte are over the {} bytes to which its tokens decode, not the text's {}, because tokenizer {} "
        "normalises text{}",
        file.name(), file.decoded_bytes(), file.text_bytes(), file.tokenizer_name(),
        file.tokenizer_name().starts_with("sentencepiece") ? " (tokenizer.keep_whitespace = true keeps it)" : "");
  }
}

// Returns a folder for temporary files: `cache` (empty: the user's cache), or the system's temporary folder if that is
// not writable.
fs::path temporary_folder(fs::path cache) {
  try {
    cache = cache.empty() ? fs::path(cache_folder()) : cache;
    make_folder(cache);
    if (access(cache.c_str(), W_OK) == 0) {
      remove_leftovers(cache);
      return cache;
    }
  } catch (const Error&) {
  }
  return fs::temp_directory_path();
}

// Removes the file at the end of its scope. Mappings of the file stay valid.
struct Removal {
  fs::path file;
  ~Removal() {
    std::error_code ignored;
    fs::remove(file, ignored);
  }
};

// Encodes text into a token file that is removed once it is mapped.
std::shared_ptr<const data::TokenFile> encode(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer,
                                              const fs::path& cache, const std::string& name) {
  const Removal removal{temporary_folder(cache) / fmt::format("headroom-evaluate-{}.tokens", getpid())};
  data::write_token_file(text, tokenizer, removal.file);
  return std::make_shared<const data::TokenFile>(removal.file, name);
}

std::shared_ptr<const data::TokenFile> opened(const data::PreparedPart& part) {
  return std::make_shared<const data::TokenFile>(part.file, part.name, part.parts);
}

std::shared_ptr<const data::TokenFile> open_tokens(const EvaluationRequest& request) {
  const config::DataOptions& options = request.config.data;
  const std::vector<std::string>& files = request.files.empty() ? options.validation : request.files;
  const auto has_token_files = [](const std::vector<std::string>& names) {
    return std::ranges::any_of(names, config::is_token_file);
  };
  const bool held_out = files.empty() && (has_token_files(options.train) || !options.mixture.empty());
  if (held_out || (request.files.empty() && has_token_files(options.validation))) {
    return opened(data::prepare_validation(options, request.tokenizer, temporary_folder(request.cache)));
  }
  if (has_token_files(files)) {
    const std::vector<std::filesystem::path> found = data::expand_patterns(files);
    if (found.size() > 1) {
      user_error("evaluate: --data: a prepared token file must be the only file, got {} files", found.size());
    }
    auto tokens = std::make_shared<const data::TokenFile>(found.front());
    tokens->verify();
    return tokens;
  }
  const data::Content content = data::content_for(request.tokenizer->kind());
  const std::unique_ptr<tokenizers::TextSource> text =
      !request.files.empty()                         ? data::open_text(request.files, options, content)
      : options.synthetic != config::Synthetic::none ? synthetic_validation(request.config)
                                                     : data::open_split(options, data::Split::validation, content);
  const std::string name =
      request.files.empty() ? data::corpus_name(options, data::Split::validation) : data::named_together(request.files);
  return encode(*text, *request.tokenizer, request.cache, name);
}

}  // namespace

TextData open_text_data(const config::Config& config, const fs::path& cache) {
  const std::int64_t special = config::n_special_tokens(config.model.kind);
  config::TokenizerOptions options = config.tokenizer;
  options.min_size = config.vocabulary_follows_tokenizer ? 0 : config.model.vocabulary_size - special;
  const data::PreparedData prepared = data::prepare_data(config.data, options, cache);
  TextData text{.tokenizer = prepared.tokenizer, .train = {}, .validation = opened(prepared.validation)};
  const tokenizers::Tokenizer& tokenizer = *text.tokenizer;
  for (const data::PreparedPart& part : prepared.train) {
    text.train.push_back(opened(part));
    check_tokenizer(*text.train.back(), tokenizer, "the run's");
  }
  check_tokenizer(*text.validation, tokenizer, "the run's");
  remark_on_bits_per_byte(*text.validation, true);
  const std::int64_t size = tokenizer.vocabulary_size() + special;
  if (!config.vocabulary_follows_tokenizer && size != config.model.vocabulary_size) {
    user_error("model.vocabulary_size: must be {}, the size of tokenizer {}{}, got {}", size, tokenizer.name(),
               special == 0 ? "" : fmt::format(" and {} special tokens", special), config.model.vocabulary_size);
  }
  return text;
}

std::shared_ptr<const data::TokenFile> open_evaluation_text(const EvaluationRequest& request) {
  std::shared_ptr<const data::TokenFile> tokens = open_tokens(request);
  check_tokenizer(*tokens, *request.tokenizer, "the checkpoint's");
  remark_on_bits_per_byte(*tokens, false);
  return tokens;
}

}  // namespace headroom::tasks
