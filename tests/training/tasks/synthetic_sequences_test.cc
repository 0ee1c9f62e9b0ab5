#include "training/tasks/language/language_modelling.h"

#include <gtest/gtest.h>

#include "tiny/files.h"

namespace headroom::tasks::synthetic_sequences_test {

// Row i of a split depends only on i, so a longer validation set begins with the rows of a shorter one.
TEST(SyntheticSequences, APartIsSpreadOverTheRows) {
  const tiny::Folder folder;
  config::Config config = tiny::config();
  tiny::set(config, "model.memory_length=0 model.context_length=24 data.synthetic=recall data.synthetic_items=4");
  const models::LanguageModel model(config.model, 5);
  const auto sums = [&](std::int64_t rows, std::int64_t most) {
    config.data.generated_validation = rows;
    return synthetic_sequences().open(config, folder.path()).validation->evaluate(model, {.most_tokens = most}).sums;
  };
  const Sum one = sum_of(sums(1, 0), kCrossEntropy), two = sum_of(sums(2, 0), kCrossEntropy),
            middle = sum_of(sums(3, 40), kCrossEntropy), three = sum_of(sums(3, 0), kCrossEntropy);
  EXPECT_EQ(middle.count, two.count - one.count);
  EXPECT_NEAR(middle.sum, two.sum - one.sum, 1e-6);
  EXPECT_NE(middle.sum, one.sum);
  EXPECT_EQ(three.sum, sum_of(sums(3, 72), kCrossEntropy).sum) << "the limit holds all rows";
}

}  // namespace headroom::tasks::synthetic_sequences_test
