#include "headroom/config/config.h"

namespace headroom::config {

void describe(Fields& fields, TokenizerOptions& o) {
  fields.add(
      "kind", o.kind,
      "a token is a byte, a SentencePiece (BPE) piece, a word between blanks, or a merge of bytes as GPT-2's (bpe)");
  fields.add(
      "vocabulary_size", o.vocabulary_size, between(0, 2147483647),
      "sentencepiece, bpe: pieces to train; words: most frequent ones kept, 0 for all; bytes: at most 256; not given: "
      "model.vocabulary_size; neither: all words, all bytes, 8000 pieces");
  fields.add_path(
      "model", o.model,
      "an existing tokenizer: a file of `tokenizer train`, a SentencePiece model, words (.txt, one a line), a "
      "tokenizer.json, a vocab.json with merges.txt next to it, or their folder; \"\": the tokenizer is made from the "
      "training split");
  fields.add_path(
      "source_model", o.source_model,
      "translation with model.source_vocabulary_size: the same of the sources; \"\": made from the training "
      "sources, and the other one from their translations alone");
  fields.add("keep_whitespace", o.keep_whitespace,
             "sentencepiece: runs of blanks and line ends survive a round trip (source code)");
  fields.add("split_digits", o.split_digits, "sentencepiece: every digit is a piece of its own");
  fields.add("character_coverage", o.character_coverage, between(0.9, 1),
             "sentencepiece: share of the training text's characters that get a piece of their own, the others being "
             "spelled in bytes; less where there are thousands of them, as in Chinese or Japanese");
}

namespace {

void describe_pictures(Fields& fields, DataOptions& o) {
  fields.add("pixel_mean", o.pixel_mean, {},
             "vision: mean of each channel (or one for all) to subtract, pixels being 0 to 1; []: 0.5");
  fields.add("pixel_deviation", o.pixel_deviation, above(0),
             "vision: standard deviation of each channel (or one for all) to divide by; []: 0.5");
  fields.add("augment_shift", o.augment_shift, between(0, 1 << 16),
             "vision: training pictures are moved by up to so many pixels each way, with black at the margin");
  fields.add("augment_flip", o.augment_flip, "vision: half of the training pictures are mirrored, left to right");
  fields.add(
      "augment_crop", o.augment_crop, between(0, 1),
      "vision: training sees a random part of each picture, of at least this share of its area and 3:4 to 4:3 in "
      "shape, scaled to model.image_size; 0: the middle square");
  fields.add("centre_crop", o.centre_crop, above_up_to(0, 1),
             "vision: share of the shorter side that the middle square has, which is scaled to model.image_size");
  fields.add("randaugment", o.randaugment, between(0, 16),
             "vision: operations of RandAugment that are drawn for each training picture");
  fields.add("randaugment_magnitude", o.randaugment_magnitude, between(0, 30),
             "vision: how strong they are; 10 is the end of AutoAugment's ranges");
  fields.add(
      "mixup", o.mixup, between(0, 100),
      "vision: each training picture is mixed with the one before it in the batch, and their labels likewise, in "
      "a proportion that is drawn for a batch from Beta(mixup, mixup); 0: none");
  fields.add("shuffle_buffer", o.shuffle_buffer, between(0, 1e12),
             "vision: an epoch reads its shards in random order, and so many pictures in a row are shuffled with each "
             "other; 0: all pictures with all others");
  fields.add("decode_threads", o.decode_threads, between(0, 4096),
             "vision: threads that read, decode and change pictures; 0: one a physical core, shared out among the "
             "processes of a machine");
}

void describe_pairs(Fields& fields, DataOptions& o) {
  fields.add_paths(
      "train_target", o.train_target,
      "translation: files whose lines translate those of train; []: train is tab-separated and holds both sides");
  fields.add_paths("validation_target", o.validation_target, "the same for the validation split");
  fields.add("pair_columns", o.pair_columns, between(1, 1 << 16),
             "translation: columns of the source and the target in tab-separated files, counted from 1");
  fields.add(
      "length_ratio", o.length_ratio, between(0, 1e9),
      "translation: pairs of which one side has more than so many times the words of the other, words being what "
      "blanks separate, are left out of training, as by Moses's clean-corpus-n.perl; 0: none");
  fields.add("most_words", o.most_words, between(0, 1e9),
             "translation: pairs with a side of more words are left out of training; 0: none");
}

}  // namespace

void describe(Fields& fields, DataOptions& o) {
  fields.add_paths(
      "train", o.train,
      "files or patterns: text, .gz, .zst, JSON lines or one prepared token file; []: the built-in corpus");
  fields.add_paths("validation", o.validation, "the same for the validation split");
  fields.add("mixture", o.mixture, above_up_to(0, 1e9),
             "language_model: weights of the names in train, each of which is then a corpus of its own: what share of "
             "the training rows comes from it; []: one corpus, file after file");
  fields.add("json_field", o.json_field, "JSON lines: the key whose value is the document's text");
  fields.add("separator", o.separator, "text put between documents");
  fields.add("batching", o.batching,
             "streams: each row continues where its last chunk ended (carries memory); chunks: independent, shuffled");
  fields.add(
      "generator", o.generator,
      "what examples are, and what makes them where train and validation name no files; listops: up to 50 symbols "
      "(SwitchHead's analysis), listops_long: 500 to 2000 (Long Range Arena); composition: rows of DCFormer's 74 "
      "tasks, as text; none: files alone");
  fields.add("generated_train", o.generated_train, between(0, 1e9),
             "generator: examples for training; 0: as many as the paper has");
  fields.add("generated_validation", o.generated_validation, between(0, 1e9), "generator: the same for validation");
  fields.add("generator_seed", o.generator_seed, between(0, 9007199254740992.0),
             "generator: seed of the examples, which do not depend on train.seed");
  fields.add("label_column", o.label_column,
             "classifier: column of the label in CSV and TSV files, by its name in the first line or by number from 1; "
             "vision: key of the label in the JSON members of shards");
  fields.add("text_column", o.text_column, "classifier: column of the text");
  fields.add("second_column", o.second_column, "classifier, paired: column of the second text");
  fields.add("classes", o.classes, {},
             "classifier: the labels' names in the order of their classes; []: labels are numbers from 0; vision: the "
             "names of the folders, []: sorted, and of the labels in shards, []: numbers from 0");
  fields.add("skip_bad_rows", o.skip_bad_rows,
             "leave out rows that cannot be used and say how many, instead of stopping");
  describe_pictures(fields, o);
  describe_pairs(fields, o);
  fields.add(
      "validation_share", o.validation_share, at_least_below(0, 1),
      "share held out of data.train for validation where data.validation is []: the last lines of text (of each corpus "
      "of a mixture), the last tokens of a token file, pairs drawn at random (translation)");
}

namespace {

void describe_schedule(Fields& fields, TrainOptions& o) {
  fields.add("steps", o.steps, between(1, 1e12), "optimizer steps");
  fields.add("batch_size", o.batch_size, between(1, 1 << 24), "sequences a step, all micro-batches together");
  fields.add("learning_rate", o.learning_rate, above_up_to(0, 1e30), "highest learning rate of the schedule");
  fields.add(
      "schedule", o.schedule,
      "how the learning rate goes from its highest to its final value; one_cycle: in straight lines from a 25th of "
      "learning_rate to all of it after 0.3 of the steps (or warmup_steps) and on to final_learning_rate, as "
      "PyTorch's OneCycleLR with anneal_strategy \"linear\", where its default is a cosine");
  fields.add("cosine_period", o.cosine_period,
             "cosine: the fall takes the steps after the warm-up, or as long as all steps, so that the last one is "
             "above final_learning_rate (SwitchHead's large models)");
  fields.add(
      "warmup_steps", o.warmup_steps, between(0, 1e12),
      "steps during which the rate rises linearly, from 1/warmup_steps of learning_rate at the first to all of it "
      "at the last: one step ahead of PyTorch's and transformers' warm-ups, whose first step has a rate of 0");
  fields.add("final_learning_rate", o.final_learning_rate, between(0, 1),
             "rate at the end as a fraction of learning_rate");
}

void describe_optimizer(Fields& fields, TrainOptions& o) {
  fields.add("optimizer", o.optimizer,
             "Adam with decoupled weight decay; or muon: the layers' projections and MLPs by momentum whose singular "
             "values are equalised, the rest as adamw");
  fields.add("betas", o.betas, at_least_below(0, 1), "decay of the running means of gradient and squared gradient");
  fields.add("epsilon", o.epsilon, above_up_to(0, 1e6), "added to the root of the squared gradients' mean");
  fields.add("weight_decay", o.weight_decay, at_least(0), "decoupled weight decay, multiplied by the learning rate");
  fields.add("muon_learning_rate", o.muon_learning_rate, between(0, 1e30),
             "muon: highest learning rate of the matrices that it moves itself, whose updates are as large as adamw's "
             "usually are; 0: learning_rate");
  fields.add("muon_momentum", o.muon_momentum, at_least_below(0, 1), "muon: decay of the running mean of gradients");
  fields.add("clip_norm", o.clip_norm, between(0, 1e12),
             "largest norm of the gradient, all parameters together; 0: no clipping");
}

// What a step is made of, and by which processes.
void describe_step(Fields& fields, TrainOptions& o) {
  fields.add("label_smoothing", o.label_smoothing, at_least_below(0, 1),
             "encoder_decoder, classifier, vision: share of the target's probability that training spreads evenly");
  fields.add("batch_tokens", o.batch_tokens, between(0, 1 << 30),
             "encoder_decoder: tokens of either side in a batch at most, padding included; 0: only batch_size counts");
  fields.add("accumulate", o.accumulate, between(1, 1 << 24),
             "micro-batches a step; divides batch_size; dropout and noise do not depend on it");
  fields.add("parts", o.parts, between(0, 1 << 24),
             "sums of gradients a step, which are added in their order whichever process they come from; divides "
             "accumulate; 0: one a micro-batch");
  fields.add("timeout", o.timeout, between(1, 1e6),
             "seconds that one of several processes waits for another one after the first step");
  fields.add("verify_every", o.verify_every, between(0, 1e12),
             "steps between those of which each process computes a micro-batch of another one again: gradients that "
             "differ in a bit end the run; 0: never");
}

void describe_computing(Fields& fields, TrainOptions& o) {
  fields.add("seed", o.seed, between(0, 9007199254740992.0), "seed of parameters, dropout and shuffling");
  fields.add("threads", o.threads, between(0, 4096), "CPU threads; 0: one a physical core");
  fields.add("device", o.device,
             "where to compute: \"cpu\", \"cuda\", \"cuda:1\", or a GPU where torch has one, else the CPU (\"auto\")");
  fields.add("precision", o.precision,
             "of the products: float32, bfloat16 with float32 parameters, or whichever is faster here (auto)");
  fields.add("implementation", o.implementation,
             "of the operators: fused where they apply (automatic), plain reference, or fused or an error");
}

// What a run writes, and how often.
void describe_records(Fields& fields, TrainOptions& o) {
  fields.add("log_every", o.log_every, between(1, 1e12), "steps between lines of metrics.jsonl");
  fields.add_or_auto(
      "checkpoint_every", o.checkpoint_every, between(0, 1e12),
      "steps between checkpoints; 0: only at the end; \"auto\": at every tenth of the steps and every ten "
      "minutes, or less often where that would take more than 0.6% of the time");
  fields.add("keep_checkpoints", o.keep_checkpoints, between(1, 1e6), "newest checkpoints kept");
  fields.add_or_auto(
      "evaluate_every", o.evaluate_every, between(0, 1e12),
      "steps between evaluations on the validation split; 0: only at the end; \"auto\": at every twentieth "
      "of the steps, or less often where that would take more than 1.1% of the time");
  fields.add("evaluate_tokens", o.evaluate_tokens, between(0, 1e15),
             "predictions that an evaluation while training makes at most, from the beginning on; 0: all");
  fields.add("keep_best", o.keep_best,
             "keep the checkpoint whose validation was the best of the run, as checkpoints/best.safetensors");
  fields.add(
      "sample_every", o.sample_every, between(0, 1e12),
      "language_model: steps between samples of what the model writes, in the log and in samples.jsonl; 0: none");
  fields.add("sample_prompt", o.sample_prompt,
             "language_model: what samples begin with; \"\": the beginning of the validation split");
}

}  // namespace

void describe(Fields& fields, TrainOptions& o) {
  describe_schedule(fields, o);
  describe_optimizer(fields, o);
  describe_step(fields, o);
  describe_computing(fields, o);
  describe_records(fields, o);
  fields.add_path("start_from", o.start_from,
                  "a run, a checkpoint or what `headroom import` wrote: training begins at step 0 with its parameters "
                  "and tokenizer; keys of model that are not given are the checkpoint's; \"\": random parameters");
  fields.add("start_sha256", o.start_sha256,
             "start_from: the hash that its parameters must have; written by the run (parameters_sha256)");
}

void describe(Fields& fields, DecodingOptions& o) {
  fields.add("beam", o.beam, between(1, 1024), "hypotheses kept side by side; 1: always the likeliest token");
  fields.add("length_penalty", o.length_penalty, between(-10, 10),
             "a translation's log-probability is divided by its length to this power");
  fields.add("extra_length", o.extra_length, between(0, 1 << 24),
             "tokens that a translation may have more than its source");
}

void describe(Fields& fields, Config& config) {
  fields.table("model", config.model, "the network");
  fields.table("tokenizer", config.tokenizer, "text to tokens");
  fields.table("data", config.data, "what is read");
  fields.table("train", config.train, "how it is trained");
  fields.table("decoding", config.decoding, "how translations are searched for");
}

}  // namespace headroom::config
