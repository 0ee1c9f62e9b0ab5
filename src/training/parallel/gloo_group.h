// The ranks of one run: point-to-point transfers, and a common exit when a rank fails. Transport and rendezvous use
// PyTorch (c10d: TCPStore, ProcessGroupGloo).
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/process_group.h"

namespace headroom::parallel {

// A tensor in transit. Do not touch the tensor until wait() returns. wait() throws PeerError if the peer fails.
class Transfer {
 public:
  Transfer() = default;  // already complete
  explicit Transfer(std::function<void()> wait) : wait_(std::move(wait)) {}
  void wait() {
    if (const std::function<void()> wait = std::exchange(wait_, nullptr)) {
      wait();
    }
  }

 private:
  std::function<void()> wait_;
};

// Thrown if another rank has exited or does not answer.
class PeerError : public Error {
 public:
  using Error::Error;
};

class GlooGroup : public ProcessGroup {
 public:
  GlooGroup();  // a group of one rank
  ~GlooGroup() override;

  std::vector<std::string> gather(const std::string& mine) override;

  // Returns whether the launcher has restarted this run after a failure.
  bool restarted() const { return restarts_ > 0; }

  // Start a transfer of a contiguous CPU tensor. Transfers between two ranks with the same tag keep their order.
  // Thread-safe.
  Transfer send(const at::Tensor& tensor, int to, std::uint32_t tag);
  Transfer receive(at::Tensor tensor, int from, std::uint32_t tag);

  // Bytes of tensors sent and received so far, excluding gather().
  struct Traffic {
    std::int64_t sent = 0, received = 0;
  };
  Traffic traffic() const;

  // Limits every wait for another rank. The default is hours, because ranks wait while one of them prepares data or
  // writes a report; use_long_timeout() restores it.
  void set_timeout(std::chrono::seconds timeout);
  void use_long_timeout();

  // Announces that this rank ends the run. Returns true on the first rank that calls it; that rank prints `message`.
  // `final`: a restart would fail in the same way, so init_process_group() refuses it.
  bool announce(const std::string& message, bool final);

 private:
  class Connection;
  friend void init_process_group();
  template <class Begin>
  Transfer start(int peer, const Begin& begin);
  std::chrono::milliseconds timeout() const;
  // Throws PeerError. Names the failed rank at the end of a chain of waiting ranks, which may differ from `peer`.
  [[noreturn]] void report_failed_peer(int peer, const std::string& why);

  std::unique_ptr<Connection> connection_;  // null for a group of one
  int restarts_ = 0;
};

// Returns the group of this process. It has a single rank until init_process_group().
GlooGroup& default_group();

// Connects default_group() to the other ranks if a launcher has started several (launcher.h). Afterwards, the ranks on
// one machine divide its cores among them. Throws UserError for invalid variables, Error if the other ranks cannot be
// reached within 25 s (five minutes under torchrun, whose restarts take longer), and EndedError if a failure has been
// announced as final.
void init_process_group();

// A rendezvous store on this machine, for programs that start ranks without torchrun.
class Rendezvous {
 public:
  Rendezvous();  // throws Error if no port can be opened
  ~Rendezvous();
  // Returns the environment variables that torchrun would set for this rank.
  std::vector<std::pair<std::string, std::string>> variables(int rank, int size) const;

 private:
  class Store;
  std::unique_ptr<Store> store_;
};

}  // namespace headroom::parallel
