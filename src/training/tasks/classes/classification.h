// Putting sequences and images into classes: cross-entropy and accuracy.
#pragma once

#include "data/text/labelled_text.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Figures of both: "loss" in nats an example, "accuracy" the fraction of examples whose likeliest class is the right
// one; of images in more than five classes also "accuracy_top5", whose right class is among the five likeliest.

// model.kind "classifier". With data.generator, ListOps, whose models are compared by the loss: generated, or from
// files (data/synthetic/listops.h); without, bytes of labelled texts (data/text/labelled_text.h). Rows of a batch are
// padded at their end to the longest of them with model.padding_token, which must be 0.
const Task& sequence_classification();
const Task& listops();

// Whether the examples are expressions of ListOps.
bool is_listops(const config::DataOptions& data);
// How a classifier's texts become tokens, which its checkpoint does not hold: symbols of ListOps, or bytes. ListOps:
// encode() throws UserError for anything but one expression.
std::shared_ptr<const tokenizers::Tokenizer> sequence_tokenizer(const config::Config& config);
// The examples that a classifier is evaluated on, as open_evaluation() of its task has them.
data::LabelledSequences evaluation_sequences(const EvaluationRequest& request);

// model.kind "vision": images in tar shards, folders, idx and CIFAR files (data/images/image_dataset.h). Batches of
// training are read, decoded, changed and mixed while the step before them computes; what comes of it is a function of
// train.seed and the position alone, whatever the number of threads and processes.
const Task& image_classification();

}  // namespace headroom::tasks
