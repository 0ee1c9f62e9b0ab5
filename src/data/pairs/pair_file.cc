// Encodes the training pairs of a run to a file of tokens, and reads such files.
#include <algorithm>
#include <cstring>
#include <span>

#include "data/text/token_cache.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "pairs.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPairFormat = "headroom.pairs.1";
constexpr std::int64_t kShortIds = 65536;
constexpr std::int64_t kBetweenUpdates = 256;  // pairs between progress updates

// The sides of the pairs that a tokenizer is trained on.
struct Sides {
  const char* name;
  bool source = true, target = true;
};
constexpr Sides kBothSides{""}, kSourceSide{" sources", true, false}, kTargetSide{" targets", false, true};

// The sentences of the training pairs as a text, one sentence per line.
class SidesText : public tokenizers::TextSource {
 public:
  SidesText(TrainingPairs& pairs, const Sides& sides) : pairs_(pairs), sides_(sides) {}
  bool next(std::string& block) override {
    constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
    block.clear();
    for (TextPair pair; block.size() < kBlockBytes && pairs_.next(pair);) {
      block += sides_.source ? pair.source + '\n' : "";
      block += sides_.target ? pair.target + '\n' : "";
    }
    return !block.empty();
  }
  void rewind() override { pairs_.rewind(); }
  std::int64_t bytes_read() const override { return pairs_.reader().bytes_read(); }
  std::int64_t bytes_total() const override { return pairs_.reader().bytes_total(); }
  std::string fingerprint() const override { return pairs_.fingerprint() + sides_.name; }

 private:
  TrainingPairs& pairs_;
  Sides sides_;
};

template <class Stored>
class PairTokens {
 public:
  void add(const std::vector<std::int32_t>& ids) {
    for (const std::int32_t id : ids) {
      tokens_.push_back(static_cast<Stored>(id));
    }
    ends_.push_back(std::ssize(tokens_));
  }
  std::size_t sides() const { return ends_.size(); }
  void write(const tokenizers::Tokenizer& tokenizer, const std::string& remarks, const fs::path& path) const {
    const auto bytes = std::as_bytes(std::span(tokens_)), ends = std::as_bytes(std::span(ends_));
    Sha256 hash;
    hash.update(bytes);
    hash.update(ends);
    SafetensorsWriter writer;
    writer.add("tokens", sizeof(Stored) == 2 ? DType::u16 : DType::i32, {std::ssize(tokens_)}, bytes);
    writer.add("ends", DType::i64, {std::ssize(ends_)}, ends);
    tokenizers::add_tokenizer(writer, tokenizer);
    writer.set_metadata("format", kPairFormat);
    writer.set_metadata("vocabulary_size", std::to_string(tokenizer.for_targets().vocabulary_size()));
    writer.set_metadata("source_vocabulary_size", std::to_string(tokenizer.for_sources().vocabulary_size()));
    writer.set_metadata("hash", dataset_id(hash));
    writer.set_metadata("remarks", remarks);
    writer.write(path);
  }

 private:
  std::vector<Stored> tokens_;
  std::vector<std::int64_t> ends_;
};

template <class Stored>
void write_pairs(TrainingPairs& pairs, const tokenizers::Tokenizer& tokenizer, const fs::path& path) {
  Progress progress("encode", pairs.reader().bytes_total(), "B");
  PairTokens<Stored> tokens;
  pairs.rewind();
  std::vector<std::int32_t> ids;
  for (TextPair pair; pairs.next(pair);) {
    for (const auto& [side, text] :
         {std::pair(&tokenizer.for_sources(), &pair.source), std::pair(&tokenizer.for_targets(), &pair.target)}) {
      ids.clear();
      side->encode(*text, ids);
      tokens.add(ids);
    }
    if (tokens.sides() % (2 * kBetweenUpdates) == 0) {
      progress.update(pairs.reader().bytes_read());
      if (interrupted()) {
        throw InterruptedError("data: interrupted");
      }
    }
  }
  if (tokens.sides() == 0) {
    user_error("data.train: holds no training pairs: {}", pairs.remarks());
  }
  tokens.write(tokenizer, pairs.remarks(), path);
}

template <class Number>
Number number_in(const std::byte* bytes, std::int64_t index) {
  Number number;  // copied with memcpy: the bytes may be unaligned
  std::memcpy(&number, bytes + static_cast<std::size_t>(index) * sizeof number, sizeof number);
  return number;
}

std::shared_ptr<const tokenizers::Tokenizer> train_side(TrainingPairs& pairs, const Sides& sides,
                                                        const config::TokenizerOptions& options,
                                                        const fs::path& cache_folder) {
  pairs.rewind();
  SidesText text(pairs, sides);
  return trained_tokenizer(options, text, cache_folder);
}

std::shared_ptr<const tokenizers::Tokenizer> source_tokenizer(TrainingPairs& pairs, config::TokenizerOptions options,
                                                              std::int64_t vocabulary_size,
                                                              const fs::path& cache_folder) {
  if (!options.source_model.empty()) {
    return tokenizers::load_tokenizer(options.source_model);
  }
  options.vocabulary_size = vocabulary_size;
  try {
    return train_side(pairs, kSourceSide, options, cache_folder);
  } catch (const UserError& error) {
    constexpr std::string_view kSize = "tokenizer.vocabulary_size";
    std::string text = error.what();
    if (const std::size_t at = text.find(kSize); at != std::string::npos) {
      text.replace(at, kSize.size(), "model.source_vocabulary_size");
    }
    throw UserError(text);
  }
}

std::shared_ptr<const tokenizers::Tokenizer> pair_tokenizer(TrainingPairs& pairs,
                                                            const config::TokenizerOptions& options,
                                                            std::int64_t source_vocabulary_size,
                                                            const fs::path& cache_folder) {
  const bool two = source_vocabulary_size > 0;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer =
      options.model.empty() ? train_side(pairs, two ? kTargetSide : kBothSides, options, cache_folder)
                            : tokenizers::load_tokenizer(options.model);
  if (!two || (tokenizer->source_vocabulary_size() > 0 && options.source_model.empty())) {
    return tokenizer;
  }
  return tokenizers::two_tokenizers(source_tokenizer(pairs, options, source_vocabulary_size, cache_folder),
                                    std::move(tokenizer));
}

}  // namespace

PairFile::PairFile(const fs::path& path) : file_(path) {
  const std::string name = path.string();
  const auto format = file_.metadata().find("format");
  if (format == file_.metadata().end() || format->second != kPairFormat) {
    user_error("{}: not a file of sentence pairs (format \"{}\")", name, kPairFormat);
  }
  tokenizer_name_ = file_.metadata_at("tokenizer_name");
  hash_ = file_.metadata_at("hash");
  remarks_ = file_.metadata_at("remarks");
  vocabulary_size_ = whole_number(file_.metadata_at("vocabulary_size")).value_or(0);
  source_vocabulary_size_ = whole_number(file_.metadata_at("source_vocabulary_size")).value_or(0);
  tokens_ = &file_.at("tokens");
  ends_ = &file_.at("ends");
  if ((tokens_->dtype != DType::u16 && tokens_->dtype != DType::i32) || ends_->dtype != DType::i64 ||
      ends_->numel() % 2 != 0 || ends_->numel() == 0 || std::min(vocabulary_size_, source_vocabulary_size_) < 1) {
    user_error("{}: must hold U16 or I32 tokens and the I64 ends of at least one pair", name);
  }
  size_ = ends_->numel() / 2;
  std::int64_t before = 0;
  for (std::int64_t side = 0; side < ends_->numel(); ++side) {
    if (end(side) < before || end(side) > tokens_->numel()) {
      user_error("{}: end {} must be from {} to {}, got {}", name, side, before, tokens_->numel(), end(side));
    }
    before = end(side);
  }
}

std::int64_t PairFile::end(std::int64_t side) const {
  return number_in<std::int64_t>(ends_->data.data(), side);
}

void PairFile::copy(std::int64_t side, std::vector<std::int32_t>& ids) const {
  const std::int64_t last = end(side), first = last - length(side);
  const std::int64_t vocabulary = side % 2 == 0 ? source_vocabulary_size_ : vocabulary_size_;
  ids.clear();
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t id = tokens_->dtype == DType::u16 ? number_in<std::uint16_t>(tokens_->data.data(), i)
                                                         : number_in<std::int32_t>(tokens_->data.data(), i);
    if (id < 0 || id >= vocabulary) {
      user_error("{}: token {} must be from 0 to {}, got {}", file_.path().string(), i, vocabulary - 1, id);
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
}

void PairFile::verify() const {
  Sha256 hash;
  hash.update(tokens_->data);
  hash.update(ends_->data);
  if (dataset_id(hash) != hash_) {
    user_error("{}: is damaged: hash mismatch of its tokens", file_.path().string());
  }
}

std::string PairFile::identity() const {
  return fmt::format("{}, {} pairs, {}", tokenizer_name_, size_, hash_);
}

PreparedPairs prepare_pairs(const config::DataOptions& data, const config::TokenizerOptions& options,
                            const fs::path& cache_folder, std::int64_t source_vocabulary_size) {
  TrainingPairs pairs(data);
  make_folder(cache_folder);
  remove_leftovers(cache_folder);
  PreparedPairs prepared;
  prepared.tokenizer = pair_tokenizer(pairs, options, source_vocabulary_size, cache_folder);
  const tokenizers::Tokenizer& tokenizer = *prepared.tokenizer;
  prepared.train = cache_folder / (cache_name(pairs.fingerprint() + "\n" + tokenizer.name()) + ".pairs");
  const auto has_tokenizer = [&](const fs::path& path) {
    const PairFile file(path);
    file.verify();
    return file.tokenizer_name() == tokenizer.name();
  };
  if (!open_cached(prepared.train, has_tokenizer).value_or(false)) {
    std::max(tokenizer.for_sources().vocabulary_size(), tokenizer.vocabulary_size()) <= kShortIds
        ? write_pairs<std::uint16_t>(pairs, tokenizer, prepared.train)
        : write_pairs<std::int32_t>(pairs, tokenizer, prepared.train);
    log_info("data: {} sentence pairs, cached in {}", PairFile(prepared.train).size(), prepared.train.string());
  }
  return prepared;
}

}  // namespace headroom::data
