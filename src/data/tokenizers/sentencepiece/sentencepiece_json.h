// A SentencePiece model in the terms of the package `tokenizers`.
#pragma once

#include <string>
#include <string_view>

#include "headroom/core/json.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {

// A tokenizer.json of a serialised tokenizer; empty where its model is not BPE or has what the package cannot do.
std::string sentencepiece_to_json(std::string_view serialised, const SpecialNames& special);

// What puts a token in front of every text, its post_processor.
SortedJson template_for(const std::string& token, std::int32_t id);

}  // namespace headroom::tokenizers
