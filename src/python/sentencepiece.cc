// Replaces SentencePiece, whose library the package lacks: its models are carried along, and neither trained
// nor run.
#include <algorithm>

#include "headroom/core/error.h"
#include "tokenizers/kinds.h"
#include "tokenizers/sentencepiece_guard.h"
#include "tokenizers/sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

class CarriedSentencePiece : public Tokenizer {
 public:
  explicit CarriedSentencePiece(std::string model) : model_(std::move(model)), size_(count_pieces(model_)) {}

  config::TokenizerKind kind() const override { return config::TokenizerKind::sentencepiece; }
  std::int64_t vocabulary_size() const override { return size_; }
  const std::string& serialised() const override { return model_; }
  void encode(std::string_view /*text*/, std::vector<std::int32_t>& /*ids*/) const override { refuse(); }
  std::string decode(std::span<const std::int32_t> /*ids*/) const override { refuse(); }
  std::int32_t line_end_id() const override { return id_of("<0x0A>"); }
  std::int32_t id_of(std::string_view token) const override {
    const std::vector<Piece> pieces = parse_sentencepiece(model_).pieces;
    const auto found = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.text == token; });
    return found == pieces.end() ? -1 : static_cast<std::int32_t>(found - pieces.begin());
  }

 private:
  [[noreturn]] static void refuse() {
    misuse("tokenizer: a SentencePiece model is only stored here: give its bytes to the package sentencepiece");
  }
  std::string model_;
  std::int64_t size_;
};

}  // namespace

std::unique_ptr<Tokenizer> restore_sentencepiece(std::string serialised, std::string_view origin) {
  if (!is_safe_model(serialised) || count_pieces(serialised) < 1) {
    misuse("{}: is no SentencePiece model", origin);
  }
  return std::make_unique<CarriedSentencePiece>(std::move(serialised));
}

std::unique_ptr<Tokenizer> train_sentencepiece(const config::TokenizerOptions& /*options*/, TextSource& /*text*/) {
  misuse("tokenizer.kind: sentencepiece is trained by the command headroom only");
}

}  // namespace headroom::tokenizers
