#include "headroom/config/config.h"

namespace headroom::config {

void describe(Fields& fields, TokenizerOptions& o) {
  fields.add(
      "kind", o.kind,
      "kind of tokens: bytes, SentencePiece (BPE) pieces, words between blanks, or byte-level BPE as GPT-2 (bpe)");
  fields.add(
      "vocabulary_size", o.vocabulary_size, between(0, 2147483647),
      "sentencepiece, bpe: pieces to train; words: the most frequent ones, 0 for all; bytes: at most 256; if not set: "
      "model.vocabulary_size; if neither is set: all words, all bytes, 8000 pieces");
  fields
      .add("model", o.model,
           "an existing tokenizer: a file of `tokenizer train`, a SentencePiece model, words (.txt, one per line), a "
           "tokenizer.json, a vocab.json with merges.txt beside it, or their folder; \"\": trained on the training "
           "split")
      .path = true;
  fields
      .add("source_model", o.source_model,
           "translation with model.source_vocabulary_size: the same for the sources; \"\": trained on the training "
           "sources, and the target tokenizer on the targets only")
      .path = true;
  fields.only_with("kind", {name_of(TokenizerKind::sentencepiece)}, [&](Fields& own) {
    own.add("keep_whitespace", o.keep_whitespace,
            "sentencepiece: runs of blanks and line ends survive a round trip; without it, lines are normalised (NFKC, "
            "single "
            "blanks)");
    own.add("split_digits", o.split_digits, "sentencepiece: make every digit a separate piece");
    own.add("character_coverage", o.character_coverage, between(0.9, 1),
            "sentencepiece: fraction of the training text's characters that become pieces; others are encoded as "
            "bytes; use less for languages with thousands of characters, such as Chinese and Japanese");
  });
}

namespace {

constexpr const char* kKindOfModel = "model.kind";

void describe_images(Fields& fields, DataOptions& o) {
  fields.add("pixel_mean", o.pixel_mean, {},
             "vision: mean to subtract from each channel (or one for all), for pixels from 0 to 1; []: 0.5");
  fields.add("pixel_std", o.pixel_std, above(0),
             "vision: standard deviation to divide each channel by (or one for all); []: 0.5");
  fields.add("augment_shift", o.augment_shift, between(0, 1 << 16),
             "vision: maximum random shift of training images in pixels, with black margins");
  fields.add("augment_flip", o.augment_flip, "vision: mirror half of the training images horizontally");
  fields.add(
      "augment_crop", o.augment_crop, between(0, 1),
      "vision: train on random crops of at least this fraction of an image's area, with aspect ratios from 3:4 to 4:3, "
      "scaled to model.image_size; 0: the centre crop");
  fields.add("centre_crop", o.centre_crop, above_up_to(0, 1),
             "vision: side of the centre crop as a fraction of the shorter side; it is scaled to model.image_size");
  fields.add("randaugment", o.randaugment, between(0, 16), "vision: RandAugment operations on each training image");
  fields.add("randaugment_magnitude", o.randaugment_magnitude, between(0, 30),
             "vision: strength of RandAugment; 10 is the end of AutoAugment's ranges");
  fields.add(
      "mixup", o.mixup, between(0, 100),
      "vision: mix each training image, and its label, with the one before it in the batch, in a proportion drawn for "
      "each batch from Beta(mixup, mixup); 0: none");
  fields.add("decode_threads", o.decode_threads, between(0, 4096),
             "vision: threads that read, decode and augment images; 0: one per physical core, divided among the ranks "
             "of a machine");
}

void describe_pairs(Fields& fields, DataOptions& o) {
  fields
      .add("train_target", o.train_target, {},
           "translation: files with the targets, line by line; []: train is tab-separated and contains both sides")
      .path = true;
  fields.add("validation_target", o.validation_target, {}, "the same for the validation split").path = true;
  fields.add("pair_columns", o.pair_columns, between(1, 1 << 16),
             "translation: columns of the source and the target in tab-separated files, counted from 1");
  fields.add(
      "max_length_ratio", o.max_length_ratio, between(0, 1e9),
      "translation: exclude training pairs whose numbers of blank-separated words differ by more than this factor, as "
      "Moses's clean-corpus-n.perl; 0: no limit");
  fields.add("max_words", o.max_words, between(0, 1e9),
             "translation: exclude training pairs with more words on either side; 0: no limit");
}

void describe_synthetic(Fields& fields, DataOptions& o) {
  fields.add(
      "synthetic", o.synthetic,
      "language_model: instead of text, generated sequences of which the model predicts the answers; lookup: one "
      "bit of each of several earlier tokens; recall: the values of keys; copying: tokens among noise, in their "
      "order; induction: the token that followed an earlier occurrence; needles: the values of a key that are hidden "
      "in the built-in "
      "corpus; parity, permutations: the product of all tokens so far");
  std::vector<std::string_view> tasks;
  for (const auto& [task, name] : values_of<Synthetic>()) {
    if (task != Synthetic::none) {
      tasks.push_back(name);
    }
  }
  fields.only_with("synthetic", tasks, [&](Fields& own) {
    own.add(
        "synthetic_items", o.synthetic_items, between(0, 256),
        "synthetic: tokens to look up (lookup), pairs (recall), tokens to copy, or values of a key (needles); 0: 4, "
        "8, 8, 4");
    own.add(
        "synthetic_gap", o.synthetic_gap, between(0, 1 << 30),
        "synthetic: recall, induction: distance in tokens from a key, or the first marker, to its query; 0: random");
  });
}

// Adds the fields for examples with labels.
void describe_columns(Fields& fields, DataOptions& o) {
  const std::string_view classifier = name_of(ModelKind::classifier);
  fields.only_with(kKindOfModel, {classifier}, [&](Fields& own) {
    own.add("label_column", o.label_column,
            "classifier: column of the label in CSV and TSV files, by its name in the first line or its number from 1");
    own.add("text_column", o.text_column, "classifier: column of the text");
    own.add("second_column", o.second_column, "classifier, paired: column of the second text");
  });
  fields.only_with(kKindOfModel, {classifier, name_of(ModelKind::vision)}, [&](Fields& own) {
    own.add("classes", o.classes, {},
            "classifier: labels in the order of their classes; []: numbers from 0; vision: names of the folders ([]: "
            "sorted)");
  });
}

}  // namespace

void describe(Fields& fields, DataOptions& o) {
  fields
      .add("train", o.train, {},
           "files or glob patterns: text, .gz, .zst, JSON lines, or prepared token files; []: the built-in corpus")
      .path = true;
  fields.add("validation", o.validation, {}, "the same for the validation split").path = true;
  fields.add("mixture", o.mixture, above_up_to(0, 1e9),
             "language_model: a weight for each entry of train, which becomes a separate corpus: its share of the "
             "training rows; []: one corpus, file after file");
  fields.add("json_field", o.json_field, "JSON lines: the key of a document's text");
  fields.add("separator", o.separator, "text between documents");
  fields.only_with(kKindOfModel, {name_of(ModelKind::language_model)}, [&](Fields& own) {
    own.add("batching", o.batching,
            "streams: each row continues its previous chunk, as memory needs; chunks: independent and shuffled");
  });
  fields.add(
      "order", o.order,
      "text: shuffled: documents (files, JSON lines, parts of long files) in an order drawn with train.seed, and "
      "validation_fraction draws whole documents; given: in the order of the files, and validation_fraction takes "
      "the end");
  fields.add(
      "generator", o.generator,
      "kind of examples, and their generator if train and validation are []; listops: up to 50 symbols (SwitchHead's "
      "analysis); listops_long: 500 to 2000 (Long Range Arena); composition: rows of DCFormer's 74 synthetic tasks, as "
      "text; none: files only");
  fields.add("generated_train", o.generated_train, between(0, 1e9),
             "generator, synthetic: training examples; 0: as many as in the paper; synthetic: endless");
  fields.add("generated_validation", o.generated_validation, between(0, 1e9),
             "the same for validation; synthetic: 0: 512");
  fields.add("generator_seed", o.generator_seed, between(0, 9007199254740992.0),
             "generator, synthetic: seed of the examples, independent of train.seed");
  describe_synthetic(fields, o);
  describe_columns(fields, o);
  fields.add("skip_bad_rows", o.skip_bad_rows, "skip invalid rows and report their number, instead of stopping");
  fields.only_with(kKindOfModel, {name_of(ModelKind::vision)}, [&](Fields& own) { describe_images(own, o); });
  fields.only_with(kKindOfModel, {name_of(ModelKind::encoder_decoder)}, [&](Fields& own) { describe_pairs(own, o); });
  fields.refuse_without(kKindOfModel, {name_of(ModelKind::language_model)}, {"mixture"});
  fields.refuse_without(kKindOfModel, {name_of(ModelKind::vision)}, {"augment_crop", "randaugment", "mixup"});
  fields.refuse_without(kKindOfModel, {name_of(ModelKind::encoder_decoder)}, {"max_length_ratio", "max_words"});
  fields.add("validation_fraction", o.validation_fraction, at_least_below(0, 1),
             "fraction of data.train held out for validation if data.validation is [] (of each corpus of a mixture): "
             "documents "
             "drawn from the whole text (see order), or random pairs (translation)");
}

namespace {

void describe_schedule(Fields& fields, TrainOptions& o) {
  fields.add("steps", o.steps, between(0, 1e12),
             "optimizer steps; 0, with start_from: validate the parameters without training");
  fields.add(
      "seconds", o.seconds, between(0, 1e9),
      "training time: the run first measures its step and sets steps, with warmup_steps in proportion; a resumed "
      "run keeps its number of steps; 0: steps as given");
  fields.add("batch_size", o.batch_size, between(1, 1 << 24), "sequences per step, over all micro-batches and ranks");
  fields.add("learning_rate", o.learning_rate, above_up_to(0, 1e30), "maximum learning rate of the schedule");
  fields.add(
      "schedule", o.schedule,
      "decay of the learning rate from its maximum to its final value; one_cycle: linear from 1/25 of learning_rate to "
      "learning_rate at 30% of the steps (or warmup_steps), then linear to final_learning_rate, as PyTorch's "
      "OneCycleLR "
      "with anneal_strategy=\"linear\" (PyTorch's default is a cosine)");
  fields.only_with("schedule", {name_of(Schedule::cosine)}, [&](Fields& own) {
    own.add("cosine_period", o.cosine_period,
            "cosine: length of the decay; steps: the total number of steps, so that training ends above "
            "final_learning_rate (SwitchHead's large models)");
  });
  fields.add(
      "warmup_steps", o.warmup_steps, between(0, 1e12),
      "steps of linear warm-up, from 1/warmup_steps of learning_rate at the first step to learning_rate at the last: "
      "one step ahead of PyTorch and transformers, whose first step has a rate of 0");
  fields.only_with("schedule",
                   {name_of(Schedule::cosine), name_of(Schedule::linear), name_of(Schedule::inverse_sqrt),
                    name_of(Schedule::one_cycle)},
                   [&](Fields& own) {
                     own.add("final_learning_rate", o.final_learning_rate, between(0, 1),
                             "final learning rate as a fraction of learning_rate");
                   });
}

void describe_optimizer(Fields& fields, TrainOptions& o) {
  fields.add("optimizer", o.optimizer,
             "adamw: Adam with decoupled weight decay; muon: orthogonalised momentum for the matrices of the layers, "
             "adamw for the rest");
  fields.add("betas", o.betas, at_least_below(0, 1),
             "decay rates of the running means of gradients and squared gradients");
  fields.add("epsilon", o.epsilon, above_up_to(0, 1e6), "added to the root of the mean squared gradient");
  fields.add("weight_decay", o.weight_decay, at_least(0), "decoupled weight decay, multiplied by the learning rate");
  fields.add("muon_learning_rate", o.muon_learning_rate, between(0, 1e30),
             "muon: maximum learning rate of the matrices that muon updates, scaled so that updates are about as large "
             "as adamw's; 0: learning_rate");
  fields.add("muon_momentum", o.muon_momentum, at_least_below(0, 1),
             "muon: decay rate of the running mean of gradients");
  fields.add("clip_norm", o.clip_norm, between(0, 1e12),
             "maximum norm of the gradient of all parameters; 0: no clipping");
}

// Adds the fields for batches, gradients and ranks.
void describe_step(Fields& fields, TrainOptions& o) {
  fields.add("label_smoothing", o.label_smoothing, at_least_below(0, 1),
             "encoder_decoder, classifier, vision: probability that is distributed uniformly in the training target");
  fields.add("batch_tokens", o.batch_tokens, between(0, 1 << 30),
             "encoder_decoder: maximum tokens of either side in a batch, padding included; 0: only batch_size limits");
  fields.add("accumulate", o.accumulate, between(1, 1 << 24),
             "micro-batches per step; divides batch_size; does not change dropout and noise");
  fields.add("gradient_accumulators", o.gradient_accumulators, between(0, 1 << 24),
             "gradient accumulators per step, which are reduced in a fixed order whatever the number of ranks; divides "
             "accumulate; 0: one per micro-batch");
  fields.add("timeout", o.timeout, between(1, 1e6), "seconds that a rank waits for another");
  fields.add(
      "verify_every", o.verify_every, between(0, 1e12),
      "every N steps, each rank recomputes a micro-batch of another rank; the run ends if any bit of the gradients "
      "differs; 0: never");
}

void describe_computing(Fields& fields, TrainOptions& o) {
  fields.add("seed", o.seed, between(0, 9007199254740992.0), "seed of initialisation, dropout and shuffling");
  fields.add("threads", o.threads, between(0, 4096), "CPU threads; 0: one per physical core");
  fields.add("device", o.device, "\"cpu\", \"cuda\", \"cuda:1\", or \"auto\": a GPU if torch has one, else the CPU");
  fields.add("precision", o.precision,
             "precision of matrix multiplications: float32, bfloat16 with float32 parameters, or the faster of the two "
             "(auto)");
  fields.add(
      "implementation", o.implementation,
      "implementation of operators: fused if supported, else reference (automatic); reference; fused, else an error");
}

// Adds the fields for logs, checkpoints, evaluations and samples.
void describe_records(Fields& fields, TrainOptions& o) {
  fields.add("log_every", o.log_every, between(1, 1e12), "steps between lines of metrics.jsonl");
  fields
      .add("checkpoint_every", o.checkpoint_every, between(0, 1e12),
           "steps between checkpoints; 0: only at the end; \"auto\": every tenth of the steps and every ten minutes, "
           "or less "
           "often if that took more than 0.6% of the time")
      .automatic = true;
  fields.add("keep_checkpoints", o.keep_checkpoints, between(1, 1e6),
             "number of most recent checkpoints that are kept");
  fields
      .add("evaluate_every", o.evaluate_every, between(0, 1e12),
           "steps between evaluations on the validation split; 0: only at the end; \"auto\": every twentieth of the "
           "steps, "
           "or less often if that took more than 1.1% of the time")
      .automatic = true;
  fields.add("evaluate_tokens", o.evaluate_tokens, between(0, 1e15),
             "maximum predictions of a validation during training, spread evenly over the split; 0: all");
  fields.add("keep_best", o.keep_best,
             "also save the checkpoint with the best validation as checkpoints/best.safetensors");
  fields.add("sample_every", o.sample_every, between(0, 1e12),
             "language_model: steps between generated samples, written to the log and samples.jsonl; 0: none");
  fields.add("sample_prompt", o.sample_prompt,
             "language_model: prompt of the samples; \"\": the beginning of the validation split");
}

}  // namespace

void describe(Fields& fields, TrainOptions& o) {
  describe_schedule(fields, o);
  describe_optimizer(fields, o);
  describe_step(fields, o);
  describe_computing(fields, o);
  describe_records(fields, o);
  const std::string_view translates = name_of(ModelKind::encoder_decoder);
  fields.refuse_without("optimizer", {name_of(Optimizer::muon)}, {"muon_learning_rate", "muon_momentum"});
  fields.refuse_without(kKindOfModel, {translates, name_of(ModelKind::classifier), name_of(ModelKind::vision)},
                        {"label_smoothing"});
  fields.refuse_without(kKindOfModel, {translates}, {"batch_tokens"});
  fields.refuse_without(kKindOfModel, {name_of(ModelKind::language_model)}, {"sample_every"});
  fields
      .add("start_from", o.start_from,
           "a run, a checkpoint or a file of `headroom import`: training starts at step 0 with its parameters and "
           "tokenizer; keys of model that are not set are the checkpoint's; \"\": random parameters")
      .path = true;
  fields.add("start_sha256", o.start_sha256,
             "start_from: the required hash of its parameters (parameters_sha256); written by the run");
  fields
      .add("teacher", o.teacher,
           "language_model: run folder or checkpoint of a model with the same tokenizer from whose predictions the "
           "model learns as well (distillation); \"\": none")
      .path = true;
  fields.add("teacher_sha256", o.teacher_sha256, "teacher: the required hash of its parameters; written by the run");
  fields.add("teacher_weight", o.teacher_weight, above_up_to(0, 1),
             "teacher: weight of the divergence KL(teacher, model) in the loss; the cross-entropy has weight 1 - "
             "teacher_weight");
  fields.add("teacher_temperature", o.teacher_temperature, above(0),
             "teacher: divides the logits of both models in the divergence, which is multiplied by its square");
}

void describe(Fields& fields, DecodingOptions& o) {
  fields.only_with(kKindOfModel, {name_of(ModelKind::encoder_decoder)}, [&](Fields& own) {
    own.add("beam_size", o.beam_size, between(1, 1024), "hypotheses of the beam search; 1: greedy decoding");
    own.add("length_penalty", o.length_penalty, between(-10, 10),
            "log-probabilities are divided by the output length to this power");
    own.add("extra_length", o.extra_length, between(0, 1 << 24),
            "maximum output length minus source length, in tokens");
  });
}

void describe(Fields& fields, Config& config) {
  fields.table("model", config.model, "the network");
  fields.table("tokenizer", config.tokenizer, "text to tokens");
  fields.table("data", config.data, "training and validation data");
  fields.table("train", config.train, "training");
  fields.table("decoding", config.decoding, "beam search of translations");
}

}  // namespace headroom::config
