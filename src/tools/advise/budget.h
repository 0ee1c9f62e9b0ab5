// The request, the measured speeds and the time spent, stored in out/advice.json. The lengths of pilot runs are derived
// from these, so a repeated request has the same pilot runs.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "advise.h"
#include "headroom/config/config.h"

namespace headroom::advise {

inline constexpr const char* kPilotFolder = "trials";  // in the request's `out`

class Budget {
 public:
  // Resumes from request.out/advice.json if it exists. Throws UserError if that file is invalid or belongs to another
  // request; before the first pilot run, only the config must be the same. `asked` is the loaded config of the
  // request.
  Budget(const AdviseRequest& request, const config::Config& asked);

  // Returns the config's training speed, which is measured for about `seconds` unless it is already stored. Throws
  // UserError for unusable data or too little memory, InterruptedError on Ctrl-C.
  train::StepTime measure(const config::Config& config, double seconds);
  void spend(double seconds);
  double spent() const { return spent_; }

 private:
  void read();
  void write() const;

  std::filesystem::path file_, cache_;
  std::function<train::StepTime(const config::Config&)> measure_;  // replaces timing steps, if set
  Json request_;
  double spent_ = 0.0;
  std::map<std::string, train::StepTime> measured_;  // by a hash of the keys that the speed depends on
};

}  // namespace headroom::advise
