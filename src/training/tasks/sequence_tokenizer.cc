#include "data/synthetic/listops.h"
#include "headroom/core/error.h"
#include "training/tasks/classes/classification.h"

namespace headroom::tasks {
namespace {

// The symbols of ListOps, a blank in front of each.
class ListOpsSymbols : public tokenizers::Tokenizer {
 public:
  config::TokenizerKind kind() const override { return config::TokenizerKind::words; }
  std::int64_t vocabulary_size() const override { return data::listops::kVocabulary; }
  const std::string& serialised() const override { return name_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    const std::vector<std::uint16_t> symbols = data::listops::parse(text);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= data::listops::kVocabulary) {
        user_error("ListOps: a symbol must be from 0 to {}, got {}", data::listops::kVocabulary - 1, id);
      }
      const auto symbol = static_cast<std::uint16_t>(id);
      text += symbol == data::listops::kPadding ? " <padding>" : " " + data::listops::to_text({&symbol, 1});
    }
    return text;
  }

 private:
  std::string name_ = "ListOps";
};

}  // namespace

std::shared_ptr<const tokenizers::Tokenizer> sequence_tokenizer(const config::Config& config) {
  if (is_listops(config.data)) {
    return std::make_shared<ListOpsSymbols>();
  }
  return tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "bytes");
}

}  // namespace headroom::tasks
