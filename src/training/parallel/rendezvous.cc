#include "rendezvous.h"

#include "connection.h"
#include "headroom/core/error.h"

namespace headroom::parallel {

class Rendezvous::Store {
 public:
  c10::intrusive_ptr<c10d::TCPStore> served;
};

Rendezvous::Rendezvous() : store_(std::make_unique<Store>()) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  try {
    store_->served = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    fail("processes: no place to meet: {}", what.substr(0, what.find('\n')));
  }
}

Rendezvous::~Rendezvous() = default;

std::vector<std::pair<std::string, std::string>> Rendezvous::variables(int rank, int size) const {
  const std::string all = std::to_string(size);
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", all},
          {"LOCAL_WORLD_SIZE", all},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(store_->served->getPort())},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

}  // namespace headroom::parallel
