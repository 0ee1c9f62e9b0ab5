// A client's connection, as cpp-httplib reads and writes it: no client can hold it, or fill memory, for longer than the
// limits say.
#pragma once

#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

namespace headroom::serve {

struct ConnectionLimits {
  double idle_seconds = 75.0;    // between two requests
  double read_seconds = 60.0;    // for a request, from its first byte to its last
  double write_seconds = 30.0;   // for a client to take each MiB of an answer
  std::size_t head = 64 << 10;   // bytes of a request before its body
  std::size_t body = 8U << 20U;  // bytes of a body
};

// Of one thread but for what says otherwise.
class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Phase { idle, reading, working, writing };

  Connection(int socket, const ConnectionLimits& limits);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for a request's first byte. False: there will be none.
  bool await_request();
  void head_is_read();  // the body follows
  void request_is_read() { enter(Phase::working); }
  // The connection ends with the answer under way: what is left of the request is not read.
  void close_after_answer() { last_ = true; }
  bool closes_after_answer() const { return last_; }
  void close();

  // From any thread: whether the client has gone away; what is done and since when; an end to waiting for the client.
  bool gone() const;
  Phase phase() const { return phase_; }
  double seconds_in_phase() const;
  void interrupt();

  bool is_readable() const override;
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* to, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;  // all of it, or -1
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  void enter(Phase phase);
  bool wait_for(short what, Clock::time_point until) const;
  ssize_t fill();
  void hide_range(char* head, std::size_t size);

  const int socket_;
  const ConnectionLimits& limits_;
  std::array<char, 16384> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is in the buffer
  std::size_t allowance_ = 0;        // bytes that may still be read of this part of the request
  Clock::time_point deadline_;       // of the request
  bool in_head_ = false, line_begins_ = false;
  bool last_ = false, broken_ = false;
  std::atomic<Phase> phase_{Phase::idle};
  std::atomic<Clock::rep> since_;
};

}  // namespace headroom::serve
