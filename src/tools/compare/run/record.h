// What a comparison leaves in its folder besides the runs: out/comparison.json, enough to make the page again.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plan.h"
#include "training/train/record/folder.h"

namespace headroom::compare {

inline constexpr const char* kRecordFile = train::kComparisonFile;

struct Record {
  Kind kind = Kind::comparison;
  std::string title, about, command;
  Plan plan;
  std::vector<std::string> prompts;
  std::string sampling;                                     // how the samples were drawn
  std::map<std::string, std::vector<std::string>> samples;  // of each model
};

void write_record(const Record& record, const std::filesystem::path& out);

// Of the choices those whose folders hold a run, with the configs from there. Throws UserError naming the file where
// it is not what write_record() wrote.
Record read_record(const std::filesystem::path& out);

}  // namespace headroom::compare
