// Where parameters and gradients lie in the blocks that processes send each other ranges of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shares.h"

namespace headroom::train {

struct Layout {
  struct Place {  // of a parameter, and the buckets [first, end) that it lies in
    std::int64_t begin = 0, count = 0;
    std::size_t first_bucket = 0, end_bucket = 0;
  };
  struct Bucket {  // numbers of one owner that are sent together, cost::bucket_numbers() at most
    int owner = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t parameters = 0;  // that lie in it
    std::size_t last = 0;         // of those, the one whose gradient comes last
  };
  struct Run {  // all numbers of one owner up to another one's
    int owner = 0;
    std::int64_t begin = 0, end = 0;
  };

  // `pieces`: all of all parameters, in their order.
  Layout(std::vector<Piece> all_pieces, int with_processes);

  // Of the parameter's buckets the one in which a number of the block lies.
  std::size_t bucket_at(std::size_t parameter, std::int64_t number) const;

  std::vector<Piece> pieces;
  std::vector<Place> places;  // by parameter
  std::vector<Bucket> buckets;
  std::vector<Run> runs;
  std::int64_t numbers = 0;  // of the whole block

 private:
  void add(const Piece* first, const Piece* end, std::int64_t most);
  void add_to_buckets(const Piece& piece, std::int64_t begin, std::int64_t most);
};

}  // namespace headroom::train
