#include "golden.h"

#include "case.h"
#include "headroom/core/safetensors.h"
#include "headroom/ops/choice.h"

namespace headroom::golden {
namespace {

namespace fs = std::filesystem;

// Returns whether a description is beside the file or in its metadata. A folder may contain other tensor files, too.
bool is_described(const fs::path& file) {
  return fs::exists(fs::path(file).replace_extension(".json")) || SafetensorsFile(file).metadata().contains("case");
}

std::vector<fs::path> find_cases(const std::vector<fs::path>& paths) {
  std::vector<fs::path> found;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      for (const auto& entry : fs::recursive_directory_iterator(path)) {
        if (entry.path().extension() == ".safetensors" && is_described(entry.path())) {
          found.push_back(entry.path());
        }
      }
    } else if (fs::exists(path, error)) {
      if (path.extension() != ".safetensors" && path.extension() != ".json") {
        user_error("golden: {}: is not a reference case (a .safetensors file)", path.string());
      }
      found.push_back(fs::path(path).replace_extension(".safetensors"));
    } else {
      user_error("golden: {}: no such file or folder", path.string());
    }
  }
  if (found.empty()) {
    user_error("golden: {}: no reference case (a .safetensors file) found", paths[0].string());
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string what_ran() {
  bool fused = false, reference = false;
  for (const auto& [op, choices] : ops::implementation_counts()) {
    fused = fused || choices.fused > 0;
    reference = reference || choices.reference > 0;
  }
  return fused && reference ? "mixed" : fused ? "fused" : "reference";
}

CaseOutcome run_case(const fs::path& file, const GoldenOptions& options) {
  CaseOutcome outcome;
  outcome.name = file.stem().string();
  outcome.family = file.parent_path().filename().string();
  outcome.implementation = "-";
  try {
    const Case c = read_case(file, options);
    outcome.name = c.name;
    outcome.family = c.family;
    const Runner runner = find_runner(c.family);
    if (runner == nullptr) {
      outcome.reason = fmt::format("unknown family {}", c.family);
      return outcome;
    }
    nn::Context context;
    context.implementation = options.implementation;
    ops::reset_implementation_counts();
    for (const CaseResult& result : runner(c, context)) {
      compare(c, result, outcome);
    }
    outcome.implementation = what_ran();
    outcome.passed = outcome.error <= outcome.limit && !outcome.worst_tensor.empty();
  } catch (const ops::NoFusedError& problem) {
    outcome.reason = problem.what();
    outcome.unsupported = !options.device.is_cpu();  // every operator has a fused version on the CPU
  } catch (const c10::Error& problem) {
    outcome.reason = problem.what_without_backtrace();
  } catch (const Json::exception& problem) {
    outcome.reason = fmt::format("{}: {}", file.string(), problem.what());
  } catch (const std::exception& problem) {
    outcome.reason = problem.what();
  }
  outcome.passed = outcome.passed && outcome.reason.empty();
  return outcome;
}

}  // namespace

std::vector<CaseOutcome> run_cases(const std::vector<fs::path>& paths, const GoldenOptions& options,
                                   const std::function<void(const CaseOutcome&)>& on_case) {
  std::vector<CaseOutcome> outcomes;
  for (const fs::path& file : find_cases(paths)) {
    outcomes.push_back(run_case(file, options));
    if (on_case) {
      on_case(outcomes.back());
    }
  }
  return outcomes;
}

Json outcomes_json(const std::vector<CaseOutcome>& outcomes) {
  const auto passed = std::ranges::count_if(outcomes, [](const auto& o) { return o.passed; });
  const auto unsupported = std::ranges::count_if(outcomes, [](const auto& o) { return o.unsupported; });
  Json cases = Json::array();
  for (const CaseOutcome& o : outcomes) {
    Json row = {{"case", o.name},
                {"family", o.family},
                {"implementation", o.implementation},
                {"passed", o.passed},
                {"worst_tensor", o.worst_tensor},
                {"error", o.error},
                {"limit", o.limit}};
    if (!o.reason.empty()) {
      row["reason"] = o.reason;
    }
    cases.push_back(std::move(row));
  }
  return {{"passed", passed},
          {"failed", static_cast<std::int64_t>(outcomes.size()) - passed - unsupported},
          {"none_here", unsupported},
          {"cases", cases}};
}

std::string outcome_line(const CaseOutcome& o) {
  const char* verdict = o.passed ? "pass" : o.unsupported ? "none" : "FAIL";
  const std::string head = fmt::format("{} {}/{} ({})", verdict, o.family, o.name, o.implementation);
  if (!o.reason.empty()) {
    return fmt::format("{}: {}", head, o.reason);
  }
  return fmt::format("{}: {} error {:.2g}, limit {:.2g}", head, o.worst_tensor, o.error, o.limit);
}

}  // namespace headroom::golden
