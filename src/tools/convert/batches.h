// The text on which a conversion computes activations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert.h"
#include "headroom/models/model.h"

namespace headroom::convert {

struct Batches {
  std::vector<models::Batch> fit, held_out;  // half as many held-out ones
  std::int64_t sequences = 1;                // of a batch
  std::string data;                          // identifies the content of the data
};

// Reads the request's data with the source's tokenizer. Throws UserError naming the option if there is too little text.
Batches read_batches(const ConvertRequest& request, config::Config source);

}  // namespace headroom::convert
