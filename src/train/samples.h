// What a language model writes while it learns: a line of the log, and of the run's samples.jsonl ("step", "prompt",
// "text").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "headroom/tokenizers/tokenizer.h"
#include "metrics.h"

namespace headroom::train {

class Samples {
 public:
  struct Writer {
    const models::Model& model;
    const tokenizers::Tokenizer& tokenizer;
    nn::Context context;
  };
  // Of a run that stands at `step`: what its file says of later steps is forgotten. Throws MisuseError where the writer
  // cannot continue the prompt.
  Samples(const std::filesystem::path& folder, std::int64_t step, std::string prompt, const Writer& writer);

  void write(std::int64_t step, const Writer& writer);
  void sync() { file_.sync(); }

 private:
  std::string prompt_;
  MetricsLog file_;
};

}  // namespace headroom::train
