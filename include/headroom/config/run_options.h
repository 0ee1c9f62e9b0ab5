// What a run needs besides the model: tokenizer, data, training.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/field.h"
#include "headroom/core/implementation.h"

namespace headroom::config {

enum class TokenizerKind { bytes, sentencepiece, words, bpe };
enum class Batching { streams, chunks };
enum class Generator { none, listops, listops_long, composition };  // of examples, where there are no files
enum class Schedule { constant, cosine, linear, inverse_sqrt, one_cycle };
enum class CosinePeriod { after_warmup, steps };
enum class Optimizer { adamw, muon };
enum class Precision { fp32, bf16, automatic };
using headroom::Implementation;

inline constexpr std::int64_t kByteValues = 256;

struct TokenizerOptions {
  TokenizerKind kind = TokenizerKind::sentencepiece;
  std::int64_t vocabulary_size = 8000;  // sentencepiece: pieces to train; words: most frequent kept, 0 = all
  std::string model;                    // an existing tokenizer file; empty: made from the training split
  std::string source_model;             // translation: the same for sources alone, with model.source_vocabulary_size
  bool keep_whitespace = false;         // sentencepiece: runs of blanks and line ends survive a round trip
  bool split_digits = true;             // sentencepiece
  double character_coverage = 0.9995;   // sentencepiece: share of the text's characters with a piece of their own
  // No key: a SentencePiece model in `model` is encoded line by line, as in the run that is resumed.
  bool by_line = false;
  // No key: a byte-level BPE in `model` of fewer tokens gets ids to spare up to so many, those of a given
  // model.vocabulary_size.
  std::int64_t least_size = 0;
};

struct DataOptions {
  std::vector<std::string> train;  // files or patterns; empty: the built-in corpus
  std::vector<std::string> validation;
  std::vector<double> mixture;      // text: weights of the names in `train`, a corpus each; empty: one corpus
  std::string json_field = "text";  // JSON lines: the key of the document
  std::string separator = "\n";     // put between documents
  Batching batching = Batching::streams;
  // What the examples are, and what makes them where train and validation name no files.
  Generator generator = Generator::none;
  std::int64_t generated_train = 0;  // examples; 0: as many as the paper has
  std::int64_t generated_validation = 0;
  std::int64_t generator_seed = 1;
  // classifier: columns of CSV and TSV files, by the name in their first line or by number from 1.
  std::string label_column = "label", text_column = "text", second_column = "text2";
  std::vector<std::string> classes;  // classifier: names of the labels 0, 1, ...
  bool skip_bad_rows = false;
  std::vector<double> pixel_mean, pixel_deviation;  // vision: of each channel, or one for all; empty: 0.5
  std::int64_t augment_shift = 0;                   // vision: pixels by which training pictures are moved at most
  bool augment_flip = false;                        // vision: half of the training pictures are mirrored
  double augment_crop = 0.0;           // vision: smallest share of a picture that is trained on; 0: the middle square
  double centre_crop = 1.0;            // vision: the middle square's share of the shorter side
  std::int64_t randaugment = 0;        // vision: operations of RandAugment on each training picture
  double randaugment_magnitude = 9.0;  // of them, 0 to 30
  double mixup = 0.0;                  // vision: alpha of mixup's Beta distribution; 0: none
  std::int64_t shuffle_buffer = 0;     // vision, shards: pictures in a row that are shuffled together; 0: all
  std::int64_t decode_threads = 0;     // vision: threads that read and change pictures; 0: own_cores()
  std::vector<std::string> train_target;  // translation: files parallel to `train`; empty: `train` holds both sides
  std::vector<std::string> validation_target;       // the same for `validation`
  std::vector<std::int64_t> pair_columns = {1, 2};  // translation, tab-separated: source and target
  double length_ratio = 0.0;       // translation: largest of a training pair's words to the other side's; 0: any
  std::int64_t most_words = 0;     // translation: of a side of a training pair; 0: any
  double validation_share = 0.01;  // text, translation: held out of `train` where `validation` is empty
};

struct TrainOptions {
  std::int64_t steps = 1000;
  std::int64_t batch_size = 16;  // sequences a step, all micro-batches together
  double learning_rate = 1e-3;
  Schedule schedule = Schedule::cosine;
  CosinePeriod cosine_period = CosinePeriod::after_warmup;
  std::int64_t warmup_steps = 0;
  double final_learning_rate = 0.0;  // fraction of learning_rate
  Optimizer optimizer = Optimizer::adamw;
  std::vector<double> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double muon_learning_rate = 0.0;  // muon, of what it moves itself; 0: learning_rate
  double muon_momentum = 0.95;
  double clip_norm = 0.25;  // 0: no clipping
  double label_smoothing = 0.0;
  std::int64_t batch_tokens = 0;  // translation: of a batch at most, padding included; 0: batch_size alone counts
  std::int64_t accumulate = 1;    // micro-batches a step; divides batch_size
  std::int64_t parts = 0;         // sums of gradients a step, added in order across processes; 0: accumulate
  std::int64_t timeout = 600;     // seconds that processes wait for each other after the first step
  std::int64_t verify_every = 0;  // steps between computing a micro-batch on two processes; 0: never
  std::int64_t seed = 1;
  std::int64_t threads = 0;     // 0: own_cores()
  std::string device = "auto";  // auto | cpu | cuda | cuda:<n>
  Precision precision = Precision::automatic;
  Implementation implementation = Implementation::automatic;
  std::int64_t log_every = 10;
  std::int64_t checkpoint_every = kAutomatic;  // 0: only at the end
  std::int64_t keep_checkpoints = 2;
  std::int64_t evaluate_every = kAutomatic;  // 0: only at the end
  std::int64_t evaluate_tokens = 0;          // of the validation split at most; 0: all
  bool keep_best = false;                    // the checkpoint of the best validation as well
  std::int64_t sample_every = 0;             // steps between samples of what the model writes; 0: none
  std::string sample_prompt;                 // empty: the beginning of the validation split
  std::string start_from;    // a run or a checkpoint whose parameters are the first ones; empty: random ones
  std::string start_sha256;  // those parameters' hash; empty: not known yet
};

// How a translation is searched for.
struct DecodingOptions {
  std::int64_t beam = 4;
  double length_penalty = 0.6;
  std::int64_t extra_length = 50;  // tokens that a translation may have more than its source
};

// Whether the name of data is that of a prepared token file, which has its tokenizer within.
bool is_token_file(std::string_view name);

// Every optimizer remembers the running mean of a parameter's gradients; whether it does that of their squares as well.
// `hidden`: the parameter is a matrix from hidden vectors to hidden vectors.
constexpr bool has_second_moment(Optimizer optimizer, bool hidden) {
  return optimizer != Optimizer::muon || !hidden;
}

// Whether an optimizer moves each number of such a parameter by what is known of that number alone: then parts of it
// can be moved apart.
constexpr bool is_elementwise(Optimizer optimizer, bool hidden) {
  return optimizer != Optimizer::muon || !hidden;
}

void describe(Fields& fields, TokenizerOptions& options);
void describe(Fields& fields, DataOptions& options);
void describe(Fields& fields, TrainOptions& options);
void describe(Fields& fields, DecodingOptions& options);

template <>
struct Names<TokenizerKind> {
  static constexpr std::pair<TokenizerKind, std::string_view> kNames[] = {
      {TokenizerKind::bytes, "bytes"},
      {TokenizerKind::sentencepiece, "sentencepiece"},
      {TokenizerKind::words, "words"},
      {TokenizerKind::bpe, "bpe"}};
};
template <>
struct Names<Batching> {
  static constexpr std::pair<Batching, std::string_view> kNames[] = {{Batching::streams, "streams"},
                                                                     {Batching::chunks, "chunks"}};
};
template <>
struct Names<Generator> {
  static constexpr std::pair<Generator, std::string_view> kNames[] = {{Generator::none, "none"},
                                                                      {Generator::listops, "listops"},
                                                                      {Generator::listops_long, "listops_long"},
                                                                      {Generator::composition, "composition"}};
};
template <>
struct Names<CosinePeriod> {
  static constexpr std::pair<CosinePeriod, std::string_view> kNames[] = {{CosinePeriod::after_warmup, "after_warmup"},
                                                                         {CosinePeriod::steps, "steps"}};
};
template <>
struct Names<Schedule> {
  static constexpr std::pair<Schedule, std::string_view> kNames[] = {{Schedule::constant, "constant"},
                                                                     {Schedule::cosine, "cosine"},
                                                                     {Schedule::linear, "linear"},
                                                                     {Schedule::inverse_sqrt, "inverse_sqrt"},
                                                                     {Schedule::one_cycle, "one_cycle"}};
};
template <>
struct Names<Optimizer> {
  static constexpr std::pair<Optimizer, std::string_view> kNames[] = {{Optimizer::adamw, "adamw"},
                                                                      {Optimizer::muon, "muon"}};
};
template <>
struct Names<Precision> {
  static constexpr std::pair<Precision, std::string_view> kNames[] = {
      {Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::automatic, "auto"}};
};
template <>
struct Names<Implementation> {
  static constexpr const auto& kNames = kImplementationNames;
};

}  // namespace headroom::config
