// What models that put examples into classes have in common.
#pragma once

#include "headroom/models/model.h"

namespace headroom::models {

class ClassModel : public Model {
 public:
  // Of the batch's examples, [B, n_classes]. A row's result does not depend on the other rows, nor on how far it is
  // padded.
  virtual at::Tensor class_logits(const Batch& batch, const nn::Context& context) const = 0;
  // The batch also has "label" [B] int64, the right class: cross-entropy with it, smoothed as the
  // batch asks for, and the balance losses of the same pass. Rows that are mixtures also have "other_label" [B] int64
  // and "label_share" [B]: the loss is label_share of that with the label and the rest of that with the other one.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;
};

}  // namespace headroom::models
