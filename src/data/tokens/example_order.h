// The order in which the examples of a set are trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "batches.h"

namespace headroom::data {

// For sets stored in files: an epoch reads the files in random order and shuffles every `together` consecutive
// examples, so that examples read at about the same time lie in few files, as with a shuffle buffer of `together`
// examples.
struct FileShuffle {
  std::vector<std::int64_t> sizes;  // examples per file, in their order
  std::int64_t together = 0;        // 0: shuffle all examples
};

struct OrderOptions {
  std::int64_t examples = 0, batch = 1;
  std::uint64_t seed = 0;
  // Length of an example. If set, examples of similar length share a batch, which reduces padding.
  std::function<std::int64_t(std::int64_t)> length;
  FileShuffle files = {};  // if set, takes precedence over `length`
};

// Every epoch has its own order. With lengths, the examples of kPool consecutive batches are sorted by length, cut into
// batches, and the batches shuffled. Examples left over at the end of an epoch, less than a batch, are not used in it.
class ExampleOrder : public EpochStream {
 public:
  static constexpr std::int64_t kPool = 32;

  // `what` names the set in messages. Throws UserError if it holds less than one batch.
  ExampleOrder(OrderOptions options, std::string what);
  std::vector<std::int64_t> next();  // the examples of the next batch

 private:
  void fill();
  OrderOptions options_;
  DataPosition filled_ = {.epoch = -1, .step = 0};  // position of the first batch in pool_
  std::vector<std::int64_t> pool_;                  // examples, batch after batch
};

}  // namespace headroom::data
