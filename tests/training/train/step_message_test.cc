#include "training/train/ranks/step_message.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::train::step_message_test {

StepMessage message() {
  StepMessage message{.squares = {0.1, -0.0, INFINITY}, .has_gradient = {true, false, true}, .stop = true};
  message.reports.push_back(
      {.micro_batch = 3,
       .cross_entropy = at::scalar_tensor(1.0 / 3.0, at::kDouble),
       .updates = {{"layer0.prior", {.sum = at::rand({2, 3}), .count = at::ones({2, 1}), .epsilon = 1e-6}}}});
  message.own_hash = "ab";
  return message;
}

TEST(StepMessage, IsReadBackExactly) {
  const StepMessage sent = message(), read = from_text(to_text(sent));
  ASSERT_EQ(read.reports.size(), 1);
  EXPECT_EQ(read.reports[0].micro_batch, 3);
  EXPECT_TRUE(read.reports[0].cross_entropy.equal(sent.reports[0].cross_entropy));
  EXPECT_FALSE(read.reports[0].regulariser.defined());
  const nn::BufferUpdate &was = sent.reports[0].updates.at("layer0.prior"),
                         &is = read.reports[0].updates.at("layer0.prior");
  EXPECT_TRUE(is.sum.equal(was.sum) && is.count.equal(was.count) && is.epsilon == was.epsilon);
  EXPECT_EQ(read.squares, sent.squares);
  EXPECT_TRUE(std::signbit(read.squares[1]));
  EXPECT_EQ(read.has_gradient, sent.has_gradient);
  EXPECT_TRUE(read.stop);
  EXPECT_EQ(read.own_hash, "ab");
}

TEST(StepMessage, IsRefusedIfTruncated) {
  const std::string text = to_text(message());
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, text.size() / 2, text.size() - 1}) {
    EXPECT_THROW(from_text(text.substr(0, size)), Error) << size;
  }
}

TEST(StepMessage, NamesTheRankThatDisagrees) {
  std::vector<StepMessage> all(3);
  EXPECT_FALSE(disagreement(all).has_value());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    all[rank].own_hash = std::to_string(rank);
    all[rank].next_hash = std::to_string((rank + 1) % 3);
  }
  EXPECT_FALSE(disagreement(all).has_value());
  all[1].next_hash = "other";
  EXPECT_EQ(disagreement(all), 1);
}

}  // namespace headroom::train::step_message_test
