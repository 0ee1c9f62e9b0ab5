// A tokenizer as a class of torch.classes.
#pragma once

#include <torch/custom_class.h>

#include <memory>

#include "headroom/tokenizers/tokenizer.h"

namespace headroom::python {

struct Tokenizer : torch::CustomClassHolder {
  explicit Tokenizer(std::shared_ptr<const tokenizers::Tokenizer> with) : engine(std::move(with)) {}
  std::shared_ptr<const tokenizers::Tokenizer> engine;
};

// Before every operator that takes or gives one.
void offer_tokenizer(torch::Library& library);

}  // namespace headroom::python
