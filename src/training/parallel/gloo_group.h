// The processes of one run, started by torchrun: who they are, how they send tensors to each other, and how they end
// together. Transport and rendezvous are PyTorch's own (c10d: TCPStore, ProcessGroupGloo).
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/process_group.h"

namespace headroom::parallel {

class Connection;

// A tensor on its way. It must not be touched until wait() returns, which throws PeerError when it never will.
class Transfer {
 public:
  class Work;
  Transfer() = default;  // of nothing: there at once
  explicit Transfer(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  void wait();

 private:
  std::shared_ptr<Work> work_;
};

// Another process is gone or does not answer.
class PeerError : public Error {
 public:
  using Error::Error;
};

class GlooGroup : public ProcessGroup {
 public:
  GlooGroup();  // this process alone
  ~GlooGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name_of(int rank) const override;
  std::vector<std::string> gather(const std::string& mine) override;

  // Whether processes that went on before these were ended and started again by torchrun: a run goes on.
  bool restarted() const { return restarts_ > 0; }

  // Contiguous tensors of the CPU. Between two processes and under one tag they arrive in the order that they were
  // sent. Several threads may call these.
  Transfer send(const at::Tensor& tensor, int to, std::uint32_t tag);
  Transfer receive(at::Tensor tensor, int from, std::uint32_t tag);
  // Bytes of tensors that were sent and received so far, gather()'s apart.
  struct Traffic {
    std::int64_t sent = 0, received = 0;
  };
  Traffic traffic() const;
  void count(const Traffic& more);  // of what goes past send() and receive()

  // From now on nobody waits longer than this for another process; before, and again afterwards, hours: one may prepare
  // data, or write a page, while the others wait.
  void set_timeout(std::chrono::seconds timeout);
  void use_long_timeout();

  // Ends this process's part: says `message` once for all processes, of which the first to call it prints it, and makes
  // the others end too. `final`: a start by torchrun would end in the same way, so that it is refused.
  // Returns whether this process is to print the message.
  bool announce(const std::string& message, bool final);

 private:
  friend void init_process_group();
  friend class Transfer::Work;
  friend class Block;
  void meet();  // once connected: who is where
  [[noreturn]] void report_failed_peer(int peer, const std::string& why);

  std::unique_ptr<Connection> connection_;
  int rank_ = 0, size_ = 1, restarts_ = 0;
  std::vector<std::string> hosts_;
};

// This process's; alone until init_process_group().
GlooGroup& default_group();

// Joins the other processes where torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) say that there are
// some; those of this machine share its cores from then on. Throws UserError for variables that make no sense, Error
// where the others cannot be reached, and EndedError where an earlier start came to an end that another start would
// repeat.
void init_process_group();

}  // namespace headroom::parallel
