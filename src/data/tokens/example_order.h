// The order in which training reads the examples of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "batches.h"

namespace headroom::data {

// For data sets stored in files. An epoch reads the files in random order and shuffles each block of `together`
// consecutive examples. Examples that are read at about the same time then lie in few files, as with a shuffle buffer
// of `together` examples.
struct FileShuffle {
  std::vector<std::int64_t> sizes;  // number of examples in each file, in the data set's order
  std::int64_t together = 0;        // examples shuffled together; 0: all
};

struct OrderOptions {
  std::int64_t examples = 0, batch = 1;
  std::uint64_t seed = 0;
  // Returns the length of an example. If set, examples of similar length share a batch, which reduces padding.
  std::function<std::int64_t(std::int64_t)> length;
  FileShuffle files = {};  // if set, takes precedence over `length`
};

// Every epoch has its own order. With lengths, the examples of kPool consecutive batches are sorted by length and cut
// into batches, and the batches are shuffled. An incomplete batch at the end of an epoch is dropped.
class ExampleOrder : public EpochStream {
 public:
  static constexpr std::int64_t kPool = 32;

  // `what` names the data set in messages. Throws UserError if it has fewer examples than one batch needs.
  ExampleOrder(OrderOptions options, std::string what);
  std::vector<std::int64_t> next();  // the examples of the next batch

 private:
  void fill();
  OrderOptions options_;
  DataPosition filled_ = {.epoch = -1, .step = 0};  // position of the first batch in pool_
  std::vector<std::int64_t> pool_;                  // examples, batch by batch
};

}  // namespace headroom::data
