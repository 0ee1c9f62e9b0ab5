// What advice is based on besides the trials: the request and what was measured, in out/advice.json. Lengths of trials
// follow from it, so that the same request goes on with the same trials.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "advise.h"
#include "headroom/config/config.h"

namespace headroom::compare {

class Ledger {
 public:
  // Goes on with the one in request.out, if there is one. Throws UserError where it is of another request, or is not
  // what this class writes. `asked`: the request's config, loaded.
  Ledger(const AdviseRequest& request, const config::Config& asked);

  // Measured now, for about so many seconds, or before.
  Measured measure(const config::Config& config, double seconds);
  void spend(double seconds);
  double spent() const { return spent_; }

 private:
  void read();
  void write() const;

  std::filesystem::path file_, cache_;
  std::function<Measured(const config::Config&)> measure_;  // instead of measure_steps(), if set
  Json request_;
  double spent_ = 0.0;
  std::map<std::string, Measured> measured_;  // by what the time of a step depends on
};

}  // namespace headroom::compare
