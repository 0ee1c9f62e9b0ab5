// What processes that share an evaluation tell each other.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "headroom/core/process_group.h"

namespace headroom::tasks {

// What each process hands in, in the order of ranks, once all have; `what` is named where it is no JSON.
inline std::vector<Json> gather(ProcessGroup& peers, const Json& mine, std::string_view what) {
  std::vector<Json> all;
  for (const std::string& text : peers.gather(to_json_line(mine))) {
    all.push_back(parse_json(text, what));
  }
  return all;
}

}  // namespace headroom::tasks
