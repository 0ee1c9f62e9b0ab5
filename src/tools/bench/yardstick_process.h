// Another program that answers one line of JSON to every line it is sent.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::bench {

// The command of a script in bench/, by a Python that has torch, with the threads in force. Throws Error naming the
// benchmark where there is no such Python.
std::vector<std::string> python_yardstick(const std::string& benchmark, const std::string& script);

class YardstickProcess {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  // Throws Error when the program cannot be started. `environment` is set besides this process's own.
  explicit YardstickProcess(const std::vector<std::string>& command, const Environment& environment = {});
  ~YardstickProcess();  // sends "quit" and waits
  YardstickProcess(const YardstickProcess&) = delete;
  YardstickProcess& operator=(const YardstickProcess&) = delete;

  Json ask(const std::string& line);  // throws Error when the program ends or answers something else
  // The same in two steps, for programs that work at the same time.
  void send(const std::string& line);
  Json answer();

 private:
  std::string name_, asked_;
  int pid_ = -1, to_ = -1, from_ = -1;
};

// The program once it has answered "run 1"; null where it does not, with `missing` as a warning: there is no yardstick.
std::unique_ptr<YardstickProcess> start_if_there(const std::vector<std::string>& command, const std::string& missing);

}  // namespace headroom::bench
