// Tests that a request's result does not depend on other requests.
#include "headroom/decode/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "engine/decode/row.h"
#include "engine/models/small_models.h"

namespace headroom::decode::engine_test {

using Tokens = std::vector<std::int64_t>;

struct Heard {
  std::vector<TokenEvent> events;
  std::vector<Ending> endings;
};

Tokens random_tokens(std::int64_t n, std::int64_t vocabulary, std::uint64_t seed) {
  Random random(seed);
  Tokens tokens;
  while (std::ssize(tokens) < n) {
    tokens.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
  }
  return tokens;
}

Engine::Handle add(Engine& engine, const Request& request, Heard& heard) {
  return engine.add(
      request,
      [&heard](const TokenEvent& event) {
        EXPECT_TRUE(heard.endings.empty());
        heard.events.push_back(event);
        return true;
      },
      [&heard](const Ending& ending) { heard.endings.push_back(ending); });
}

// Returns the events of each request; request i is added after `apart` * i steps.
std::vector<Heard> serve(const models::LanguageModel& model, const std::vector<Request>& requests,
                         const EngineOptions& options, std::int64_t apart = 0) {
  Engine engine(model, options);
  std::vector<Heard> heard(requests.size());
  std::size_t next = 0;
  for (std::int64_t step = 0;; ++step) {
    while (next < requests.size() && step >= apart * static_cast<std::int64_t>(next)) {
      add(engine, requests[next], heard[next]);
      ++next;
    }
    if (!engine.step() && next == requests.size()) {
      break;
    }
  }
  EXPECT_EQ(engine.counts().running, 0);
  EXPECT_EQ(engine.counts().finished, std::ssize(requests));
  return heard;
}

void expect_same(const Heard& got, const Heard& expected, const std::string& what) {
  ASSERT_EQ(got.events.size(), expected.events.size()) << what;
  for (std::size_t i = 0; i < got.events.size(); ++i) {
    const TokenEvent &a = got.events[i], &b = expected.events[i];
    ASSERT_EQ(a.id, b.id) << what << ", token " << i;
    ASSERT_EQ(a.is_prompt, b.is_prompt) << what;
    ASSERT_TRUE(a.logprob == b.logprob || (std::isnan(a.logprob) && std::isnan(b.logprob))) << what << ", token " << i;
    ASSERT_EQ(a.top.size(), b.top.size()) << what;
    for (std::size_t t = 0; t < a.top.size(); ++t) {
      ASSERT_EQ(a.top[t].id, b.top[t].id) << what;
      ASSERT_EQ(a.top[t].logprob, b.top[t].logprob) << what;
    }
    ASSERT_EQ(a.routes.size(), b.routes.size()) << what;
    for (std::size_t r = 0; r < a.routes.size(); ++r) {
      ASSERT_EQ(a.routes[r].name, b.routes[r].name) << what;
      ASSERT_EQ(a.routes[r].experts, b.routes[r].experts) << what;
    }
  }
}

// Returns sampled, greedy, scored and routed requests; prompts differ in length, and some share a prefix.
std::vector<Request> company(std::int64_t vocabulary) {
  std::vector<Request> all;
  const Tokens common = random_tokens(11, vocabulary, 99);
  for (std::int64_t i = 0; i < 8; ++i) {
    Request r;
    r.prompt = random_tokens(1 + i * 7 % 20, vocabulary, static_cast<std::uint64_t>(i));
    if (i % 3 == 1) {
      r.prompt.insert(r.prompt.begin(), common.begin(), common.end());
    }
    r.max_tokens = 3 + i * 3 % 8;
    r.temperature = i % 4 == 0 ? 0.0 : 0.7 + 0.1 * static_cast<double>(i);
    r.top_k = i % 4 == 1 ? 7 : 0;
    r.top_p = i % 4 == 2 ? 0.8 : 1.0;
    r.seed = static_cast<std::uint64_t>(100 + i);
    r.echo = i % 2 == 1;
    r.logprobs = i % 3 - 1;
    r.routing = i == 3 || i == 6;
    all.push_back(std::move(r));
  }
  return all;
}

// The result must not depend on the batch, the prefix cache or the number of threads.
TEST(Engine, ARequestEqualsItsResultAloneBitForBit) {
  const int before = at::get_num_threads();
  for (const auto& [name, options] : testing::language_models()) {
    const models::LanguageModel model(options, 3);
    const std::vector<Request> requests = company(options.vocabulary_size);
    EngineOptions one{.max_rows = 1, .prompt_chunk = 4};
    std::vector<Heard> alone;
    for (const Request& request : requests) {
      alone.push_back(serve(model, {request}, one)[0]);
      EXPECT_EQ(alone.back().endings.size(), 1U);
      EXPECT_EQ(alone.back().endings[0].reason, Finish::length);
      EXPECT_EQ(std::ssize(alone.back().events), request.max_tokens + (request.echo ? std::ssize(request.prompt) : 0));
    }
    for (const std::int64_t rows : {3, 8}) {
      at::set_num_threads(static_cast<int>(rows % 3 + 1));
      for (const std::int64_t prefix : {0, 40, 1000}) {
        const EngineOptions all{.max_rows = rows, .prompt_chunk = 4, .prefix_cache_tokens = prefix};
        const std::vector<Heard> together = serve(model, requests, all, /*apart=*/rows == 3 ? 2 : 0);
        for (std::size_t i = 0; i < requests.size(); ++i) {
          expect_same(together[i], alone[i], fmt::format("{}, {} rows, request {}", name, rows, i));
        }
      }
    }
    at::set_num_threads(before);
  }
}

// Prompts of equal length must be read in one pass, in fewer steps, with the same results.
TEST(Engine, PromptsOfOneLengthAreReadTogether) {
  for (const auto& [name, options] : testing::language_models()) {
    const models::LanguageModel model(options, 3);
    std::vector<Request> requests;
    for (std::int64_t i = 0; i < 6; ++i) {
      Request r{.prompt = random_tokens(i == 2 ? 9 : 13, options.vocabulary_size, static_cast<std::uint64_t>(i)),
                .max_tokens = 4 + i,
                .temperature = 0.0};
      r.logprobs = 1;
      requests.push_back(std::move(r));
    }
    requests[4].echo = true;  // scored prompts are read alone
    for (const std::int64_t prefix : {0, 100}) {
      const EngineOptions wide{.max_rows = 6, .prompt_chunk = 64, .prompt_share = 0.0, .prefix_cache_tokens = prefix};
      const std::vector<Heard> together = serve(model, requests, wide);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        expect_same(together[i], serve(model, {requests[i]}, wide)[0], fmt::format("{}, request {}", name, i));
      }
      Engine engine(model, wide);
      std::vector<Heard> heard(requests.size());
      for (std::size_t i = 0; i < requests.size(); ++i) {
        add(engine, requests[i], heard[i]);
      }
      engine.step();  // reads requests 0, 1, 3 and 5
      EXPECT_EQ(engine.counts().prompt_tokens, 4 * 13) << name;
    }
  }
}

config::ModelOptions small_model() {
  config::ModelOptions o = testing::language_models()[0].second;
  o.context_length = 40;
  return o;
}

// Returns the log-probabilities of a sequence that fits into the context, by their definition.
at::Tensor by_definition(const models::LanguageModel& model, const Tokens& tokens) {
  const at::NoGradGuard no_grad;
  models::Memory memory;
  return model.logits(at::tensor(tokens, at::kLong).unsqueeze(0), memory, {})[0].log_softmax(1);
}

TEST(Engine, ScoresMatchTheWholePass) {
  const models::LanguageModel model(small_model(), 4);
  Request request{.prompt = random_tokens(23, model.options().vocabulary_size, 1), .max_tokens = 6, .temperature = 0.0};
  request.echo = true;
  request.logprobs = 3;
  const Heard heard = serve(model, {request}, {.prompt_chunk = 5})[0];
  Tokens all;
  for (const TokenEvent& event : heard.events) {
    all.push_back(event.id);
  }
  ASSERT_EQ(std::ssize(all), 29);
  const at::Tensor log_p = by_definition(model, all);
  EXPECT_TRUE(std::isnan(heard.events[0].logprob));
  EXPECT_TRUE(heard.events[0].top.empty());
  for (std::size_t i = 1; i < all.size(); ++i) {
    const TokenEvent& event = heard.events[i];
    const at::Tensor before = log_p[static_cast<std::int64_t>(i) - 1];
    EXPECT_EQ(event.is_prompt, i < 23U);
    EXPECT_NEAR(event.logprob, before[event.id].item<double>(), 1e-5);
    ASSERT_EQ(event.top.size(), 3U);
    const at::Tensor values = std::get<0>(before.topk(3));
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const Alternative& one = event.top[static_cast<std::size_t>(rank)];
      EXPECT_NEAR(one.logprob, values[rank].item<double>(), 1e-5);
      EXPECT_NEAR(one.logprob, before[one.id].item<double>(), 1e-5);
    }
    if (!event.is_prompt) {
      EXPECT_EQ(event.top[0].id, event.id) << "greedy";
      EXPECT_EQ(event.top[0].logprob, event.logprob);
    }
  }
}

TEST(Engine, ATokenTiedForLikeliestIsFirst) {
  const std::vector<float> log_p = {-2.0F, -1.0F, -3.0F, -1.0F, -1.0F};
  const TokenScore tied = score_of(4, log_p, 2);
  ASSERT_EQ(tied.top.size(), 2U);
  EXPECT_EQ(tied.top[0].id, 4);
  EXPECT_EQ(tied.top[1].id, 1);
  EXPECT_EQ(tied.logprob, -1.0);
  const TokenScore below = score_of(0, log_p, 9);
  std::vector<std::int64_t> ids;
  for (const Alternative& one : below.top) {
    ids.push_back(one.id);
  }
  EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 3, 4, 0, 2}));
  EXPECT_TRUE(score_of(0, log_p, 0).top.empty());
}

TEST(Engine, PromptsWithACommonPrefixShareIt) {
  const models::LanguageModel model(small_model(), 4);
  const std::int64_t vocabulary = model.options().vocabulary_size;
  std::vector<Request> choices(4);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    choices[i].prompt = random_tokens(18, vocabulary, 5);
    choices[i].prompt.push_back(static_cast<std::int64_t>(i));
    choices[i].max_tokens = 1;
    choices[i].echo = i > 0;  // all but the first are scored
    choices[i].logprobs = i > 0 ? 1 : -1;
  }
  const std::vector<Heard> without = serve(model, choices, {.prompt_chunk = 4});
  Engine engine(model, {.prompt_chunk = 4, .prefix_cache_tokens = 16});
  std::vector<Heard> heard(choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    add(engine, choices[i], heard[i]);
  }
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    expect_same(heard[i], without[i], fmt::format("choice {}", i));
  }
  // The first request stores no scores, so the second reads its whole prompt. The others start after 17 common tokens.
  EXPECT_EQ(engine.counts().prefix_requests, 2);
  EXPECT_EQ(engine.counts().prefix_tokens, 2 * 16);
  EXPECT_EQ(engine.counts().prompt_tokens, 4 * 19);
  EXPECT_LE(engine.counts().prefix_held, 16);
}

// Tests that the engine returns the routing of every token of a sequence.
class Routing : public ::testing::TestWithParam<const char*> {};

TEST_P(Routing, ReturnsTheExpertsOfAToken) {
  config::ModelOptions options = small_model();
  options.attention.projection = GetParam();
  options.attention.of<config::RoutingOptions>().n_experts = 3;
  options.attention.of<config::RoutingOptions>().top_k = 2;
  const models::LanguageModel model(options, 6);
  Request request{.prompt = random_tokens(9, options.vocabulary_size, 1), .max_tokens = 4};
  request.echo = request.routing = true;
  const Heard heard = serve(model, {request}, {.prompt_chunk = 4})[0];
  Tokens all;
  for (const TokenEvent& event : heard.events) {
    all.push_back(event.id);
  }
  nn::Recorder recorder({"layer*.attention.select*.index"});
  const nn::Context context{.observer = &recorder};
  const at::NoGradGuard no_grad;
  models::Memory memory;
  model.logits(at::tensor(all, at::kLong).unsqueeze(0), memory, context);
  const bool by_head = options.attention.projection.name() == "experts";  // one router for keys, one for queries
  ASSERT_EQ(recorder.values.size(), static_cast<std::size_t>((by_head ? 2 : 1) * options.n_layers));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<TokenRoute>& routes = heard.events[i].routes;
    ASSERT_EQ(routes.size(), recorder.values.size()) << i;
    for (const TokenRoute& route : routes) {
      const at::Tensor chosen = recorder.at(route.name + ".index")[static_cast<std::int64_t>(i)];
      EXPECT_EQ(route.n_heads, by_head ? options.attention.n_heads : 1);
      EXPECT_TRUE(at::tensor(route.experts, at::kLong).equal(chosen.flatten())) << route.name << ", token " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, Routing, ::testing::Values("experts", "routed_heads", "gated_heads"));

TEST(Engine, StopsWhenToldTo) {
  const models::LanguageModel model(small_model(), 4);
  Engine engine(model, {.max_rows = 2, .prompt_chunk = 4});
  std::map<std::string, std::vector<std::string>> heard;
  const auto tell = [&](const std::string& who, std::int64_t most) {
    return [&heard, who, most](const TokenEvent&) {
      heard[who].emplace_back("token");
      return std::ssize(heard[who]) < most;
    };
  };
  const auto finish = [&](const std::string& who) {
    return [&heard, who](const Ending& ending) {
      heard[who].emplace_back(ending.reason == Finish::length      ? "length"
                              : ending.reason == Finish::stopped   ? "stopped"
                              : ending.reason == Finish::cancelled ? "cancelled"
                                                                   : "failed");
    };
  };
  const Request request{.prompt = {1, 2, 3, 4, 5, 6}, .max_tokens = 20};
  engine.add(request, tell("stops", 3), finish("stops"));
  const Engine::Handle runs = engine.add(request, tell("runs", 99), finish("runs"));
  const Engine::Handle waits = engine.add(request, tell("waits", 99), finish("waits"));
  engine.add({.prompt = {1}, .max_tokens = 0}, tell("reads", 99), finish("reads"));
  EXPECT_EQ(engine.counts().waiting, 4);
  engine.step();
  EXPECT_EQ(engine.counts().running, 2);
  engine.cancel(waits);
  EXPECT_EQ(heard["waits"], (std::vector<std::string>{"cancelled"}));
  while (heard["runs"].size() < 5) {
    ASSERT_TRUE(engine.step());
  }
  engine.cancel(runs);
  EXPECT_EQ(heard["runs"].back(), "cancelled");
  engine.cancel(runs);  // a finished request is ignored
  while (engine.step()) {
  }
  EXPECT_EQ(heard["runs"].size(), 6U);
  EXPECT_EQ(heard["stops"], (std::vector<std::string>{"token", "token", "token", "stopped"}));
  EXPECT_EQ(heard["reads"], (std::vector<std::string>{"length"}));
  EXPECT_EQ(engine.counts().finished, 4);
  EXPECT_FALSE(engine.step());
}

// Callbacks may add and cancel requests. A request that another callback cancels gets no token after that step.
TEST(Engine, CallbacksMayCallIt) {
  const models::LanguageModel model(small_model(), 4);
  Engine engine(model, {.prompt_chunk = 4});
  Heard other, later;
  const Engine::Handle handle = add(engine, {.prompt = {1, 2}, .max_tokens = 30}, other);
  std::size_t then = 0;
  engine.add(
      {.prompt = {3}, .max_tokens = 4},
      [&](const TokenEvent&) {
        engine.cancel(handle);
        then = other.events.size();
        return true;
      },
      [&](const Ending&) { add(engine, {.prompt = {4}, .max_tokens = 2}, later); });
  while (engine.step()) {
  }
  ASSERT_EQ(other.endings.size(), 1U);
  EXPECT_EQ(other.endings[0].reason, Finish::cancelled);
  EXPECT_EQ(other.events.size(), then);
  EXPECT_EQ(later.events.size(), 2U);
}

// While a long prompt is read, each step must still give every other request one token.
TEST(Engine, ALongPromptDoesNotStopTheOthers) {
  const models::LanguageModel model(small_model(), 4);
  constexpr std::int64_t kTokens = 2000, kChunk = 4;
  Engine engine(model, {.prompt_chunk = kChunk, .prompt_share = 0.0});
  Heard writes, reads;
  add(engine, {.prompt = {1, 2}, .max_tokens = 1000}, writes);
  engine.step();
  add(engine, {.prompt = random_tokens(kTokens, model.options().vocabulary_size, 3), .max_tokens = 1}, reads);
  std::int64_t steps = 0;
  while (reads.endings.empty()) {
    const std::size_t before = writes.events.size();
    engine.step();
    EXPECT_EQ(writes.events.size(), before + 1);
    ++steps;
  }
  EXPECT_GE(steps, kTokens / kChunk) << "a chunk a step";
}

TEST(Engine, NonFiniteLogitsEndOnlyTheirRequest) {
  models::LanguageModel model(small_model(), 4);
  const at::NoGradGuard no_grad;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    if (parameter.name.starts_with("embed")) {
      parameter.tensor[5].fill_(NAN);
    }
  }
  const std::vector<Heard> heard =
      serve(model, {{.prompt = {5, 1}, .max_tokens = 3}, {.prompt = {1, 2}, .max_tokens = 1, .temperature = 0.0}}, {});
  EXPECT_EQ(heard[0].endings[0].reason, Finish::failed);
  EXPECT_EQ(heard[0].endings[0].error, "the model's logits are not finite");
  EXPECT_EQ(heard[1].endings[0].reason, Finish::length);
}

TEST(Engine, RefusesBadRequests) {
  const models::LanguageModel model(small_model(), 4);
  Engine engine(model, {});
  const std::int64_t vocabulary = model.options().vocabulary_size;
  const std::vector<Request> bad = {{.prompt = {}},
                                    {.prompt = {vocabulary}},
                                    {.prompt = {-1}},
                                    {.prompt = {1}, .max_tokens = -1},
                                    {.prompt = {1}, .temperature = -0.5},
                                    {.prompt = {1}, .temperature = NAN},
                                    {.prompt = {1}, .top_k = -1},
                                    {.prompt = {1}, .top_p = 0.0},
                                    {.prompt = {1}, .top_p = NAN},
                                    {.prompt = {1}, .logprobs = -2}};
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THROW(engine.add(bad[i], {}, {}), UserError) << i;
  }
  EXPECT_EQ(engine.counts().waiting, 0);
  EXPECT_THROW(Engine(model, {.max_rows = 0}), UserError);
  EXPECT_THROW(Engine(model, {.prompt_chunk = 0}), UserError);
  EXPECT_THROW(Engine(model, {.prefix_cache_tokens = -1}), UserError);
}

}  // namespace headroom::decode::engine_test
