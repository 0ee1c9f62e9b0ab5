// The inspector's page: one file with all that it shows, for any number of models that read the same text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/tokenizers/tokenizer.h"
#include "inspector_data.h"

namespace headroom::inspect {

struct InspectedView {
  std::string run;  // whose checkpoints have a slider of their own
  std::int64_t step = 0;
  InspectedText text;
};

// A page whose server reads other texts for it: it posts {"model", "text", "switched_off"} to `path` and shows the page
// that it gets.
struct LivePage {
  std::string path;
  std::vector<std::string> models;  // that there are
  std::string model, text;          // what this page shows
  Json switched_off = Json::array();
};

struct InspectedPage {
  std::string title;
  std::vector<std::int32_t> ids;           // none: a live page that shows nothing yet
  const tokenizers::Tokenizer& tokenizer;  // of all views
  std::vector<InspectedView> views;
  std::optional<LivePage> live = {};
};

// What a token adds to a text that ends with the token `after`, a blank in front of it for instance; bytes that are no
// character by themselves as <e2>.
std::string token_text(const tokenizers::Tokenizer& tokenizer, std::int32_t after, std::int32_t id);

std::string render_inspector(const InspectedPage& page);

}  // namespace headroom::inspect
