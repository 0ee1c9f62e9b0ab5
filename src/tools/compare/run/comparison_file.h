// out/comparison.json: the data of a comparison besides its runs, from which the page can be regenerated.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plan.h"
#include "training/train/loop/start.h"

namespace headroom::compare {

inline constexpr const char* kRecordFile = train::kComparisonFile;

struct ComparisonRecord {
  Kind kind = Kind::comparison;
  std::string title, about, command;
  Plan plan;
  std::vector<std::string> prompts;
  std::string sampling;                                     // how the samples were generated
  std::map<std::string, std::vector<std::string>> samples;  // by model name
};

void write_record(const ComparisonRecord& record, const std::filesystem::path& out);

// Drops choices without a run folder; reads the configs of the others from their folders. Throws UserError naming the
// file if write_record() did not write it.
ComparisonRecord read_record(const std::filesystem::path& out);

// Returns what read_record() returns, without seeds and values that have no run; nullopt if there is no record or it is
// damaged.
std::optional<ComparisonRecord> record_in(const std::filesystem::path& out);

// Throws UserError if writing `next` into `out` would lose trained runs of the existing record: runs of another
// command, or models, seeds, keys or values that `next` lacks. `next` may add to the record. A missing or corrupt
// record is ignored.
void check_overwrite(const ComparisonRecord& next, const std::filesystem::path& out);

}  // namespace headroom::compare
