// A float32 buffer whose ranges are sent between ranks. Ranks on the same machine read each other's memory directly: a
// counter next to the buffer signals that a range is ready, and no data goes through a socket.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gloo_group.h"

namespace headroom::parallel {

class SharedBuffer {
 public:
  struct Shape {
    std::int64_t elements = 0;
    std::uint32_t tags = 1;       // ranges and signals use the tags 0, ..., tags - 1
    std::uint32_t first_tag = 0;  // offset of these tags in the GlooGroup, below 2^30
  };
  struct Range {  // of elements
    std::int64_t begin = 0, end = 0;
    std::uint32_t tag = 0;
    std::int64_t count() const { return end - begin; }
  };

  // Creates a zero-filled buffer. A collective call: all ranks pass the same shape. `group` must outlive the buffer.
  SharedBuffer(GlooGroup& group, const Shape& shape);
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  const at::Tensor& elements() const { return elements_; }
  bool reads_memory_of(int peer) const;
  bool is_read_by(int peer) const;

  // The range must not change until the transfer is complete or, if is_read_by(to), until that rank has read it.
  Transfer send(const Range& range, int to) const;
  // Sends a message without data, identified by its tag.
  Transfer signal(std::uint32_t tag, int to) const;

  // A range or a signal from another rank. Call wait() first; it throws PeerError if the peer fails. take() then
  // returns elements [begin, begin + place.numel()) of the range, either copied into `place` or as a view of the
  // staging tensor.
  class Incoming {
   public:
    void wait();
    at::Tensor take(std::int64_t begin, const at::Tensor& place) const;

   private:
    friend class SharedBuffer;
    const SharedBuffer* buffer_ = nullptr;
    int from_ = 0;
    std::int64_t begin_ = 0;  // in the buffer
    std::uint32_t tag_ = 0;
    std::uint32_t count_ = 0;  // value of the peer's counter that completes this transfer
    // Set if the data comes through a socket.
    at::Tensor staged_;
    std::optional<Transfer> transfer_;
  };
  // `staging` holds the range if the peer's memory cannot be read; otherwise it is unused.
  Incoming receive(const Range& range, int from, const at::Tensor& staging) const;
  Incoming receive_signal(std::uint32_t tag, int from) const;

 private:
  class Memory;
  void wait_for(const Incoming& incoming) const;

  GlooGroup& group_;
  std::uint32_t first_tag_;
  std::unique_ptr<Memory> memory_;
  at::Tensor elements_;
};

}  // namespace headroom::parallel
