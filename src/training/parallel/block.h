// A block of numbers of which processes send each other ranges. Processes of one machine read them out of each other's
// memory, where a word next to the block says that they are there: nothing goes through a socket.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gloo_group.h"

namespace headroom::parallel {

class Block {
 public:
  struct Shape {
    std::int64_t numbers = 0;
    std::uint32_t tags = 1;       // what is sent and said has one of 0, ..., tags - 1
    std::uint32_t first_tag = 0;  // the GlooGroup's tags from here on, below 2^30, are taken
  };
  struct Range {  // of the block
    std::int64_t begin = 0, end = 0;
    std::uint32_t tag = 0;
    std::int64_t count() const { return end - begin; }
  };

  // float32 zeros. Every process makes its own of the same shape at the same time. `world` must outlive it.
  Block(GlooGroup& world, const Shape& shape);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const at::Tensor& numbers() const { return numbers_; }
  bool reads(int peer) const;    // that process's memory
  bool is_read(int peer) const;  // this one's, by that process

  // The range must stay as it is until the transfer is over, and where the peer reads it until the peer has.
  Transfer send(const Range& range, int to) const;
  // A word without numbers; two processes agree by its tag what it means.
  Transfer say(std::uint32_t tag, int to) const;

  // What another process sends or says. wait() comes first, and throws PeerError; then take() gives numbers
  // [begin, begin + place.numel()) of the range, read into `place`, or where they came to in staging.
  class Incoming {
   public:
    void wait();
    at::Tensor take(std::int64_t begin, const at::Tensor& place) const;

   private:
    friend class Block;
    const Block* block_ = nullptr;
    int from_ = 0;
    std::int64_t begin_ = 0;             // in the block
    std::uint32_t tag_ = 0, times_ = 0;  // that it has been said
    at::Tensor numbers_;                 // where it comes through a socket
    std::optional<Transfer> transfer_;   // likewise
  };
  // `staging` has room for the range, and is used where the peer's memory is not read.
  Incoming receive(const Range& range, int from, const at::Tensor& staging) const;
  Incoming hear(std::uint32_t tag, int from) const;

 private:
  class Memory;
  void wait_for(const Incoming& incoming) const;

  GlooGroup& world_;
  std::uint32_t first_tag_;
  std::unique_ptr<Memory> memory_;
  at::Tensor numbers_;
};

}  // namespace headroom::parallel
