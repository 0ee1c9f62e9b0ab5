// Child processes for timed work, which respond to each line of input with one line of JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/core/json.h"
#include "training/parallel/gloo_group.h"

namespace headroom::bench {

// Returns the command that runs a script of bench/ with the Python that has torch, the current number of threads, the
// model's size and more options. Throws Error naming the benchmark if there is no such Python.
std::vector<std::string> python_baseline(const std::string& benchmark, const std::string& script, const Json& size,
                                         const std::vector<std::string>& more);

class BenchProcess {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  // Throws Error if the program cannot be started. `environment` is added to this process's environment.
  explicit BenchProcess(const std::vector<std::string>& command, const Environment& environment = {});
  ~BenchProcess();  // sends "quit" and waits
  BenchProcess(const BenchProcess&) = delete;
  BenchProcess& operator=(const BenchProcess&) = delete;

  Json ask(const std::string& line);  // send() and answer()
  void send(const std::string& line);
  Json answer();  // throws Error if the program has exited or its answer is not JSON

 private:
  std::string name_, asked_;
  int pid_ = -1, to_ = -1, from_ = -1;
};

// Starts the program and runs one unit of work. If that fails, the baseline is not installed: returns null and logs
// `missing` as a warning.
std::unique_ptr<BenchProcess> start_if_available(const std::vector<std::string>& command, const std::string& missing);

// The ranks of a distributed program, which work simultaneously.
class BenchRanks {
 public:
  BenchRanks(const std::vector<std::string>& command, int ranks);
  ~BenchRanks();  // signals all ranks to quit before waiting for any, because they exit together
  BenchRanks(const BenchRanks&) = delete;
  BenchRanks& operator=(const BenchRanks&) = delete;

  void run();             // runs one unit of work
  std::int64_t memory();  // peak bytes of the rank that uses most

 private:
  std::vector<Json> ask(const std::string& line);

  parallel::Rendezvous rendezvous_;
  std::vector<std::unique_ptr<BenchProcess>> processes_;
};

}  // namespace headroom::bench
