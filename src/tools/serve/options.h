// The settings of a server, for programs that do not link torch, too.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;           // 0: any free port
  std::string api_key_file;  // empty: no authentication
  // decode::EngineOptions of each model.
  std::int64_t max_rows = 8;
  std::int64_t prefix_cache_tokens = 16384;
  // Limits; requests that exceed them are rejected.
  std::int64_t queue = 256;        // answers that may wait for a free row
  std::int64_t max_length = 0;     // tokens of a prompt and its answer together; 0: the model's context
  std::int64_t max_body_mib = 8;   // of a request
  double timeout_seconds = 600.0;  // for all answers to one request, from its arrival
};

}  // namespace headroom::serve
