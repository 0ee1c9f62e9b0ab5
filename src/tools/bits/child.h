// Runs a command of the headroom program in a child process.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::bits {

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
