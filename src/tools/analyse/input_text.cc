// The texts that analyses run a model on: a stream of tokens, or separate examples.
#include <algorithm>
#include <numeric>

#include "data/text/documents.h"
#include "data/text/text.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "model_runner.h"
#include "training/tasks/classes/classification.h"
#include "training/tasks/language/language_modelling.h"

namespace headroom::analyse {
namespace {

constexpr std::int64_t kMaxSampleTokens = 256;       // pair values grow with the square of the length
constexpr std::int64_t kBatchTokens = 4096;          // maximum per batch
constexpr std::int64_t kBatchRows = 16;              // maximum per batch
constexpr std::int64_t kValidationTokens = 1 << 16;  // maximum read from the run's validation data
constexpr std::int64_t kMaxFileBytes = 64 << 20;     // for a file with one example per line

// A stream of tokens, cut into chunks of the model's context length.
class TokenStream : public InputText {
 public:
  TokenStream(const ModelRunner& runner, std::vector<std::int32_t> ids)
      : runner_(runner), ids_(std::move(ids)), chunk_(runner.options().context_length), size_(std::ssize(ids_)) {}
  TokenStream(const ModelRunner& runner, std::shared_ptr<const data::TokenFile> file, std::int64_t limit)
      : runner_(runner),
        file_(std::move(file)),
        chunk_(runner.options().context_length),
        size_(limit > 0 ? std::min(file_->size(), limit) : file_->size()) {}

  std::int64_t samples() const override { return ceil_div(size_, chunk_); }

  std::int64_t tokens() const override { return size_; }

  InputBatch sample(std::int64_t i, models::Memory& memory) const override {
    // Through each layer, a token depends on memory_length more tokens before its chunk.
    const std::int64_t reach = runner_.options().n_layers * runner_.options().memory_length;
    nn::Recorder nothing({});
    for (std::int64_t before = std::max<std::int64_t>(0, i - ceil_div(reach, chunk_)); before < i; ++before) {
      runner_.forward(rows({{before}}, chunk_), memory, nothing);
    }
    InputBatch input = rows({{i}}, std::min({chunk_, kMaxSampleTokens, size_ - i * chunk_}));
    input.sample = true;
    input.sample_index = i;
    return input;
  }

  // Models with memory read one chunk at a time, because each chunk needs the memory of the one before.
  void for_each_batch(const UseBatch& use) const override {
    const std::int64_t whole = size_ / chunk_;
    const std::int64_t most =
        runner_.options().memory_length > 0 ? 1 : std::clamp<std::int64_t>(kBatchTokens / chunk_, 1, kBatchRows);
    models::Memory memory;
    for (std::int64_t at = 0; at < whole; at += most) {
      std::vector<std::int64_t> chunks(static_cast<std::size_t>(std::min(most, whole - at)));
      std::iota(chunks.begin(), chunks.end(), at);
      use(rows(chunks, chunk_), memory);
    }
    if (whole * chunk_ < size_) {
      use(rows({{whole}}, size_ - whole * chunk_), memory);
    }
  }

 private:
  InputBatch rows(std::span<const std::int64_t> chunks, std::int64_t length) const {
    std::vector<std::int32_t> ids(chunks.size() * static_cast<std::size_t>(length));
    for (std::size_t row = 0; row < chunks.size(); ++row) {
      std::int32_t* const to = ids.data() + row * static_cast<std::size_t>(length);
      if (file_) {
        file_->copy(chunks[row] * chunk_, length, to);
      } else {
        std::copy_n(ids_.begin() + chunks[row] * chunk_, length, to);
      }
    }
    InputBatch input;
    input.tokens = at::tensor(ids, at::kInt)
                       .to(at::kLong)
                       .view({static_cast<std::int64_t>(chunks.size()), length})
                       .to(runner_.model().device());
    return input;
  }

  ModelRunner runner_;
  std::vector<std::int32_t> ids_;
  std::shared_ptr<const data::TokenFile> file_;  // null: `ids_`
  std::int64_t chunk_, size_;
};

struct TextExample {
  std::vector<std::int64_t> tokens, target;
};

// Separate sequences, or pairs of sequences: the examples of a classifier or an encoder-decoder.
class ExampleList : public InputText {
 public:
  ExampleList(const ModelRunner& runner, std::vector<TextExample> all) : runner_(runner), all_(std::move(all)) {}

  std::int64_t samples() const override { return std::ssize(all_); }
  std::int64_t tokens() const override {
    return sum_over(all_,
                    [](const TextExample& example) { return std::ssize(example.tokens) + std::ssize(example.target); });
  }
  InputBatch sample(std::int64_t i, models::Memory& /*memory*/) const override {
    InputBatch input = example(i);
    input.tokens = input.tokens.slice(1, 0, kMaxSampleTokens);
    if (input.target.defined()) {
      input.target = input.target.slice(1, 0, kMaxSampleTokens);
    }
    input.sample = true;
    input.sample_index = i;
    return input;
  }
  void for_each_batch(const UseBatch& use) const override {
    models::Memory none;
    for (std::int64_t i = 0; i < samples(); ++i) {
      use(example(i), none);
    }
  }

 private:
  InputBatch example(std::int64_t i) const {
    const TextExample& example = all_[static_cast<std::size_t>(i)];
    InputBatch input;
    input.tokens = row_of(example.tokens);
    if (!example.target.empty()) {
      input.target = row_of(example.target);
    }
    return input;
  }
  at::Tensor row_of(const std::vector<std::int64_t>& ids) const {
    return at::tensor(ids, at::kLong).unsqueeze(0).to(runner_.model().device());
  }

  ModelRunner runner_;
  std::vector<TextExample> all_;
};

std::vector<std::string> lines_of(const TextInput& source) {
  if (source.text.empty() && source.data.empty()) {
    user_error("analyse: --text or --file: a translation model needs one of them");
  }
  const std::string text = source.text.empty() ? read_text_file(source.data, kMaxFileBytes) : source.text;
  std::vector<std::string> lines;
  data::for_each_line(without_byte_order_mark(text), [&](std::string_view line, std::int64_t) {
    if (!line.empty()) {
      lines.emplace_back(line);
    }
  });
  if (lines.empty()) {
    user_error("analyse: {}: has no text", printable(source.name()));
  }
  return lines;
}

// Encodes up to `limit` tokens and sets `cut` if the text has more.
std::vector<std::int64_t> encode_up_to(std::int64_t limit, const tokenizers::Tokenizer& tokenizer,
                                       std::string_view text, std::string_view where, bool& cut) {
  std::vector<std::int32_t> ids;
  try {
    tokenizer.encode(text, ids);
  } catch (const UserError& error) {
    user_error("{}: {}", where, error.what());
  }
  std::vector<std::int64_t> wide(ids.begin(), ids.end());
  cut |= std::ssize(wide) > limit;
  wide.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(wide), limit)));
  return wide;
}

// Reads one example per line.
std::unique_ptr<InputText> open_lines(const store::OpenedModel& opened, const TextInput& source) {
  const config::ModelOptions& o = opened.config().model;
  const bool pairs = o.kind == config::ModelKind::encoder_decoder;
  const ModelRunner runner(opened);
  const std::int64_t begin = pairs ? opened.checkpoint.tokenizer->begin_id() : -1;
  std::vector<TextExample> all;
  bool cut = false;
  std::int64_t number = 0;
  for (const std::string& line : lines_of(source)) {
    ++number;
    const std::string where = fmt::format("analyse: {}: line {}", printable(source.name()), number);
    const std::size_t tab = line.find('\t');
    const bool two = pairs || o.paired;
    if (two && tab == std::string::npos) {
      user_error("{}: must be {}, separated by a tab", where, pairs ? "a source and its translation" : "two texts");
    }
    TextExample example;
    example.tokens = encode_up_to(o.context_length - (pairs ? 1 : 0), runner.tokenizer(TextSide::source),
                                  std::string_view(line).substr(0, two ? tab : line.size()), where, cut);
    if (two) {
      example.target = encode_up_to(o.context_length - (pairs ? 1 : 0), runner.tokenizer(TextSide::target),
                                    std::string_view(line).substr(tab + 1), where, cut);
      if (begin >= 0) {
        example.target.insert(example.target.begin(), begin);
      }
    }
    if (example.tokens.empty() || (two && example.target.empty())) {
      user_error("{}: has no text", where);
    }
    if (const std::int32_t end = runner.tokenizer(TextSide::source).end_id(); pairs && end >= 0) {
      example.tokens.push_back(end);  // as in training
    }
    all.push_back(std::move(example));
  }
  if (cut) {
    log_info("analyse: {}: texts are cut after {} tokens, the model's context length", printable(source.name()),
             o.context_length);
  }
  return std::make_unique<ExampleList>(runner, std::move(all));
}

// Opens labelled sequences: all of `file`, or the start of the run's validation data if `file` is empty.
std::unique_ptr<InputText> open_labelled(const store::OpenedModel& opened, const std::string& file) {
  std::vector<std::string> files;
  if (!file.empty()) {
    files.push_back(file);
  }
  const data::LabelledSequences set = tasks::evaluation_sequences(
      {.config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = files});
  const auto tokens = [](const data::Sequences& sequences, std::int64_t i) {
    const auto all = sequences.at(i);
    return std::vector<std::int64_t>(all.begin(), all.end());
  };
  std::vector<TextExample> all;
  std::int64_t read = 0;
  for (std::int64_t i = 0; i < set.size() && (!file.empty() || read < kValidationTokens); ++i) {
    TextExample& example = all.emplace_back();
    example.tokens = tokens(set.first, i);
    if (set.second.size() > 0) {
      example.target = tokens(set.second, i);
    }
    read += std::ssize(example.tokens) + std::ssize(example.target);
  }
  return std::make_unique<ExampleList>(ModelRunner(opened), std::move(all));
}

}  // namespace

std::unique_ptr<InputText> open_text(const store::OpenedModel& opened, const TextInput& source) {
  const config::ModelOptions& o = opened.config().model;
  if (!o.reads_tokens()) {
    user_error("{}: expected a model that reads text, got one of kind {}", opened.name, config::name_of(o.kind));
  }
  if (o.kind == config::ModelKind::classifier && source.text.empty()) {
    return open_labelled(opened, source.data);
  }
  if (o.kind == config::ModelKind::encoder_decoder || o.kind == config::ModelKind::classifier) {
    return open_lines(opened, source);
  }
  const ModelRunner runner(opened);
  if (!source.text.empty()) {
    std::vector<std::int32_t> ids = opened.checkpoint.tokenizer->encode(source.text);
    if (ids.empty()) {
      user_error("analyse: --text: has no text");
    }
    return std::make_unique<TokenStream>(runner, std::move(ids));
  }
  std::vector<std::string> files;
  if (!source.data.empty()) {
    files.push_back(source.data);
  }
  const auto tokens = tasks::open_evaluation_text(
      {.config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = files});
  return std::make_unique<TokenStream>(runner, tokens, files.empty() ? kValidationTokens : 0);
}

}  // namespace headroom::analyse
