#include <ATen/Parallel.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "tools/bits/bits.h"

namespace headroom::cli {
namespace {

// A temporary folder, removed at the end.
struct Scratch {
  std::filesystem::path path;
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "headroom-bits-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      fail("bits: {}: cannot create a folder: {}", name, std::strerror(errno));
    }
    path = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

}  // namespace

int run(const Bits& /*command*/, const EngineRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  const Scratch scratch;
  const bits::BitsRequest asked{.program = std::filesystem::read_symlink("/proc/self/exe"),
                                .folder = scratch.path,
                                .threads = std::max<std::int64_t>(2, at::get_num_threads())};
  log_info("bits: checks serving and evaluation");
  std::vector<bits::Check> checks = bits::check_inference(asked);
  log_info("bits: checks training, in child processes");
  const std::vector<bits::Check> training = bits::check_training(asked);
  checks.insert(checks.begin(), training.begin(), training.end());
  const bool equal = bits::all_equal(checks);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  request.output.text(bits::render_table(checks) +
                      fmt::format("\n{} on {}, {} threads, {:.0f} s\n",
                                  equal ? "all promises hold" : "some promises do not hold", cpu_name(), asked.threads,
                                  seconds));
  request.output.document({{"checks", bits::to_json(checks)},
                           {"equal", equal},
                           {"cpu", cpu_name()},
                           {"threads", asked.threads},
                           {"seconds", seconds}});
  return equal ? 0 : 1;
}

}  // namespace headroom::cli
