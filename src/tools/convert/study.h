// The runs of a fair comparison of converted models: `headroom compare --convert`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/convert/convert.h"

namespace headroom::convert {

struct StudyRequest {
  std::string source;                   // a run folder
  std::vector<std::string> targets;     // configs, as ConvertRequest::to
  std::vector<std::string> overrides;   // "key=value" for the continued runs
  std::vector<double> shares = {0.05};  // tokens of each continued run as a fraction of the source's; 0: no training
  bool scratch = true;                  // also train the runs NAME-scratch
  std::filesystem::path out, cache;     // converted checkpoints: out/converted/NAME.safetensors
  std::string command;
};

struct StudyRun {
  std::string name;  // "dense-5%", "switchhead-5%"
  config::Config config;
  std::string family;  // model name, shared by the runs with all shares; empty unless several shares differ in steps
};

struct Study {
  std::vector<StudyRun> runs;
  std::vector<std::string> before_training;  // a sentence for each conversion: the losses without training
};

// Converts the source to each target and returns, for each share of the source's tokens, the configs of
//
//   dense            the source, continued
//   dense-taught     the same, with half the loss from its old self
//   NAME             the converted model, with half the loss from the source
//   NAME-random      the source with random parameters of what is converted, likewise
//   NAME-scratch     the target from random parameters, on the source's tokens and this share
//
// A share of 0 has the rows dense, NAME and NAME-random, which are validated without training. They come last.
//
// Masked language models and models with memory cannot teach: there is no dense-taught, and NAME and NAME-random learn
// from the text alone. Continued runs have a quarter of the source's learning rate, falling linearly to 0. They and
// NAME-scratch take nothing from what the source itself started from or learnt from. Conversions that exist in `out`
// are reused. Throws what convert() throws, and UserError for two targets of one name, for a source without training,
// and for existing conversions for other configs or from other parameters.
Study plan_study(const StudyRequest& request);

}  // namespace headroom::convert
