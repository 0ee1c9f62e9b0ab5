// Inference checks, with small models of several kinds, in float32 and bfloat16.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bits.h"
#include "data/text/text.h"
#include "data/tokens/token_file.h"
#include "foundation/core/random.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/core/files.h"
#include "headroom/decode/engine.h"
#include "headroom/models/compute.h"
#include "headroom/models/language_model.h"
#include "training/tasks/language/language_modelling.h"
#include "training/tasks/language/scoring.h"

namespace headroom::bits {
namespace {

constexpr std::int64_t kContext = 160;

struct Kind {
  std::string name;
  config::ModelOptions options;
};

std::vector<Kind> kinds() {
  config::ModelOptions o;
  o.vocabulary_size = 256;
  o.n_layers = 2;
  o.d_model = 80;
  o.context_length = kContext;
  o.attention.n_heads = 4;
  o.attention.d_head = 20;
  o.attention.position = "rope";
  o.attention.of<config::RoutingOptions>().n_experts = o.mlp.n_experts = 4;
  o.attention.of<config::RoutingOptions>().top_k = o.mlp.top_k = 2;
  o.mlp.d_hidden = 150;
  o.mlp.activation = config::Activation::gelu;
  std::vector<Kind> all = {{"dense", o}};
  config::ModelOptions experts = o;
  experts.attention.projection = "experts";
  experts.attention.position = "relative";
  experts.attention.gate_output = "head";
  experts.mlp.kind = config::MlpKind::experts;
  experts.memory_length = kContext;
  all.push_back({"SwitchHead with memory", experts});
  config::ModelOptions composed = o;
  composed.attention.composition = "dynamic";
  composed.mlp.kind = config::MlpKind::gated;
  composed.tied_embeddings = true;
  all.push_back({"DCMHA", composed});
  return all;
}

std::vector<std::int64_t> random_tokens(std::int64_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<std::int64_t>(random.below(256)));
  }
  return tokens;
}

// Everything that a client of the engine sees: tokens and log-probabilities, as bit patterns.
using Answer = std::vector<std::pair<std::int64_t, std::uint64_t>>;

class Subject {
 public:
  Subject(const Kind& kind, config::Precision precision, const std::filesystem::path& tokens)
      : name_(fmt::format("{}, {}", kind.name, config::name_of(precision))),
        model_(kind.options, 1),
        text_(std::make_shared<const data::TokenFile>(tokens)) {
    config::TrainOptions options;
    options.precision = precision;
    context_ = models::make_context(options, at::kCPU);
    if (context_.compute_dtype) {
      model_.parameters().cache_weights_in(*context_.compute_dtype);
    }
  }

  const std::string& name() const { return name_; }

  std::vector<Answer> serve(const std::vector<decode::Request>& requests, decode::EngineOptions options) const {
    options.context = context_;
    decode::Engine engine(model_, options);
    std::vector<Answer> answers(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      engine.add(
          requests[i],
          [&answers, i](const decode::TokenEvent& event) {
            answers[i].emplace_back(event.id, std::bit_cast<std::uint64_t>(event.logprob));
            return true;
          },
          [](const decode::Ending&) {});
    }
    while (engine.step()) {
    }
    return answers;
  }

  std::vector<Answer> serve_one_by_one(const std::vector<decode::Request>& requests) const {
    return transformed(requests, [&](const decode::Request& request) { return serve({request}, {.max_rows = 1})[0]; });
  }

  std::vector<double> score(const std::vector<tasks::Sequence>& sequences, std::int64_t batch_size) const {
    std::vector<double> all;
    for (const auto& spans :
         tasks::score(model_, sequences, {.batch_size = batch_size, .context = context_}, "bits").spans) {
      all.push_back(spans.front().log_probability);
    }
    return all;
  }

  tasks::Sums evaluate(std::int64_t batch_size) const {
    return tasks::evaluate_text(model_, text_, {.batch_size = batch_size, .context = context_}).sums;
  }

 private:
  std::string name_;
  models::LanguageModel model_;
  std::shared_ptr<const data::TokenFile> text_;
  nn::Context context_;
};

// Requests of several lengths, greedy and sampled, in pairs with a common prefix.
std::vector<decode::Request> requests() {
  std::vector<decode::Request> all;
  for (std::int64_t i = 0; i < 8; ++i) {
    decode::Request request{.prompt = random_tokens(70, 1 + static_cast<std::uint64_t>(i / 2)), .max_tokens = 8 + i};
    const std::vector<std::int64_t> own = random_tokens(1 + 5 * i, 20 + static_cast<std::uint64_t>(i));
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.temperature = i % 3 == 0 ? 0.0 : 0.9;
    request.seed = static_cast<std::uint64_t>(i);
    request.echo = i % 2 == 1;
    request.logprobs = 0;
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<tasks::Sequence> sequences() {
  std::vector<tasks::Sequence> all;
  for (std::int64_t i = 0; i < 11; ++i) {
    const std::vector<std::int64_t> ids = random_tokens(3 + 13 * i, 40 + static_cast<std::uint64_t>(i));
    all.push_back({.tokens = {ids.begin(), ids.end()}, .scored = {{.begin = 1, .end = std::ssize(ids)}}});
  }
  return all;
}

// The log-probability of each sequence as a server computes it, reading prompts in chunks of `chunk` tokens.
std::vector<double> served_scores(const Subject& subject, std::int64_t chunk) {
  std::vector<double> all;
  for (const tasks::Sequence& sequence : sequences()) {
    decode::Request request{.prompt = {sequence.tokens.begin(), sequence.tokens.end()}, .max_tokens = 0};
    request.echo = true;
    request.logprobs = 0;
    const Answer answer = subject.serve({request}, {.prompt_chunk = chunk})[0];
    double sum = 0.0;
    for (std::size_t i = 1; i < answer.size(); ++i) {
      sum += std::bit_cast<double>(answer[i].second);
    }
    all.push_back(sum);
  }
  return all;
}

struct Promise {
  const char *name, *compared;
  std::function<bool(const Subject& subject, std::int64_t threads)> holds;
};

const std::vector<Promise>& promises() {
  static const std::vector<Promise> kPromises = {
      {"alone or in a batch", "8 requests one by one and at once",
       [](const Subject& subject, std::int64_t) {
         return subject.serve_one_by_one(requests()) == subject.serve(requests(), {.max_rows = 8});
       }},
      {"prefix cache", "8 requests, in pairs with a common prefix, with and without the cache",
       [](const Subject& subject, std::int64_t) {
         const auto with = [&](std::int64_t tokens) {
           return subject.serve(requests(), {.max_rows = 1, .prompt_chunk = 32, .prefix_cache_tokens = tokens});
         };
         return with(0) == with(10000);
       }},
      {"prompt in pieces", "log-probabilities of texts read at once, and as prompts in chunks of 128, 7 and 1 tokens",
       [](const Subject& subject, std::int64_t) {
         const std::vector<double> whole = subject.score(sequences(), 1);
         return whole == served_scores(subject, 128) && whole == served_scores(subject, 7) &&
                whole == served_scores(subject, 1);
       }},
      {"batch size of evaluate --task", "log-probabilities of texts in batches of 1, 4 and 16",
       [](const Subject& subject, std::int64_t) {
         const std::vector<double> alone = subject.score(sequences(), 1);
         return alone == subject.score(sequences(), 4) && alone == subject.score(sequences(), 16);
       }},
      {"batch size of evaluate", "loss of a text in batches of 1, 5 and 16",
       [](const Subject& subject, std::int64_t) {
         const tasks::Sums alone = subject.evaluate(1);
         return alone == subject.evaluate(5) && alone == subject.evaluate(16);
       }},
      {"threads", "answers, log-probabilities and loss with one thread and with several",
       [](const Subject& subject, std::int64_t threads) {
         const auto with = [&](std::int64_t n) {
           models::set_threads(n);
           return std::tuple(subject.serve(requests(), {.max_rows = 8}), subject.score(sequences(), 4),
                             subject.evaluate(16));
         };
         return with(1) == with(threads);
       }}};
  return kPromises;
}

// Writes 3,000 random bytes as a token file.
std::filesystem::path write_tokens(const std::filesystem::path& folder) {
  std::string text;
  for (const std::int64_t id : random_tokens(3000, 7)) {
    text += static_cast<char>('a' + id % 26);
  }
  write_text_file(folder / "evaluated.txt", text);
  const auto source = data::open_text({(folder / "evaluated.txt").string()}, {});
  data::write_token_file(*source, *tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "bits"),
                         folder / "evaluated.tokens");
  return folder / "evaluated.tokens";
}

}  // namespace

std::vector<Check> check_inference(const BitsRequest& request) {
  const at::NoGradGuard no_grad;
  const std::filesystem::path tokens = write_tokens(request.folder);
  std::vector<Check> checks = transformed(promises(), [](const Promise& promise) {
    return Check{.name = promise.name, .compared = promise.compared, .equal = true, .different = {}};
  });
  for (const Kind& kind : kinds()) {
    for (const config::Precision precision : {config::Precision::fp32, config::Precision::bf16}) {
      const Subject subject(kind, precision, tokens);
      for (std::size_t i = 0; i < checks.size(); ++i) {
        models::set_threads(request.threads);
        if (!promises()[i].holds(subject, request.threads)) {
          checks[i].equal = false;
          checks[i].different += (checks[i].different.empty() ? "" : "; ") + subject.name();
        }
      }
    }
  }
  models::set_threads(request.threads);
  return checks;
}

}  // namespace headroom::bits
