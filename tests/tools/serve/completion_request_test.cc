#include "tools/serve/engine/served_model.h"

#include <gtest/gtest.h>

#include "tools/serve/json_fields.h"

namespace headroom::serve {
namespace completion_request_test {

std::string refused_field(const std::string& body) {
  try {
    parse_completion_request(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400) << body;
    return error.param;
  }
  return "nothing";
}

TEST(CompletionRequest, HasTheDefaultsOfTheApi) {
  const CompletionRequest request = parse_completion_request(R"({"prompt": "a"})");
  EXPECT_EQ(request.prompts, std::vector<Prompt>{std::string("a")});
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.temperature, 1.0);
  EXPECT_EQ(request.top_p, 1.0);
  EXPECT_EQ(request.top_k, 0);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.logprobs, -1);
  EXPECT_FALSE(request.seed || request.echo || request.stream || request.routing || request.include_usage);
  EXPECT_FALSE(request.details());
  EXPECT_TRUE(request.stop.empty());
}

TEST(CompletionRequest, TakesEachKindOfPrompt) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion_request(R"({"prompt": )" + prompt + "}").prompts;
  };
  const auto text = [](const char* of) { return Prompt(std::string(of)); };
  EXPECT_EQ(prompts(R"("")"), std::vector{text("")});
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector{text("a"), text("b")}));
  EXPECT_EQ(prompts("[1, 2]"), std::vector{Prompt(TokenIds{1, 2})});
  EXPECT_EQ(prompts("[[1], [2, 3]]"), (std::vector{Prompt(TokenIds{1}), Prompt(TokenIds{2, 3})}));
}

TEST(CompletionRequest, TakesAnySeedOf64Bits) {
  const auto seed = [](const std::string& of) {
    return parse_completion_request(R"({"prompt": "a", "seed": )" + of + "}").seed;
  };
  EXPECT_EQ(seed("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(seed("18446744073709551615"), -1);
  EXPECT_EQ(seed("null"), std::nullopt);
  EXPECT_EQ(refused_field(R"({"prompt": "a", "seed": 18446744073709551616})"), "seed");
}

TEST(CompletionRequest, TakesValuesThatChangeNothing) {
  EXPECT_EQ(refused_field(R"({"prompt": "a", "suffix": "", "min_p": 0.0, "repetition_penalty": 1, "min_tokens": 0,
                              "ignore_eos": false, "stop_token_ids": [], "logit_bias": {}, "presence_penalty": 0,
                              "frequency_penalty": null, "best_of": 1, "top_k": -1})"),
            "nothing");
  for (const std::string other : {"suffix\": \"b\"", "min_p\": 0.1", "repetition_penalty\": 1.1", "min_tokens\": 1",
                                  "ignore_eos\": true", "ignore_eos\": 0", "stop_token_ids\": [1]", "top_k\": -2"}) {
    EXPECT_EQ(refused_field("{\"prompt\": \"a\", \"" + other + "}"), other.substr(0, other.find('"')));
  }
}

TEST(CompletionRequest, NamesTheFieldThatItRefuses) {
  EXPECT_EQ(refused_field(R"({"prompt": "a"})"), "nothing");
  for (const std::string number : {"\"1\"", "true", "[]", "{}", "-1", "1e300", "99999999999999999999", "129"}) {
    EXPECT_EQ(refused_field(R"({"prompt": "a", "n": )" + number + "}"), "n") << number;
  }
  EXPECT_EQ(refused_field(R"({"prompt": "a", "temperature": -0.001})"), "temperature");
  EXPECT_EQ(refused_field(R"({"prompt": "a", "temperature": 2})"), "nothing");
  EXPECT_EQ(refused_field(R"({"prompt": "a", "top_p": 1e-300})"), "nothing");
  EXPECT_EQ(refused_field(R"({"prompt": "a", "\u0000": 1})"), "\\x00");
}

}  // namespace completion_request_test
}  // namespace headroom::serve
