#include "tools/serve/engine/served_model.h"

#include <gtest/gtest.h>

#include "tools/serve/json_fields.h"

namespace headroom::serve::completion_request_test {

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

TEST(CompletionRequest, TakesAnySeedOf64Bits) {
  const auto seed = [](const std::string& of) {
    return parse_completion_request(R"({"prompt": "a", "seed": )" + of + "}").seed;
  };
  EXPECT_EQ(seed("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(seed("18446744073709551615"), -1);
  EXPECT_EQ(seed("null"), std::nullopt);
  EXPECT_EQ(refused_field(R"({"prompt": "a", "seed": 18446744073709551616})"), "seed");
}

}  // namespace headroom::serve::completion_request_test
