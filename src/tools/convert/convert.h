// Turns a trained dense model into one with the attention of another config: `headroom convert`. The source's attention
// maps are kept as far as the target has room for them, values and outputs are refitted in closed form, and each
// layer's attention is then fitted to the output of the source's layer. docs/convert.md describes the procedure and its
// results. Also plans the runs that compare converted models with their source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"

namespace headroom::convert {

struct ConvertRequest {
  std::string source;                // run folder or checkpoint of a model with dense or grouped dot-product attention
  std::string to;                    // config whose [model.attention] the result has; for messages
  config::Config target;             // read from `to`
  std::vector<std::string> data;     // files as in data.train; empty: the source's training data
  std::int64_t tokens = 0;           // training tokens whose activations are used; 0: up to 32,768
  std::int64_t fit_steps = 300;      // steps of fitting each layer; 0: closed form only
  std::int64_t joint_steps = 100;    // steps of fitting all converted layers together to the source's predictions
  std::vector<std::int64_t> layers;  // to convert, from 0; empty: all
  bool random_attention = false;     // start converted parts from random parameters, for comparisons
  std::int64_t threads = 0;          // 0: the source's number of threads
  std::uint64_t seed = 1;            // of the new parameters and the order of the fit's batches
  std::filesystem::path out;         // checkpoint to write; empty: none. Replaces only a file that convert wrote
  std::filesystem::path cache;       // prepared data
  std::string command;               // recorded in the checkpoint
};

// Squared error of a layer's attention or MLP on held-out tokens, relative to the square of the source's output.
struct LayerError {
  std::string layer;    // "layer3.attention", "layer3.ffn"
  double start = 0.0;   // after the closed form
  double fitted = 0.0;  // after the fit; at most `start`, because a fit that does not help is discarded
};

// The error of a fit on held-out tokens.
struct FitErrors {
  double start = 0.0;   // before the fit
  double fitted = 0.0;  // at most `start`
};

struct Conversion {
  std::vector<std::int64_t> converted;  // layers
  std::int64_t parameters = 0;
  double loss_before = 0.0, loss_after = 0.0;  // nats per target, of source and result on the held-out tokens
  bool exact = false;                          // the result computes what the source computes
  std::vector<LayerError> layers;              // empty if exact
  // If all layers were fitted together: KL(source, result) in nats per prediction, over the source's likeliest tokens
  // and one class for all other tokens.
  std::optional<FitErrors> together;
  std::vector<std::string> notes;  // settings of the config `to` that the result does not have
};

// Keys of a result's metadata: the losses before and after the conversion as text, and the source's parameters_sha256.
inline constexpr const char* kLosses = "converted_losses";
inline constexpr const char* kSourceHash = "converted_from_sha256";

// Writes a checkpoint whose config is the source's with the attention of the target's layers. MLPs are taken from the
// target where it has experts and the source has none. Layers that are alike in both models are copied. The result is a
// function of the request and the data. Throws UserError naming the file or key if the source has values that are not
// finite, if the target differs in kind, width, depth or position scheme, and if there is too little data.
Conversion convert(const ConvertRequest& request);

// `converted`, `parameters`, `loss_before`, `loss_after`, `exact`, `layers`
// (`layer`, `start`, `fitted`), `together` (`start`, `fitted`; null if all layers were not fitted together), `notes`.
Json to_json(const Conversion& conversion);

// The runs of a fair comparison of converted models: `headroom compare --convert`.
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
