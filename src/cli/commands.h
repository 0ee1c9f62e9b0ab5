// The interface between the program (front/) and the engine (engine/): one struct for each command that needs tensors,
// filled from the command line, and the output to which it prints its result. The program loads libheadroom_engine.so,
// and with it torch, only to run one of these commands.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "tools/bench/bench.h"
#include "tools/convert/convert.h"
#include "tools/serve/options.h"
#include "training/cost/report.h"

namespace headroom::cli {

// The reader of standard output has closed the pipe, as in `headroom ... | head`.
class NoReaderError : public Error {
 public:
  using Error::Error;
};

// Standard output: text for people, or one JSON document for scripts.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }
  // Prints the text unless --json is given.
  void text(std::string_view text) const {
    if (!json_) {
      ::isatty(STDOUT_FILENO) == 1 ? write(harmless(text)) : write(text);
    }
  }
  // Prints the document if --json is given. Call at most once.
  void document(const Json& document) const {
    if (json_) {
      write(to_json_line(document) + "\n");
    }
  }

 private:
  static void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
      return;
    }
    if (errno == EPIPE) {
      throw NoReaderError("standard output: closed by its reader");
    }
    fail("standard output: cannot be written, {}", std::generic_category().message(errno));
  }

  bool json_;
};

// In all structs, an empty string or optional means that the option was not given; `set` holds "key=value" config
// changes; `device` is as in train.device.
struct Train {
  std::string config, out;  // default for out: runs/<name of the config>
  std::vector<std::string> set;
  bool resume = false;
};

// Beam search for a translation model; default: the run's config.
struct Decoding {
  std::optional<std::int64_t> beam;
  std::optional<double> length_penalty;
};

// A trained model and the settings for running it.
struct ModelChoice {
  std::string run;           // run folder or checkpoint
  std::int64_t average = 1;  // average the parameters of the run's newest N checkpoints
  Decoding decoding;
  std::string device = "auto";
  std::string precision;  // default: the run's
};

// How a language model continues a prompt.
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
  std::string task;  // a zero- or few-shot benchmark; default: measure the loss on the text
  std::int64_t shots = 0;
  std::string shots_from;
  bool by_shots = false;
  std::string begin;                    // none, line_end or bos; default: as in training
  std::string items;                    // file to write
  std::int64_t stride = 0, tokens = 0;  // tasks::EvaluateOptions::stride and most_tokens
  std::int64_t batch_size = 16;
};

struct Generate {
  ModelChoice model;
  std::string prompt;
  Sampling sampling;
};

struct Serve {
  std::vector<std::string> runs;
  serve::ServeOptions options;
  std::string device = "auto";
  std::string precision;  // default: each run's
};

// Trained models that are analysed side by side.
struct SeveralModels {
  std::vector<std::string> runs;  // run folders or checkpoints
  std::string checkpoints;        // "all": each checkpoint of the runs; default: the newest
  std::string device = "auto", precision = "fp32";
};

struct Analyse {
  SeveralModels models;
  std::vector<std::string> what;  // names of analyses; default: all that apply to the model
  std::string text, file;         // default: the run's validation data
  std::int64_t samples = 0;       // default: each analysis has its number
  std::optional<std::int64_t> key;
  std::string out;
  bool force = false;  // overwrite an analysis
};

struct Inspect {
  SeveralModels models;
  std::string text, file;  // default: the first run's validation data
  std::string out;
};

struct Compare {
  std::vector<std::string> configs, set, prompts;
  std::vector<std::string> tune;      // "key=value,value,..."
  std::vector<std::string> test;      // files
  std::vector<std::string> families;  // "name=config,config,...", instead of `configs`
  convert::StudyRequest study;        // conversions of `study.source`, instead of `configs`
  std::string out;
  double budget = 0.0;  // seconds; 0: no limit
  std::int64_t seeds = 1;
  std::int64_t sample_tokens = 120;
};

// One of `paper`, `match` and `time` at most; none: the costs of the configs.
struct Cost {
  std::vector<std::string> configs, set;
  std::string paper, vary, plot, time;
  std::string match, by = "parameters";
  bool full = false;  // match: print every key
  cost::Devices devices;
};

struct Sweep {
  std::string config, out;
  std::vector<std::string> set, vary;  // vary: "key=value,value,..."
  std::int64_t seeds = 1;
};

// Defaults: trial::TrialRequest, trial::TestOptions.
struct Try {
  std::string base, change;            // configs; `change` empty: the base with `set`
  std::vector<std::string> set, both;  // config changes: `set` of the changed config only, `both` of both configs
  std::string out = "runs/try";
  double budget = 1200.0;  // seconds
  std::int64_t pairs = 8;
  std::optional<std::int64_t> change_seed;
  bool tune = false;
};

struct Report {
  std::vector<std::string> folders = {"runs"};  // a comparison, a sweep, a run or a folder of runs; or several runs
  std::string page;    // default: report.html in the folder; of several runs, overlay.html beside the first
  bool watch = false;  // update the page while training continues
};

struct Demo {
  std::string out = "runs/demo";
  std::vector<std::string> set;
  std::int64_t seeds = 1;
};

struct Bench {
  std::vector<std::string> names;  // default: all; arguments after `generation` or `evaluate` are configs
  bench::BenchOptions options{.device = "auto"};
  std::string serve;  // if set, this process is a worker of another benchmark process
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
  bool force = false;  // overwrite an export
};

// A Hugging Face folder to import; `tokenizer`: default: the folder's own.
struct Import {
  std::string folder, out, tokenizer;
  bool force = false;  // overwrite parameters
};

// `heads` "auto": instead of `job.to`, the heads of each layer under `budget`.
struct Convert {
  convert::ConvertRequest job;
  std::string out, layers;  // layers: "0,2,5"; empty: all
  std::string heads, budget;
  std::int64_t experts = 0;      // HeadsRequest::experts
  std::string config_out, page;  // with `heads`: files to write as well
  std::vector<std::string> set;
  bool force = false;  // overwrite parameters
};

struct EngineRequest {
  std::variant<Train, Evaluate, Generate, Serve, Analyse, Inspect, Compare, Cost, Sweep, Try, Report, Demo, Bench,
               Doctor, CheckpointInfo, CheckpointExport, Import, Convert>
      command;
  std::int64_t threads = 0;  // 0: the config's, or all physical cores
  std::string command_line;  // as typed, for reports
  Output output{false};
};

// Type of the engine's only entry point, an extern "C" symbol. Returns the exit status; throws Error.
using EngineEntry = int (*)(const EngineRequest&);
inline constexpr const char* kEngineEntry = "headroom_engine_run";

}  // namespace headroom::cli
