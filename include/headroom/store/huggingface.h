// Models of Hugging Face's folders (config.json, safetensors, tokenizer files) as checkpoints, and back.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/store/checkpoint.h"
#include "headroom/store/special_tokens.h"

namespace headroom::store {

struct Imported {
  Checkpoint checkpoint;  // language_model, step 0, parameters in float32
  std::string kind;       // model_type of its config.json: gpt2, gpt_neox, llama, mistral, qwen2
};

// A folder with config.json, model.safetensors (or model.safetensors.index.json and its shards; F64, F32, F16 or BF16)
// and tokenizer.model or tokenizer.json (or vocab.json with merges.txt), or another `tokenizer` file, as
// tokenizers::load_tokenizer() reads it. What its files say of special tokens is kept (special_tokens.h), unless the
// folder was exported from here and its model trained here. Every number of the file becomes one of the checkpoint: its
// logits are those of the same model elsewhere. The model may know more tokens than its tokenizer. Throws UserError
// naming the file and the setting or tensor that has no equivalent here.
Imported import_huggingface(const std::filesystem::path& folder, const std::filesystem::path& tokenizer = {});

// Writes config.json, model.safetensors (F32) and tokenizer files into `folder`, each aside and renamed, and returns
// the model_type: gpt2 for learned positions, gpt_neox for rotary ones with layer norms, llama (mistral with windows)
// for rotary ones with RMS norms and gated MLPs. Throws UserError naming `origin` and the option that none of these
// has.
std::string export_huggingface(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                               const std::string& origin);

// The tokenizer's files alone: tokenizer.json, tokenizer_config.json and, of SentencePiece, tokenizer.model, which is
// the model as it is. A tokenizer of words has no equivalent and is left out with a remark. `tokens`: own ones where
// nothing is said.
void export_tokenizer(const tokenizers::Tokenizer& tokenizer, std::int64_t context_length,
                      const std::filesystem::path& folder, const SpecialTokens& tokens);
void export_tokenizer(const tokenizers::Tokenizer& tokenizer, std::int64_t context_length,
                      const std::filesystem::path& folder);

}  // namespace headroom::store
