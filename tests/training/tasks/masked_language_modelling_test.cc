#include "training/tasks/language/masked_language_modelling.h"

#include <cmath>
#include <numeric>

#include "folder_test.h"
#include "headroom/models/masked_language_model.h"
#include "tiny/files.h"

namespace headroom::tasks::masked_language_modelling_test {

Figures figures_of(const Evaluation& evaluation) {
  return masked_language_modelling().figures_of(evaluation.sums);
}

class MaskedText : public testing::Test {
 protected:
  MaskedText() {
    config_.data.train = {write("train", 6000, 1)};
    config_.data.validation = {write("validation", 1500, 2)};
  }
  std::string write(const std::string& name, std::size_t bytes, std::uint64_t seed) const {
    const std::filesystem::path path = folder_ / (name + ".txt");
    write_text_file(path, tiny::text(bytes, seed));
    return path.string();
  }
  TaskData open() const { return masked_language_modelling().open(config_, folder_ / "cache"); }

  tiny::Folder folder_;
  config::Config config_ = tiny::changed(tiny::config(),
                                         "model.kind=masked_language_model model.vocabulary_size=258 "
                                         "model.memory_length=0 model.context_length=32");
};

std::vector<std::int32_t> ids_of(const data::TokenFile& file, const RowSpan& span) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(span.length));
  file.copy(span.begin, span.length, ids.data());
  return ids;
}

TEST(PackSentences, FillsRowsWithWholeSentences) {
  const tiny::Folder folder;
  const auto file = tiny::token_file(folder, "text", "ab\ncd\n\nefghijklmnopq\nrs\ntuvw\nx");
  std::vector<std::string> rows;
  for (const RowSpan& span : pack_sentences(*file, line_ends(*file->tokenizer()), 6)) {
    const std::vector<std::int32_t> ids = ids_of(*file, span);
    rows.emplace_back(ids.begin(), ids.end());
  }
  // "rs" follows the rest of the long sentence; "tuvw" no longer fits.
  EXPECT_EQ(rows, (std::vector<std::string>{"ab\ncd\n", "\n", "efghij", "klmnop", "q\nrs\n", "tuvw\nx"}));
  std::int64_t place = 0;
  for (const RowSpan& span : pack_sentences(*file, {}, 6)) {
    EXPECT_EQ(span.begin, place);
    place += span.length;
    EXPECT_TRUE(span.length == 6 || place == file->size());
  }
  EXPECT_EQ(place, file->size());
}

// Byte-level BPE has a token for each byte, and merges that contain line ends.
constexpr const char* kLineEndMerges =
    R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
    R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"\u010a":2,"\u0120":3,"\u010a\u010a":4,)"
    R"("\u0120\u010a":5,"\u010a\u0120":6},"merges":["\u010a \u010a","\u0120 \u010a","\u010a \u0120"]}})";

TEST(LineEnds, AreAllTokensThatEndALine) {
  const auto bpe = tokenizers::restore_tokenizer(config::TokenizerKind::bpe, kLineEndMerges, "bpe");
  EXPECT_EQ(line_ends(*bpe), (std::vector<bool>{false, false, true, false, true, true, false}));
  std::vector<bool> newline(256, false);
  newline['\n'] = true;
  EXPECT_EQ(line_ends(*tiny::bytes_tokenizer()), newline);
}

TEST_F(MaskedText, ASmallerBpeLeavesIdsUnused) {
  write_text_file(folder_ / "tokenizer.json", tokenizers::to_tokenizer_json(*tiny::bytes_tokenizer()));
  config_.tokenizer.kind = config::TokenizerKind::bpe;
  config_.tokenizer.model = (folder_ / "tokenizer.json").string();
  config_.model.vocabulary_size = 265;
  const TaskData data = open();
  EXPECT_EQ(data.tokenizer->vocabulary_size(), 263);
  const at::Tensor tokens = data.training->next().at("tokens");
  EXPECT_TRUE(tokens.select(1, 0).eq(263).all().item<bool>()) << "<separator> comes after them";
  config_.model.vocabulary_size = 257;
  EXPECT_HAS(user_error_of([&] { open(); }), "model.vocabulary_size: must be 258, the size of tokenizer bpe-256-");
}

TEST(MaskRow, HidesFifteenPercent) {
  const MaskingTokens ids(1002);
  std::vector<std::int32_t> tokens(50);
  std::iota(tokens.begin(), tokens.end(), 100);
  constexpr int kRows = 4000;
  double hidden = 0, masked = 0, kept = 0, replaced = 0;
  std::vector<int> at_place(tokens.size());
  for (int row = 0; row < kRows; ++row) {
    const MaskedRow made = mask_row(tokens, ids, mix(7, static_cast<std::uint64_t>(row)));
    ASSERT_EQ(made.tokens.size(), tokens.size() + 2);
    EXPECT_EQ(made.tokens.front(), ids.separator);
    EXPECT_EQ(made.tokens.back(), ids.separator);
    EXPECT_EQ(made.hidden.front() + made.hidden.back(), -2) << "markers are never hidden";
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t now = made.tokens[i + 1], was = tokens[i];
      if (made.hidden[i + 1] < 0) {
        EXPECT_EQ(now, was);
        continue;
      }
      EXPECT_EQ(made.hidden[i + 1], was);
      ++hidden, ++at_place[i];
      masked += now == ids.mask, kept += now == was, replaced += now != ids.mask && now != was;
      EXPECT_TRUE(now == ids.mask || now < ids.words);
    }
  }
  // The frequencies are within five standard deviations of independent draws.
  EXPECT_NEAR(hidden / (50.0 * kRows), 0.15, 5 * 0.5 / 50 / std::sqrt(kRows)) << "7 or 8 a row";
  const auto near = [&](double count, double share) {
    EXPECT_NEAR(count / hidden, share, 5 * std::sqrt(share * (1 - share) / hidden));
  };
  near(masked, 0.8);
  near(kept, 0.1 + 0.1 / 1000);
  near(replaced, 0.1 - 0.1 / 1000);
  for (const int count : at_place) {
    EXPECT_NEAR(count, 0.15 * kRows, 5 * std::sqrt(0.15 * 0.85 * kRows));
  }
  EXPECT_EQ(hidden_count(1, 3), 1) << "a row without a hidden token teaches nothing";
}

TEST_F(MaskedText, RowsDoNotDependOnTheBatch) {
  config_.train.batch_size = 4;
  const auto four = open().training->next();
  config_.train.batch_size = 2;
  const TaskData data = open();
  for (const std::int64_t half : {0, 1}) {
    const models::Batch two = data.training->next();
    const std::int64_t width = two.at("tokens").size(1);
    for (const char* name : {"tokens", "hidden"}) {
      EXPECT_TRUE(four.at(name).narrow(0, 2 * half, 2).narrow(1, 0, width).equal(two.at(name))) << name;
    }
    EXPECT_EQ(std::vector(four.targets.begin() + 2 * half, four.targets.begin() + 2 * half + 2), two.targets);
  }
}

TEST_F(MaskedText, SelectionChangesEveryEpochAndContinuesFromAnyPosition) {
  const TaskData data = open();
  std::vector<models::Batch> batches;
  std::vector<data::DataPosition> positions;
  while (data.training->position().epoch < 2) {
    positions.push_back(data.training->position());
    batches.push_back(data.training->next());
    const models::Batch& batch = batches.back();
    EXPECT_EQ(batch.at("hidden").ge(0).sum().item<std::int64_t>(), batch.n_targets());
  }
  for (std::size_t i = batches.size(); i-- > 0;) {
    data.training->seek(positions[i]);
    const models::Batch again = data.training->next();
    EXPECT_TRUE(again.at("tokens").equal(batches[i].at("tokens"))) << i;
    EXPECT_TRUE(again.at("hidden").equal(batches[i].at("hidden"))) << i;
  }
  EXPECT_THROW(data.training->seek({.epoch = 0, .step = std::ssize(batches)}), UserError);
  // A row of the first epoch is also in the second, with other tokens masked.
  const auto original = [](const models::Batch& batch, std::int64_t row) {
    return at::where(batch.at("hidden")[row].ge(0), batch.at("hidden")[row], batch.at("tokens")[row]);
  };
  int met = 0, same = 0;
  for (std::size_t i = batches.size() / 2; i < batches.size(); ++i) {
    for (std::int64_t row = 0; row < 4; ++row) {
      if (original(batches[i], row).equal(original(batches[0], 0))) {
        ++met;
        same += batches[i].at("hidden")[row].equal(batches[0].at("hidden")[0]);
      }
    }
  }
  EXPECT_EQ(met, 1);
  EXPECT_EQ(same, 0);
}

TEST_F(MaskedText, EvaluationIsTheMeanOverHiddenTokens) {
  const models::MaskedLanguageModel model(config_.model, 5);
  const TaskData data = open();
  const auto rows = [&](std::int64_t batch_size, std::int64_t most = 0) {
    return data.validation->evaluate(model, {.batch_size = batch_size, .most_tokens = most});
  };
  const Evaluation alone = rows(1);
  EXPECT_NEAR(figures_of(alone).at("perplexity"), std::exp(figures_of(alone).at("loss")), 1e-9);
  EXPECT_NEAR(static_cast<double>(alone.predictions()), 0.15 * 1500, 0.03 * 1500);
  for (const std::int64_t batch_size : {2, 7, 1000}) {
    const Evaluation result = rows(batch_size);
    EXPECT_EQ(result.predictions(), alone.predictions());
    EXPECT_NEAR(figures_of(result).at("loss"), figures_of(alone).at("loss"), 1e-5) << batch_size;
  }
  config_.train.seed = 99;
  EXPECT_EQ(figures_of(open().validation->evaluate(model, {.batch_size = 1})), figures_of(alone)) << "another run's";
  const Evaluation part = rows(3, 40);
  EXPECT_LE(part.predictions(), 40);
  EXPECT_GT(part.predictions(), 30);
  EXPECT_EQ(rows(1, 40).predictions(), part.predictions());
}

TEST_F(MaskedText, APartHasTheMeanOfTheWholeText) {
  const models::MaskedLanguageModel model(config_.model, 5);
  const auto loss = [&](int a, int b, std::int64_t most) {
    std::string text;
    for (int line = 0; line < a + b; ++line) {
      text += std::string(29, line < a ? 'a' : 'b') + "\n";
    }
    write_text_file(folder_ / "sorted.txt", text);
    config_.data.validation = {(folder_ / "sorted.txt").string()};
    return figures_of(open().validation->evaluate(model, {.most_tokens = most})).at("loss");
  };
  const double easy = loss(40, 0, 0), hard = loss(0, 40, 0);
  EXPECT_GT(std::abs(easy - hard), 0.01);
  EXPECT_NEAR(loss(40, 40, 90), loss(40, 40, 0), 0.1 * std::abs(easy - hard));
}

TEST_F(MaskedText, RefusesTooLittle) {
  config_.train.batch_size = 10000;
  EXPECT_THROW(open(), UserError);
  config_.train.batch_size = 4;
  config_.model.context_length = 2;
  EXPECT_THROW(open(), UserError);
}

}  // namespace headroom::tasks::masked_language_modelling_test
