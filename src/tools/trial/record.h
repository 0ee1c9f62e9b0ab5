// Training records that anyone can verify: a config, seeds, the kind of CPU, logs and the hashes of the trained
// parameters. docs/records.md has the rules of the two tracks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "tools/compare/compare.h"

namespace headroom::trial {

enum class Track {
  time,   // shortest training time to a given number of bits per byte on the built-in corpus's validation text
  tokens  // the lowest bits per byte after at most kMostTokens training tokens
};

}  // namespace headroom::trial

namespace headroom::config {
template <>
inline constexpr EnumNames kEnumNames<trial::Track> = {"time", "tokens"};
}  // namespace headroom::config

namespace headroom::trial {

inline constexpr std::int64_t kMostTokens = 10'000'000;

struct LogPoint {
  std::int64_t step = 0;
  double seconds = 0.0, loss = 0.0;
};

// One trained run of a record.
struct RecordRun {
  std::int64_t seed = 0, steps = 0, tokens = 0;
  double seconds = 0.0, bits_per_byte = 0.0;
  std::string parameters_sha256;
  std::vector<LogPoint> log;
};

struct Record {
  Track track = Track::time;
  double target = 0.0;        // Track::time: bits per byte
  std::string name, config;   // config: TOML, with all keys
  std::string machine, kind;  // machine: as described by the run; kind: of CPU, equal where results are bit-identical
  std::string training_data, program, finished;
  std::vector<RecordRun> runs;  // one per seed
};

struct RecordRequest {
  std::filesystem::path folder;  // of the runs
  std::filesystem::path cache;
  std::int64_t seeds = 3;
  std::string command;
  std::int64_t threads = 0;  // of verify_record(); 0: the record's
};

// Trains the config with its seed, its seed + 1, ... on the built-in corpus. Throws UserError for other data and for
// a config that the track does not admit, Error if a run misses the target.
Record make_record(const compare::NamedConfig& config, Track track, double target, const RecordRequest& request);

// Reads a record. Throws UserError naming the file if it is none.
Record read_record(const std::filesystem::path& file);
Json to_json(const Record& record);

// The result of training a record's runs again.
struct Verification {
  std::vector<RecordRun> runs;  // those of the first request.seeds seeds, in the record's order
  bool same_kind = false;       // this machine has the record's kind of CPU, so the parameters must be equal
  bool verified = false;
  std::string sentence;
};

// Trains the record's config again. On its kind of CPU the hashes must be equal; on another, bits per byte within 1%,
// because rounding differs. Times are reported, not compared. Throws UserError if request.folder holds all runs
// finished, because they would be read instead of trained; if the record has fewer runs than request.seeds; and, before
// training, if the data here are not the record's.
Verification verify_record(const Record& record, const std::string& file, const RecordRequest& request);

// The comparison of two records of one track, by time or bits per byte: Welch's one-sided t-test over the seeds, with
// the degrees of freedom rounded down.
struct Succession {
  double difference = 0.0;  // mean of the new record minus that of the old
  double p = 1.0;           // of a difference at least as low if the two were equal
  bool replaces = false;    // p < 0.01
  std::string sentence;
};
// Throws UserError for different tracks or targets, or fewer than two seeds.
Succession compare_records(const Record& next, const Record& before);

}  // namespace headroom::trial
