// What models that put examples into classes have in common.
#pragma once

#include "headroom/models/model.h"

namespace headroom::models {

class ClassModel : public Model {
 public:
  // Of the batch's examples, [B, n_classes]. A row gives the same whatever stands in the others and however far it is
  // padded.
  virtual at::Tensor class_logits(const Batch& batch, const nn::Context& context) const = 0;
  // The batch also has "label" [B] int64, the right class: cross-entropy with it, smoothed as the
  // batch asks for, and the balance losses on the way.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;
};

}  // namespace headroom::models
