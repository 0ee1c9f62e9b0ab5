// Checks on this machine the results that Headroom promises to be bit-identical (docs/reproducibility.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::bits {

// The check of one promise.
struct Check {
  std::string name;      // "number of ranks"
  std::string compared;  // what was compared: "parameters after training on 1, 2 and 3 ranks"
  bool equal = true;
  std::string different;  // if not equal: the cases that differ
};

struct BitsRequest {
  std::filesystem::path program;  // the headroom program, which the training checks run as child processes
  std::filesystem::path folder;   // an existing folder for their runs
  std::int64_t threads = 2;       // thread count that is compared with one thread
};

// Trains small models in child processes. Throws Error if one of them fails.
std::vector<Check> check_training(const BitsRequest& request);

// Reads, scores and continues texts with small models in this process, in float32 and bfloat16.
std::vector<Check> check_inference(const BitsRequest& request);

bool all_equal(const std::vector<Check>& checks);
std::string render_table(const std::vector<Check>& checks);
Json to_json(const std::vector<Check>& checks);  // [{"name", "compared", "equal", "different"}]

// A command of the headroom program that runs in a child process.
struct ChildCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  std::filesystem::path output;                                  // stdout is written here, stderr to output + ".log"
};

class Child {
 public:
  explicit Child(ChildCommand command);  // throws Error if the program cannot be started
  ~Child();                              // kills the process if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Sends SIGKILL. Returns whether the process was still running.
  bool kill();
  // Waits for the end. Returns the document that the command printed with --json, null if it printed none. Throws Error
  // with the last line of stderr if the exit status is not 0.
  Json result();

 private:
  int wait();

  ChildCommand command_;
  pid_t pid_ = -1;
};

}  // namespace headroom::bits
