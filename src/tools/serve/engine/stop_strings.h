// Ends a text where one of some strings begins, however the text is cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::serve {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text that this piece makes sure of: none of it belongs to a stop string. After stopped() there is none.
  std::string push(std::string_view piece);
  // What was kept back, at the end of a text that was not stopped.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::size_t first_stop() const;
  std::size_t beginning_at_end() const;

  std::vector<std::string> stops_;
  std::string held_;  // perhaps the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace headroom::serve
