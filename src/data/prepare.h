// What one part of a run is given as, and whose tokenizer it brings along.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "headroom/data/text.h"
#include "headroom/data/tokenizer.h"

namespace headroom::data {

// Either token files or text.
struct PartInput {
  std::vector<std::filesystem::path> token_files;
  std::unique_ptr<TextSource> text;
};
PartInput open_input(const config::DataOptions& data, Part part);

// The tokenizer of options.model or of the parts' token files, which must all agree; null when there is neither.
std::shared_ptr<const Tokenizer> find_tokenizer(const config::TokenizerOptions& options,
                                                const std::vector<const PartInput*>& parts);

}  // namespace headroom::data
