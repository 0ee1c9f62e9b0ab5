// The options of a run other than the model: tokenizer, data, training, decoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/field.h"
#include "headroom/core/implementation.h"

namespace headroom::config {

enum class TokenizerKind { bytes, sentencepiece, words, bpe };
template <>
inline constexpr EnumNames kEnumNames<TokenizerKind> = {"bytes", "sentencepiece", "words", "bpe"};
enum class Batching { streams, chunks };
template <>
inline constexpr EnumNames kEnumNames<Batching> = {"streams", "chunks"};
enum class Order { shuffled, given };  // of the documents of a text
template <>
inline constexpr EnumNames kEnumNames<Order> = {"shuffled", "given"};
enum class Generator { none, listops, listops_long, composition };  // generators of synthetic examples
template <>
inline constexpr EnumNames kEnumNames<Generator> = {"none", "listops", "listops_long", "composition"};
// Sequences of tokens that measure recall and state (data/synthetic/sequences.h).
enum class Synthetic { none, lookup, recall, copying, induction, needles, parity, permutations };
template <>
inline constexpr EnumNames kEnumNames<Synthetic> = {"none",      "lookup",  "recall", "copying",
                                                    "induction", "needles", "parity", "permutations"};
enum class Schedule { constant, cosine, linear, inverse_sqrt, one_cycle };
template <>
inline constexpr EnumNames kEnumNames<Schedule> = {"constant", "cosine", "linear", "inverse_sqrt", "one_cycle"};
enum class CosinePeriod { after_warmup, steps };
template <>
inline constexpr EnumNames kEnumNames<CosinePeriod> = {"after_warmup", "steps"};
enum class Optimizer { adamw, muon };
template <>
inline constexpr EnumNames kEnumNames<Optimizer> = {"adamw", "muon"};
enum class Precision { fp32, bf16, automatic };
template <>
inline constexpr EnumNames kEnumNames<Precision> = {"fp32", "bf16", "auto"};
using headroom::Implementation;
template <>
inline constexpr EnumNames kEnumNames<Implementation> = {"automatic", "reference", "fused"};

inline constexpr std::int64_t kByteValues = 256;

struct TokenizerOptions {
  TokenizerKind kind = TokenizerKind::sentencepiece;
  std::int64_t vocabulary_size = 8000;  // sentencepiece: pieces to train; words: the most frequent ones, 0: all
  std::string model;                    // path of an existing tokenizer; empty: train one on the training split
  std::string source_model;             // translation: as `model`, for the sources, with model.source_vocabulary_size
  bool keep_whitespace = true;          // sentencepiece: runs of spaces and line ends survive a round trip
  bool split_digits = true;             // sentencepiece
  double character_coverage = 0.9995;   // sentencepiece: fraction of the text's characters that become pieces
  // Not a TOML key. Pad the byte-level BPE of `model` with unused ids to this size, which is model.vocabulary_size.
  std::int64_t min_size = 0;
};

struct DataOptions {
  std::vector<std::string> train;  // files or glob patterns; empty: the built-in corpus
  std::vector<std::string> validation;
  std::vector<double> mixture;      // text: one weight per entry of `train`; empty: a single corpus
  std::string json_field = "text";  // JSON lines: key of the document
  std::string separator = "\n";     // inserted between documents
  Batching batching = Batching::streams;
  Order order = Order::shuffled;  // text
  // Kind of the examples, and their generator if train and validation are empty.
  Generator generator = Generator::none;
  std::int64_t generated_train = 0;  // number of examples; 0: as many as in the paper
  std::int64_t generated_validation = 0;
  std::int64_t generator_seed = 1;
  Synthetic synthetic = Synthetic::none;
  std::int64_t synthetic_items = 0;  // 0: the task's default
  std::int64_t synthetic_gap = 0;    // tokens between a pair and its query; 0: random
  // classifier: columns of CSV and TSV files, by name in the first line or by number, counted from 1.
  std::string label_column = "label", text_column = "text", second_column = "text2";
  std::vector<std::string> classes;  // classifier: names of the labels 0, 1, ...
  bool skip_bad_rows = false;
  std::vector<double> pixel_mean, pixel_std;  // vision: one value per channel, or one for all; empty: 0.5
  std::int64_t augment_shift = 0;             // vision: maximum shift of training images in pixels
  bool augment_flip = false;                  // vision: mirror half of the training images
  double augment_crop = 0.0;                  // vision: minimum area fraction of random crops; 0: centre crop
  double centre_crop = 1.0;                   // vision: side of the centre crop as a fraction of the shorter side
  std::int64_t randaugment = 0;               // vision: RandAugment operations per training image
  double randaugment_magnitude = 9.0;         // vision: 0 to 30
  double mixup = 0.0;                         // vision: alpha of the Beta distribution; 0: no mixup
  std::int64_t decode_threads = 0;            // vision: threads that decode and augment images; 0: own_cores()
  std::vector<std::string> train_target;      // translation: files parallel to `train`; empty: `train` holds both sides
  std::vector<std::string> validation_target;       // translation: as train_target, for `validation`
  std::vector<std::int64_t> pair_columns = {1, 2};  // translation: source and target columns of tab-separated files
  double max_length_ratio = 0.0;                    // translation: maximum ratio of a pair's word counts; 0: no limit
  std::int64_t max_words = 0;                       // translation: maximum words on a side of a pair; 0: no limit
  double validation_fraction = 0.01;                // text, translation: held out of `train` if `validation` is empty
};

struct TrainOptions {
  std::int64_t steps = 1000;
  double seconds = 0.0;          // 0: train.steps; else as many steps as this time allows
  std::int64_t batch_size = 16;  // sequences per step, over all micro-batches
  double learning_rate = 1e-3;
  Schedule schedule = Schedule::cosine;
  CosinePeriod cosine_period = CosinePeriod::after_warmup;
  std::int64_t warmup_steps = 0;
  double final_learning_rate = 0.0;  // as a fraction of learning_rate
  Optimizer optimizer = Optimizer::adamw;
  std::vector<double> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double muon_learning_rate = 0.0;  // for the matrices that muon updates; 0: learning_rate
  double muon_momentum = 0.95;
  double clip_norm = 0.25;  // 0: no clipping
  double label_smoothing = 0.0;
  std::int64_t batch_tokens = 0;  // translation: maximum per batch, padding included; 0: only batch_size limits
  std::int64_t accumulate = 1;    // micro-batches per step; divides batch_size
  std::int64_t gradient_accumulators = 0;  // per step, reduced in order across ranks; 0: accumulate
  std::int64_t timeout = 600;              // seconds that ranks wait for each other
  std::int64_t verify_every = 0;           // steps between checks that two ranks compute equal gradients; 0: never
  std::int64_t seed = 1;
  std::int64_t threads = 0;     // 0: own_cores()
  std::string device = "auto";  // auto | cpu | cuda | cuda:<n>
  Precision precision = Precision::automatic;
  Implementation implementation = Implementation::automatic;
  std::int64_t log_every = 10;
  std::int64_t checkpoint_every = kAutomatic;  // 0: only at the end
  std::int64_t keep_checkpoints = 2;
  std::int64_t evaluate_every = kAutomatic;  // 0: only at the end
  std::int64_t evaluate_tokens = 0;          // maximum number of validation tokens; 0: all
  bool keep_best = false;                    // also keep the checkpoint with the best validation
  std::int64_t sample_every = 0;             // steps between generated samples; 0: none
  std::string sample_prompt;                 // empty: taken from the validation split
  std::string start_from;                    // run or checkpoint with the initial parameters; empty: random
  std::string start_sha256;                  // hash of those parameters; empty: unknown
  std::string teacher;                       // run or checkpoint whose distribution is learnt as well; empty: none
  std::string teacher_sha256;                // hash of its parameters; empty: unknown
  double teacher_weight = 0.5;               // of the divergence from the teacher; the cross-entropy has the rest
  double teacher_temperature = 1.0;          // divides both models' logits
};

// Options of beam search, for translations.
struct DecodingOptions {
  std::int64_t beam_size = 4;
  double length_penalty = 0.6;
  std::int64_t extra_length = 50;  // maximum output length minus source length, in tokens
};

// Returns whether a data file is a prepared token file, judging by its name. Such files contain their tokenizer.
bool is_token_file(std::string_view name);

// Returns whether the optimizer stores a running mean of squared gradients in addition to the mean of gradients.
// `hidden`: the parameter is a matrix that maps hidden vectors to hidden vectors.
constexpr bool has_second_moment(Optimizer optimizer, bool hidden) {
  return optimizer != Optimizer::muon || !hidden;
}

// Returns whether the optimizer updates the parameter elementwise, so that its shards can be updated independently.
constexpr bool is_elementwise(Optimizer optimizer, bool hidden) {
  return optimizer != Optimizer::muon || !hidden;
}

void describe(Fields& fields, TokenizerOptions& options);
void describe(Fields& fields, DataOptions& options);
void describe(Fields& fields, TrainOptions& options);
void describe(Fields& fields, DecodingOptions& options);

}  // namespace headroom::config
