// Where the files of a byte-level BPE tokenizer are looked for.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {

// Whether a file's name ends in .json or .json.gz.
bool names_bpe(const std::filesystem::path& path);

// Of a folder: its tokenizer.json, else vocab.json and merges.txt, else encoder.json and vocab.bpe. Of a file: a
// tokenizer.json, or the first of such a pair with the second one in its folder. Any of them may be gzip (name +
// ".gz"). With ids to spare up to `min_size`. Throws UserError.
std::unique_ptr<Tokenizer> load_bpe(const std::filesystem::path& path, std::int64_t min_size);

}  // namespace headroom::tokenizers
