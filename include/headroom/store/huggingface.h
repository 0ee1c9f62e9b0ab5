// Imports and exports Hugging Face folders (config.json, safetensors, tokenizer files), and reads the special tokens of
// imported models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "headroom/store/checkpoint.h"

namespace headroom::store {

struct Imported {
  Checkpoint checkpoint;  // language_model, step 0, parameters in float32
  std::string kind;       // model_type: gpt2, gpt_neox, llama, mistral, qwen2; headroom: HeadroomForCausalLM
};

// Imports a folder with config.json, model.safetensors (or model.safetensors.index.json and its shards; F64, F32, F16
// or BF16) and tokenizer.model or tokenizer.json (or vocab.json with merges.txt), or the given `tokenizer` file. The
// imported model computes the same logits. A key that config.json lacks has the default of its model_type. The special
// tokens are stored in the checkpoint, unless the folder was exported from a model that Headroom trained. The model may
// have more tokens than its tokenizer. Throws UserError naming the file and the setting or tensor that has no
// equivalent.
Imported import_huggingface(const std::filesystem::path& folder, const std::filesystem::path& tokenizer = {});

// Writes config.json, model.safetensors (F32) and tokenizer files into `folder`, each atomically. Returns the
// model_type: gpt2 for learned positions; gpt_neox for rotary ones with layer norms; llama (mistral with windows) for
// rotary ones with RMS norms and gated MLPs. An imported mistral or qwen2 keeps its model_type if that can still
// describe it. Throws UserError naming `origin` and the option that has no equivalent.
std::string export_huggingface(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                               const std::string& origin);

// Data that a checkpoint stores of the Hugging Face model that it was imported from: special tokens that mark the start
// and end of a text, and the model_type. A run that starts from the checkpoint inherits the data.
struct SpecialTokens {
  // Only keys that are present: bos_token_id, eos_token_id, pad_token_id. If config.json lacks bos_token_id or
  // eos_token_id, the default of its model_type is used.
  Json config = Json::object();      // of config.json
  Json generation = Json::object();  // of generation_config.json, which takes precedence when text is generated
  Json tokenizer =
      Json::object();  // keys of tokenizer_config.json: bos_token, ..., add_bos_token, tokenizer_class, ...
  std::vector<std::int32_t> in_front;  // ids that the tokenizer prepends to every text
  std::string model_type;              // empty: not imported

  std::string name(const char* key) const;  // for "bos_token"; empty: none
  // Returns the id of "bos_token" in `tokenizer`, found by its name or, without a name, from config.json. -1 if the
  // tokenizer lacks it.
  std::int32_t id(const char* key, const tokenizers::Tokenizer& tokenizer) const;
  // Returns the tokens that the tokenizer prepends to every text.
  std::vector<std::int32_t> begin(const tokenizers::Tokenizer& tokenizer) const;
  // Returns all tokens that end a text: the ids in the files and the tokenizer's own.
  std::set<std::int32_t> ends(const tokenizers::Tokenizer& tokenizer) const;
};

// Reads the special tokens of a Hugging Face folder, whose config.json is `config`. Throws UserError naming the file
// and a key that has a wrong type.
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const SortedJson& config,
                                  const tokenizers::Tokenizer& tokenizer);

// Metadata key of the special tokens in a checkpoint.
inline constexpr const char* kSpecialTokens = "special_tokens";
void store_special_tokens(const SpecialTokens& tokens, Checkpoint& checkpoint);
// Returns nullopt if the model was trained by Headroom.
std::optional<SpecialTokens> stored_special_tokens(const Checkpoint& checkpoint);

// Returns special tokens for exporting a model that Headroom trained, whose texts start after a line end. No text
// contains them and the model has never read them; they serve programs that require special tokens.
SpecialTokens default_special_tokens(const tokenizers::Tokenizer& tokenizer);
// Returns the stored special tokens, or the defaults for the checkpoint's tokenizer.
SpecialTokens special_tokens_of(const Checkpoint& checkpoint);

// Writes only the tokenizer files: tokenizer.json, tokenizer_config.json and, for SentencePiece, tokenizer.model, with
// `tokens` or the defaults. A word tokenizer has no equivalent: logs a warning and writes nothing.
void export_tokenizer(const tokenizers::Tokenizer& tokenizer, std::int64_t context_length,
                      const std::filesystem::path& folder, const std::optional<SpecialTokens>& tokens = {});

}  // namespace headroom::store
