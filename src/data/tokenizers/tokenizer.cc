#include "headroom/tokenizers/tokenizer.h"

#include <cstring>

#include "data/tokenizers/sentencepiece/sentencepiece_model.h"
#include "foundation/core/files/folders.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "kinds.h"

namespace headroom::tokenizers {
namespace {

constexpr const char* kFormat = "headroom.tokenizer.1";
constexpr std::size_t kLargestModel = std::size_t{256} << 20;
constexpr std::size_t kLengthBytes = 8;  // size of a safetensors header's length field

// A safetensors file starts with the length of its header, followed by a brace. The first 8 bytes of a SentencePiece
// model, read as a length, exceed any file size.
bool is_safetensors(const MappedFile& file) {
  const auto bytes = file.bytes();
  std::uint64_t length = 0;
  if (bytes.size() <= kLengthBytes) {
    return false;
  }
  std::memcpy(&length, bytes.data(), kLengthBytes);
  return bytes[kLengthBytes] == std::byte{'{'} && length < bytes.size();
}

// Returns whether a file named tokenizer.model is a SentencePiece model. Other programs use the name for other formats.
bool is_sentencepiece_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || std::filesystem::file_size(path, ignored) > kLargestModel) {
    return false;
  }
  const std::string model = read_text_file(path, kLargestModel);
  return is_safe_model(model) && count_pieces(model) > 0;
}

}  // namespace

config::TokenizerKind kind_named(std::string_view name, std::string_view origin) {
  for (const auto& [kind, known] : config::values_of<config::TokenizerKind>()) {
    if (name == known) {
      return kind;
    }
  }
  user_error("{}: unknown tokenizer_kind \"{}\"", origin, printable(name));
}

std::string Tokenizer::name() const {
  constexpr std::size_t kDigits = 8;
  return fmt::format("{}-{}-{}", config::name_of(kind()), vocabulary_size(),
                     sha256_of(serialised()).substr(0, kDigits));
}

std::int32_t Tokenizer::line_end_id() const {
  const std::vector<std::int32_t> ids = encode("\n");
  return ids.size() == 1 ? ids.front() : -1;
}

std::vector<std::int32_t> beginning_of_text(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids = tokenizer.encode("\n");
  return ids.empty() ? std::vector<std::int32_t>{0} : ids;
}

std::string text_after(const Tokenizer& tokenizer, std::span<const std::int32_t> before, std::int32_t id) {
  std::vector<std::int32_t> both(before.begin(), before.end());
  both.push_back(id);
  const std::string begins = tokenizer.decode(before), all = tokenizer.decode(both);
  return all.starts_with(begins) ? all.substr(begins.size()) : tokenizer.decode(std::span(&id, 1));
}

std::unique_ptr<Tokenizer> train_tokenizer(const config::TokenizerOptions& options, TextSource& text) {
  switch (options.kind) {
    case config::TokenizerKind::bytes:
      return train_bytes(options, text);
    case config::TokenizerKind::words:
      return train_words(options, text);
    case config::TokenizerKind::sentencepiece:
      return train_sentencepiece(options, text);
    case config::TokenizerKind::bpe:
      return train_bpe(options, text);
  }
  fail("tokenizer.kind: {} cannot be trained", config::name_of(options.kind));
}

std::unique_ptr<Tokenizer> restore_tokenizer(config::TokenizerKind kind, std::string serialised,
                                             std::string_view origin) {
  if (holds_two(serialised)) {
    return restore_two(kind, serialised, origin);
  }
  switch (kind) {
    case config::TokenizerKind::bytes:
      return restore_bytes(std::move(serialised), origin);
    case config::TokenizerKind::words:
      return restore_words(std::move(serialised), origin);
    case config::TokenizerKind::sentencepiece:
      return restore_sentencepiece(std::move(serialised), origin);
    case config::TokenizerKind::bpe:
      return restore_bpe(serialised, origin);
  }
  fail("{}: tokenizer kind {} cannot be restored", origin, config::name_of(kind));
}

namespace {

// Pads a SentencePiece tokenizer to `min_size` ids.
std::unique_ptr<Tokenizer> padded(std::unique_ptr<Tokenizer> tokenizer, std::int64_t min_size,
                                  const std::filesystem::path& path) {
  const bool enough = tokenizer->vocabulary_size() >= min_size || holds_two(tokenizer->serialised());
  return enough ? std::move(tokenizer)
                : restore_sentencepiece(with_spare_pieces(tokenizer->serialised(), min_size), path.string());
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path, std::int64_t min_size) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    const std::filesystem::path pieces = path / "tokenizer.model", own = path / "tokenizer.headroom";
    if (std::filesystem::exists(own, ignored)) {
      std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(own);
      // Other programs write tokens that were added to the model later to tokenizer.json only.
      if (tokenizer->vocabulary_size() >= min_size || !std::filesystem::exists(path / "tokenizer.json", ignored)) {
        return tokenizer;
      }
    }
    for (const std::filesystem::path& folder : {path / "checkpoints", path}) {
      if (const std::filesystem::path checkpoint = latest_file(folder); !checkpoint.empty()) {
        return load_tokenizer(checkpoint);
      }
    }
    if (!is_sentencepiece_file(pieces)) {
      return load_bpe(path, min_size);
    }
    std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(pieces);
    // Other programs read the tokenizer.json if there are both. Headroom's own is exact only as a model.
    std::unique_ptr<Tokenizer> other =
        lines_of(tokenizer->serialised()) == Lines::separate ? nullptr : load_json_beside(pieces, min_size);
    return other ? std::move(other) : padded(std::move(tokenizer), min_size, pieces);
  }
  const MappedFile file(path);
  if (is_safetensors(file)) {
    return read_tokenizer(SafetensorsFile(path));
  }
  if (names_bpe(path)) {
    return load_bpe(path, min_size);
  }
  if (file.bytes().size() > kLargestModel) {
    user_error("{}: not a tokenizer: {} exceed the limit of {}", path.string(),
               format_bytes(static_cast<double>(file.bytes().size())),
               format_bytes(static_cast<double>(kLargestModel)));
  }
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return padded(restore_sentencepiece(serialised_from_file(std::string(bytes)), path.string()), min_size, path);
}

std::string to_sentencepiece_model(const Tokenizer& tokenizer) {
  return std::string(without_marker(tokenizer.serialised()));
}

void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& path) {
  SafetensorsWriter writer;
  add_tokenizer(writer, tokenizer);
  writer.set_metadata("format", kFormat);
  writer.write(path);
}

void add_tokenizer(SafetensorsWriter& writer, const Tokenizer& tokenizer) {
  const std::string& bytes = tokenizer.serialised();
  writer.add("tokenizer", DType::u8, {std::ssize(bytes)}, std::as_bytes(std::span(bytes)));
  writer.set_metadata("tokenizer_kind", std::string(config::name_of(tokenizer.kind())));
  writer.set_metadata("tokenizer_name", tokenizer.name());
}

std::unique_ptr<Tokenizer> read_tokenizer(const SafetensorsFile& file) {
  const std::string origin = file.path().string();
  if (!file.metadata().contains("tokenizer_kind")) {
    user_error("{}: holds no tokenizer (no metadata tokenizer_kind); models that read no text have none", origin);
  }
  const config::TokenizerKind kind = kind_named(file.metadata_at("tokenizer_kind"), origin);
  const StoredTensor& stored = file.at("tokenizer");
  if (stored.dtype != DType::u8 || stored.shape.size() != 1) {
    user_error("{}: tensor \"tokenizer\" must be U8 with one dimension", origin);
  }
  const auto* begin = reinterpret_cast<const char*>(stored.data.data());
  std::unique_ptr<Tokenizer> tokenizer = restore_tokenizer(kind, std::string(begin, stored.data.size()), origin);
  if (tokenizer->name() != file.metadata_at("tokenizer_name")) {
    user_error("{}: its tokenizer is {}, but the file says {}", origin, tokenizer->name(),
               file.metadata_at("tokenizer_name"));
  }
  return tokenizer;
}

void require_source_vocabulary(const Tokenizer& tokenizer, std::int64_t source_vocabulary_size, std::string_view what) {
  if (tokenizer.source_vocabulary_size() != source_vocabulary_size) {
    user_error("{}: tokenizer {} has {} ids for sources alone, but model.source_vocabulary_size is {}", what,
               tokenizer.name(), tokenizer.source_vocabulary_size(), source_vocabulary_size);
  }
}

void check_id(std::int32_t id, std::int64_t vocabulary_size) {
  if (id < 0 || id >= vocabulary_size) {
    user_error("decode: an id must be 0 to {}, got {}", vocabulary_size - 1, id);
  }
}

bool BlockReader::next(std::string& block) {
  if (interrupted()) {
    throw InterruptedError("data: interrupted");
  }
  progress_.update(text_.bytes_read());
  return text_.next(block);
}

}  // namespace headroom::tokenizers
