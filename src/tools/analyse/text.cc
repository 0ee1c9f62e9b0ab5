#include "text.h"

#include <algorithm>

#include "data/text/documents.h"
#include "data/text/text.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "training/tasks/classes/classification.h"
#include "training/tasks/language/evaluation_text.h"

namespace headroom::inspect {
namespace {

constexpr std::int64_t kSampleTokens = 256;      // of a sample at most: values of every pair grow with its square
constexpr std::int64_t kTokensTogether = 4096;   // of sequences that are read side by side
constexpr std::int64_t kRowsTogether = 16;       // as many as `evaluate` reads
constexpr std::int64_t kOwnTokens = 1 << 16;     // of the run's validation data, where nothing else is named
constexpr std::int64_t kLongestText = 64 << 20;  // bytes of a file whose lines are texts of their own

// Tokens one after the other, cut into chunks of the model's context.
class Stream : public Text {
 public:
  Stream(const Reader& reader, std::vector<std::int32_t> ids) : reader_(reader), ids_(std::move(ids)) { measure(); }
  Stream(const Reader& reader, std::shared_ptr<const data::TokenFile> file, std::int64_t limit)
      : reader_(reader), file_(std::move(file)), limit_(limit) {
    measure();
  }

  std::int64_t samples() const override { return (size_ + chunk_ - 1) / chunk_; }

  std::int64_t tokens() const override { return size_; }

  Reading sample(std::int64_t i, models::Memory& memory) const override {
    if (i > 0 && reader_.options().memory_length > 0) {
      nn::Recorder nothing({});
      reader_.read(rows({{i - 1}}, chunk_), memory, nothing);
    }
    Reading reading = rows({{i}}, std::min({chunk_, kSampleTokens, size_ - i * chunk_}));
    reading.sample = true;
    reading.row = i;
    return reading;
  }

  void read_all(const Read& read) const override {
    const std::int64_t whole = size_ / chunk_;
    const std::int64_t side_by_side =
        std::clamp<std::int64_t>(std::min(whole, kTokensTogether / chunk_), 1, kRowsTogether);
    const std::int64_t each = whole / side_by_side;
    models::Memory memory;
    for (std::int64_t step = 0; step < each; ++step) {
      std::vector<std::int64_t> chunks;
      for (std::int64_t row = 0; row < side_by_side; ++row) {
        chunks.push_back(row * each + step);
      }
      read(rows(chunks, chunk_), memory);
    }
    // What is left behind the last stream.
    memory.forget();
    for (std::int64_t at = side_by_side * each; at * chunk_ < size_; ++at) {
      read(rows({{at}}, std::min(chunk_, size_ - at * chunk_)), memory);
    }
  }

 private:
  void measure() {
    chunk_ = reader_.options().context_length;
    size_ = file_ ? file_->size() : std::ssize(ids_);
    size_ = limit_ > 0 ? std::min(size_, limit_) : size_;
  }

  Reading rows(std::span<const std::int64_t> chunks, std::int64_t length) const {
    std::vector<std::int32_t> ids(chunks.size() * static_cast<std::size_t>(length));
    for (std::size_t row = 0; row < chunks.size(); ++row) {
      std::int32_t* const to = ids.data() + row * static_cast<std::size_t>(length);
      if (file_) {
        file_->copy(chunks[row] * chunk_, length, to);
      } else {
        std::copy_n(ids_.begin() + chunks[row] * chunk_, length, to);
      }
    }
    Reading reading;
    reading.tokens = at::tensor(ids, at::kInt)
                         .to(at::kLong)
                         .view({static_cast<std::int64_t>(chunks.size()), length})
                         .to(reader_.model().device());
    return reading;
  }

  Reader reader_;
  std::vector<std::int32_t> ids_;
  std::shared_ptr<const data::TokenFile> file_;
  std::int64_t limit_ = 0, chunk_ = 0, size_ = 0;
};

// Texts of their own, each a sequence or a pair of them: those of a classifier and of an encoder-decoder.
class Examples : public Text {
 public:
  struct Example {
    std::vector<std::int64_t> tokens, target;
  };
  Examples(const Reader& reader, std::vector<Example> all) : reader_(reader), all_(std::move(all)) {}

  std::int64_t samples() const override { return std::ssize(all_); }
  std::int64_t tokens() const override {
    std::int64_t sum = 0;
    for (const Example& example : all_) {
      sum += std::ssize(example.tokens) + std::ssize(example.target);
    }
    return sum;
  }
  Reading sample(std::int64_t i, models::Memory& /*memory*/) const override {
    Reading reading = example(i);
    reading.tokens = reading.tokens.slice(1, 0, kSampleTokens);
    if (reading.target.defined()) {
      reading.target = reading.target.slice(1, 0, kSampleTokens);
    }
    reading.sample = true;
    reading.row = i;
    return reading;
  }
  void read_all(const Read& read) const override {
    models::Memory none;
    for (std::int64_t i = 0; i < samples(); ++i) {
      read(example(i), none);
    }
  }

 private:
  Reading example(std::int64_t i) const {
    const Example& example = all_[static_cast<std::size_t>(i)];
    Reading reading;
    reading.tokens = row_of(example.tokens);
    if (!example.target.empty()) {
      reading.target = row_of(example.target);
    }
    return reading;
  }
  at::Tensor row_of(const std::vector<std::int64_t>& ids) const {
    return at::tensor(ids, at::kLong).unsqueeze(0).to(reader_.model().device());
  }

  Reader reader_;
  std::vector<Example> all_;
};

std::string what_is_read(const TextChoice& choice) {
  return choice.text.empty() ? printable(choice.data) : std::string("--text");
}

std::vector<std::string> lines_of(const TextChoice& choice) {
  if (choice.text.empty() && choice.data.empty()) {
    user_error("analyse: --text or --data: one of them is needed for a model of translation");
  }
  const std::string text = choice.text.empty() ? read_text_file(choice.data, kLongestText) : choice.text;
  std::vector<std::string> lines;
  data::for_each_line(text, [&](std::string_view line, std::int64_t) {
    if (!line.empty()) {
      lines.emplace_back(line);
    }
  });
  if (lines.empty()) {
    user_error("analyse: {}: has no text", what_is_read(choice));
  }
  return lines;
}

// Tokens within the context; what is longer is cut, which is said once.
std::vector<std::int64_t> encoded(const tokenizers::Tokenizer& tokenizer, std::string_view text, std::int64_t room,
                                  std::string_view where, bool& cut) {
  std::vector<std::int32_t> ids;
  try {
    tokenizer.encode(text, ids);
  } catch (const UserError& error) {
    user_error("{}: {}", where, error.what());
  }
  std::vector<std::int64_t> wide(ids.begin(), ids.end());
  cut |= std::ssize(wide) > room;
  wide.resize(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(wide), room)));
  return wide;
}

std::unique_ptr<Text> open_lines(const store::OpenedModel& opened, const TextChoice& choice) {
  const config::ModelOptions& o = opened.config().model;
  const bool pairs = o.kind == config::ModelKind::encoder_decoder;
  const Reader reader(opened);
  const std::int64_t begin = pairs ? opened.checkpoint.tokenizer->begin_id() : -1;
  std::vector<Examples::Example> all;
  bool cut = false;
  std::int64_t number = 0;
  for (const std::string& line : lines_of(choice)) {
    ++number;
    const std::string where = fmt::format("analyse: {}: line {}", what_is_read(choice), number);
    const std::size_t tab = line.find('\t');
    const bool two = pairs || o.paired;
    if (two && tab == std::string::npos) {
      user_error("{}: must be {} with a tab between them", where, pairs ? "a source and its translation" : "two texts");
    }
    Examples::Example example;
    example.tokens = encoded(reader.tokenizer(Side::source), std::string_view(line).substr(0, two ? tab : line.size()),
                             o.context_length, where, cut);
    if (two) {
      example.target = encoded(reader.tokenizer(Side::target), std::string_view(line).substr(tab + 1),
                               o.context_length - (pairs ? 1 : 0), where, cut);
      if (begin >= 0) {
        example.target.insert(example.target.begin(), begin);
      }
    }
    if (example.tokens.empty() || (two && example.target.empty())) {
      user_error("{}: has no text", where);
    }
    all.push_back(std::move(example));
  }
  if (cut) {
    log_info("analyse: {}: texts longer than the model's context are read up to their token {}", what_is_read(choice),
             o.context_length);
  }
  return std::make_unique<Examples>(reader, std::move(all));
}

// What a classifier is evaluated on: of the file all, of the run's validation data the beginning.
std::unique_ptr<Text> open_labelled(const store::OpenedModel& opened, const std::string& file) {
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
  std::vector<Examples::Example> all;
  std::int64_t read = 0;
  for (std::int64_t i = 0; i < set.size() && (!file.empty() || read < kOwnTokens); ++i) {
    Examples::Example& example = all.emplace_back();
    example.tokens = tokens(set.first, i);
    if (set.second.size() > 0) {
      example.target = tokens(set.second, i);
    }
    read += std::ssize(example.tokens) + std::ssize(example.target);
  }
  return std::make_unique<Examples>(Reader(opened), std::move(all));
}

}  // namespace

std::unique_ptr<Text> open_text(const store::OpenedModel& opened, const TextChoice& choice) {
  const config::ModelOptions& o = opened.config().model;
  if (!o.reads_tokens()) {
    user_error("{}: is a model of kind {}, which reads no text", opened.name, config::name_of(o.kind));
  }
  if (o.kind == config::ModelKind::classifier && choice.text.empty()) {
    return open_labelled(opened, choice.data);
  }
  if (o.kind == config::ModelKind::encoder_decoder || o.kind == config::ModelKind::classifier) {
    return open_lines(opened, choice);
  }
  const Reader reader(opened);
  if (!choice.text.empty()) {
    std::vector<std::int32_t> ids = opened.checkpoint.tokenizer->encode(choice.text);
    if (ids.empty()) {
      user_error("analyse: --text: has no text");
    }
    return std::make_unique<Stream>(reader, std::move(ids));
  }
  std::vector<std::string> files;
  if (!choice.data.empty()) {
    files.push_back(choice.data);
  }
  const auto tokens = tasks::open_evaluation_text(
      {.config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = files});
  return std::make_unique<Stream>(reader, tokens, files.empty() ? kOwnTokens : 0);
}

}  // namespace headroom::inspect
