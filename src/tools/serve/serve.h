// Trained language models for other programs, by the completions interface that every client knows (docs/serving.md).
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
  int port = 8080;           // 0: any that is free
  std::string api_key_file;  // empty: whoever reaches the server may use it
  // Of each model, as decode::EngineOptions has them.
  std::int64_t max_rows = 8;
  std::int64_t prefix_cache_tokens = 16384;
  // Beyond them a request is refused.
  std::int64_t queue = 256;           // answers that wait for a place in a batch
  std::int64_t longest = 0;           // tokens of a prompt and its answer; 0: what a model's context holds
  std::int64_t max_body = 8LL << 20;  // bytes of a request
  double timeout_seconds = 600.0;     // for the answers to a request
};

// A model and what the user called it: a run folder or a checkpoint file.
struct NamedModel {
  std::string run;
  store::OpenedModel opened;
};

// The names by which clients know these runs: the last part of each path, without ".safetensors"; where two have the
// same, the paths as they are. Throws UserError where a run comes twice.
std::vector<std::string> names_of(const std::vector<std::string>& runs);

class Server {
 public:
  // Takes the address and reads the key. Throws UserError where one of them cannot be had.
  explicit Server(ServeOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until `asked_to_stop` says so, then finishes what it has begun. Once; from its caller's thread the models
  // are computed. `ready` is called when requests are answered. Throws UserError where a model cannot be served.
  using Ready = std::function<void(const std::string& url, const std::vector<std::string>& names)>;
  void run(std::vector<NamedModel> models, const Ready& ready, const std::function<bool()>& asked_to_stop);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::serve
