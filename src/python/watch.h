// Intermediate values of the next call from Python: which it shows, and which it is given in their place. Schemas of
// operators have no room for names, so both are kept by thread: start_watch(), the call, end_watch().
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/nn/observer.h"

namespace headroom::python {

class Watch : public nn::Observer {
 public:
  using Values = std::vector<std::pair<std::string, at::Tensor>>;

  // patterns: as nn::matches() takes them, of names that begin with `scope`. given: what is used in the place of
  // values, in the order in which the call comes to those of a name.
  Watch(std::vector<std::string> patterns, std::string scope, const Values& given);
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;

  const std::string& scope() const { return scope_; }
  const Values& shown() const { return shown_; }  // in the order of the call
  static Watch* current();                        // this thread's; null: none

 private:
  std::vector<std::string> patterns_;
  std::string scope_;
  std::map<std::string, std::vector<at::Tensor>, std::less<>> given_;  // the next one last
  Values shown_;
};

}  // namespace headroom::python
