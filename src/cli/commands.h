// The program's requests to the engine: one plain struct a command, filled from the command line.
//
// The program itself holds no tensor code. It loads libheadroom_engine.so, and with it torch, only for these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/core/implementation.h"
#include "output.h"

namespace headroom::cli {

// `set`: "key=value" changes to the configs; `device`: as train.device. Empty strings: not given.
struct Train {
  std::string config, out;  // out: runs/<name of the config>
  std::vector<std::string> set;
  bool resume = false;
};

// How a model of translation writes; empty: as its run's config says.
struct Decoding {
  std::optional<std::int64_t> beam;
  std::optional<double> length_penalty;
};

// The trained model that a command is about, and how it computes.
struct ModelChoice {
  std::string run;           // run folder or checkpoint
  std::int64_t average = 1;  // the mean of so many newest checkpoints of the run
  Decoding decoding;
  std::string device = "auto";
  std::string precision;  // empty: the run's
};

// How a language model continues a text; empty: not given.
struct Sampling {
  std::optional<std::int64_t> tokens, top_k;
  std::optional<double> temperature, top_p;
  std::optional<std::uint64_t> seed;
};

struct Evaluate {
  ModelChoice model;
  std::vector<std::string> data;    // files as in data.validation; empty: the run's validation data
  std::vector<std::string> target;  // translation: files parallel to `data`
  bool skip_bad_rows = false;
  std::string task;  // a test without training; empty: how well the text is predicted
  std::int64_t shots = 0;
  std::string shots_from;
  bool by_shots = false;
  std::string begin;        // none, line_end or bos; empty: as the model's texts began in training
  std::string items;        // a file to write; empty: none
  std::int64_t stride = 0;  // as tasks::EvaluateOptions has it
  std::int64_t batch_size = 16;
};

struct Generate {
  ModelChoice model;
  std::string prompt;
  Sampling sampling;
};

// Empty: as serve::ServeOptions has it.
struct Serve {
  std::vector<std::string> runs;
  std::string host = "127.0.0.1";
  std::int64_t port = 8080;
  std::string api_key_file;
  std::optional<std::int64_t> batch, queue, prefix_cache, max_length, max_body;
  std::optional<double> timeout;
  std::string device = "auto";
  std::string precision;  // empty: each run's
};

// Trained models that are looked into side by side.
struct SeveralModels {
  std::vector<std::string> runs;  // run folders or checkpoints
  std::string checkpoints;        // "all": each checkpoint of the runs; empty: the newest
  std::string device = "auto", precision = "fp32";
};

struct Analyse {
  SeveralModels models;
  std::vector<std::string> what;  // names of analyses; empty: all that the model has
  std::string text, data;         // empty: not given; both: the run's validation data
  std::string out;
};

struct Inspect {
  SeveralModels models;
  std::string text;  // a file; empty: the beginning of the first run's validation data
  std::string out;
};

struct Compare {
  std::vector<std::string> configs, set, prompts;
  std::vector<std::string> tune;      // "key=value,value,..."
  std::vector<std::string> families;  // "name=config,config,..."; empty: `configs` belong to none
  std::string out;
  std::int64_t seeds = 1;
  std::int64_t sample_tokens = 120;
};

struct Sweep {
  std::string config, out;
  std::vector<std::string> set, vary;  // vary: "key=value,value,..."
  std::int64_t seeds = 1;
};

struct Advise {
  std::string config, out;
  double budget = 0.0;  // seconds
  std::vector<std::string> set, variants, keep;
  bool heads = false;
};

struct Report {
  std::string folder;  // of a comparison, a sweep or a run
  bool watch = false;  // while training goes on there
};

struct Demo {
  std::string out = "runs/demo";
  std::vector<std::string> set;
  std::int64_t seeds = 1;
};

struct Golden {
  std::vector<std::string> paths;
  config::Implementation implementation = config::Implementation::automatic;
  std::string dtype = "float32", device = "cpu";
};

struct Bench {
  std::vector<std::string> names;  // empty: all there are; behind `generation` and `evaluate`: configs
  std::int64_t repeats = 7, batch = 1, prompt = 1024, tokens = 128;
  std::string precision = "fp32", device = "auto";
  bool list = false;
  std::string plots;  // a folder for drawings; empty: none
  std::vector<std::string> configs;
  std::string serve;  // not empty: this process is the worker of another's benchmark
};

struct Doctor {
  std::string config = "switchhead/wt103_47m";
  std::vector<std::string> set;
};

struct CheckpointInfo {
  std::string run;  // folder or checkpoint
};

struct CheckpointExport {
  std::string run, out, format = "headroom";
};

// A folder of Hugging Face; `tokenizer`: empty for the folder's own.
struct Import {
  std::string folder, out, tokenizer;
};

struct EngineRequest {
  std::variant<Train, Evaluate, Generate, Serve, Analyse, Inspect, Compare, Sweep, Advise, Report, Demo, Golden, Bench,
               Doctor, CheckpointInfo, CheckpointExport, Import>
      command;
  std::int64_t threads = 0;  // 0: those of the config, or all physical cores
  std::string command_line;  // as it was typed, for reports
  Output output{false};
};

// The engine's one entry point, an extern "C" symbol of this name and type. Returns the exit status; throws Error.
using EngineEntry = int (*)(const EngineRequest&);
inline constexpr const char* kEngineEntry = "headroom_engine_run";

}  // namespace headroom::cli
