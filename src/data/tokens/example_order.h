// In what order examples of a set are trained on, in batches that a saved position continues exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "batches.h"

namespace headroom::data {

// A set that lies in files: how many examples each has, in their order. An epoch takes the files in random order, and
// of the examples that follow each other so, `together` at a time are shuffled. What is read at about the same time
// thus lies in a few files, as with a shuffle buffer of `together` examples, none of which is held in memory.
struct RunShuffle {
  std::vector<std::int64_t> sizes;
  std::int64_t together = 0;  // 0: all
};

struct OrderOptions {
  std::int64_t examples = 0, batch = 1;
  std::uint64_t seed = 0;
  // Of an example; given: examples of about one length share a batch, so that little of it is padding.
  std::function<std::int64_t(std::int64_t)> length;
  RunShuffle runs = {};  // given: examples of a file are read together, whatever their lengths
};

// Every epoch has an order of its own. With lengths, the examples of kPool batches in a row are sorted by length before
// they are cut into batches, and these come in random order again. What is left over at the end of an epoch, less than
// a batch, is not used in it.
class ExampleOrder {
 public:
  static constexpr std::int64_t kPool = 32;

  // `what` names the set in messages. Throws UserError when it holds less than one batch.
  ExampleOrder(OrderOptions options, std::string what);

  std::vector<std::int64_t> next();  // a batch's examples; endless
  std::int64_t per_epoch() const { return per_epoch_; }
  DataPosition position() const { return position_; }  // after an epoch's last batch: the next one's beginning
  void seek(DataPosition position);                    // throws UserError when out of range

 private:
  void fill();

  OrderOptions options_;
  std::string what_;
  std::int64_t per_epoch_ = 0;
  DataPosition position_;
  DataPosition filled_ = {.epoch = -1, .step = 0};  // what pool_ was made for: its first batch
  std::vector<std::int64_t> pool_;                  // examples, batch after batch
};

}  // namespace headroom::data
