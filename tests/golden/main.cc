#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "golden.h"
#include "headroom/config/field.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"

namespace headroom::golden {
namespace {

// Returns the exit status.
int run(int argc, char** argv) {
  CLI::App app("Checks layers and models against reference cases: outputs, losses and every gradient.", "golden");
  std::vector<std::string> paths;
  std::string implementation = "automatic", dtype = "float32", device = "cpu";
  bool json = false;
  app.add_option("PATH", paths, "folders or .safetensors files, such as tests/golden/cases")->required();
  app.add_option("--impl", implementation)->check(CLI::IsMember({"reference", "fused", "automatic"}));
  app.add_option("--dtype", dtype)->check(CLI::IsMember({"float32", "float64"}));
  app.add_option("--device", device, "cpu, cuda or cuda:N");
  app.add_flag("--json", json, "print the result as one JSON document");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) {
      return app.exit(problem);  // --help
    }
    user_error("golden: {} (golden --help)", problem.what());
  }
  const GoldenOptions options{.implementation = *config::value_named<Implementation>(implementation),
                              .dtype = dtype == "float64" ? at::kDouble : at::kFloat,
                              .device = models::resolve(device)};
  const auto print_line = [&](const CaseOutcome& outcome) {
    if (!json) {
      fmt::print("{}\n", outcome_line(outcome));
    }
  };
  const Json document = outcomes_json(run_cases({paths.begin(), paths.end()}, options, print_line));
  const auto failed = document.at("failed").get<std::int64_t>(), none = document.at("none_here").get<std::int64_t>();
  if (json) {
    fmt::print("{}\n", to_json_line(document));
  } else {
    fmt::print("{} passed, {} failed{}\n", document.at("passed").get<std::int64_t>(), failed,
               none > 0 ? fmt::format(", {} without a fused version here", none) : "");
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headroom::golden

int main(int argc, char** argv) {
  try {
    return headroom::golden::run(argc, argv);
  } catch (const headroom::Error& problem) {
    fmt::print(stderr, "{}\n", problem.what());
    return dynamic_cast<const headroom::UserError*>(&problem) != nullptr ? 2 : 1;
  }
}
