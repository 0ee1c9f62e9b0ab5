// Serves trained language models over HTTP with OpenAI's completions API (docs/serving.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/store/open_model.h"

namespace headroom::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;           // 0: any free port
  std::string api_key_file;  // empty: no authentication
  // decode::EngineOptions of each model.
  std::int64_t max_rows = 8;
  std::int64_t prefix_cache_tokens = 16384;
  // Limits; requests that exceed them are rejected.
  std::int64_t queue = 256;           // answers that may wait for a free row
  std::int64_t max_length = 0;        // tokens of a prompt and its answer together; 0: the model's context
  std::int64_t max_body = 8LL << 20;  // bytes of a request body
  double timeout_seconds = 600.0;     // for all answers to one request
};

// A model and the run folder or checkpoint file that the user named.
struct NamedModel {
  std::string run;
  store::OpenedModel opened;
};

// Returns the names by which clients address these runs: the last component of each path, without ".safetensors",
// preceded by as many parent folders as needed to make it unique. Throws UserError if a run is given twice.
std::vector<std::string> names_of(const std::vector<std::string>& runs);

class Server {
 public:
  // Binds the address and reads the key. Throws UserError if either fails.
  explicit Server(ServeOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop_requested() returns true, then finishes the answers in progress. Call once; the models run in the
  // caller's thread. `ready` is called once the server accepts requests. Throws UserError if a model cannot be served.
  using Ready = std::function<void(const std::string& url, const std::vector<std::string>& names)>;
  void run(std::vector<NamedModel> models, const Ready& ready, const std::function<bool()>& stop_requested);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::serve
