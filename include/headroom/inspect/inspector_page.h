// The inspector's page: one file with all that it shows, for any number of models that read the same text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "headroom/inspect/inspector_data.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::inspect {

struct InspectedView {
  std::string run;  // whose checkpoints have a slider of their own
  std::int64_t step = 0;
  InspectedText text;
};

struct InspectedPage {
  std::string title;
  std::vector<std::int32_t> ids;
  const tokenizers::Tokenizer& tokenizer;  // of all views
  std::vector<InspectedView> views;
};

// What a token adds to a text that ends with the token `after`, a blank in front of it for instance; bytes that are no
// character by themselves as <e2>.
std::string token_text(const tokenizers::Tokenizer& tokenizer, std::int32_t after, std::int32_t id);

std::string render_inspector(const InspectedPage& page);

}  // namespace headroom::inspect
