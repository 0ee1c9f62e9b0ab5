// Serves trained language models over HTTP with OpenAI's completions API (docs/serving.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/store/open_model.h"
#include "options.h"

namespace headroom::serve {

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
