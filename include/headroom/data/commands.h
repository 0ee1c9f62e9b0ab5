// What the command line's `tokenizer` and `data` commands do: each from an options struct to a summary in JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/core/json.h"

namespace headroom::data {

struct TrainTokenizerRequest {
  config::TokenizerOptions tokenizer;
  config::DataOptions data;   // trained on its training part: files of text, or the built-in corpus
  std::filesystem::path out;  // the tokenizer's file
};
// {"file", "tokenizer", "kind", "vocabulary_size", "seconds"}
Json tokenizer_train(const TrainTokenizerRequest& request);

struct EncodeRequest {
  std::filesystem::path tokenizer;  // a tokenizer's file, a token file or a SentencePiece model
  std::string text;
};
// {"tokenizer", "ids", "pieces": each id's text, "tokens", "bytes"}
Json tokenizer_encode(const EncodeRequest& request);

struct DecodeRequest {
  std::filesystem::path tokenizer;
  std::vector<std::int32_t> ids;
};
// {"tokenizer", "text"}
Json tokenizer_decode(const DecodeRequest& request);

struct PrepareRequest {
  config::DataOptions data;            // no files at all: the built-in corpus
  config::TokenizerOptions tokenizer;  // `model`: one that is there already, else trained on the training part
  std::filesystem::path out;           // folder for train.tokens and, if there is a validation part, validation.tokens
};
// {"tokenizer", "vocabulary_size", "train": {"file", "tokens", "text_bytes"}, "validation": the same or null,
//  "seconds"}. The files serve as data.train and data.validation.
Json data_prepare(const PrepareRequest& request);

}  // namespace headroom::data
