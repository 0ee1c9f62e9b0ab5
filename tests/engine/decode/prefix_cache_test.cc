#include "engine/decode/prefix_cache.h"

#include "engine/models/small_models.h"

namespace headroom::decode::prefix_cache_test {

using Tokens = std::vector<std::int64_t>;

TEST(PrefixCache, KeepsWhatWasUsedLast) {
  config::ModelOptions options = testing::language_models()[0].second;
  options.context_length = 40;
  const models::LanguageModel model(options, 4);
  PrefixCache cache(20, {4});
  const auto keep = [&](const Tokens& tokens) {
    CachedPrompt prompt{.tokens = tokens, .state = model.start_decoding(), .read = std::ssize(tokens), .scores = {}};
    model.read({&prompt.state, tokens}, {});
    cache.keep(std::move(prompt));
  };
  const auto known = [&](Tokens tokens) {
    tokens.push_back(0);
    const CachedPrefix found = cache.find(tokens, -1);
    EXPECT_EQ(found.tokens == 0 ? 0 : found.state.position, found.tokens);
    return found.tokens;
  };
  const Tokens a(8, 1), b(8, 2), c(8, 3);
  keep(a);
  keep(b);
  EXPECT_EQ(known(a), 8);
  EXPECT_EQ(known({1, 1, 1, 1, 1, 9}), 4);
  keep(c);  // 24 tokens are too many; b is the least recently used
  EXPECT_EQ(known(b), 0);
  EXPECT_EQ(known(a), 8);
  EXPECT_EQ(known(c), 8);
  EXPECT_EQ(cache.held(), 16);
  keep({3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3});  // extends and replaces c
  EXPECT_EQ(cache.held(), 20);
  EXPECT_EQ(known(c), 8);
  keep(Tokens(24, 4));  // more tokens than fit
  EXPECT_EQ(cache.held(), 20);
}

}  // namespace headroom::decode::prefix_cache_test
