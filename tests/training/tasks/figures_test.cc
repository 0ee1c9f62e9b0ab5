#include "training/tasks/figures.h"

#include <cmath>

#include "headroom/models/language_model.h"
#include "small_classes.h"
#include "training/tasks/language/language_modelling.h"
#include "training/tasks/language/masked_language_modelling.h"
#include "training/tasks/translation/translation.h"

namespace headroom::tasks::sums_test {

Sums added(const std::vector<Sums>& parts) {
  Sums all;
  for (const Sums& part : parts) {
    add(all, part);
  }
  return all;
}

// Counts must be equal. Sums of float32 losses, and the figures made of them, may differ by rounding.
void expect_same(const Task& task, const Sums& got, const Sums& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, sum] : expected) {
    EXPECT_EQ(sum_of(got, name).count, sum.count) << name;
    EXPECT_NEAR(sum_of(got, name).sum, sum.sum, 1e-6 * std::abs(sum.sum)) << name;
  }
  for (const auto& [name, value] : task.figures_of(expected)) {
    EXPECT_NEAR(figure(task.figures_of(got), name), value, 1e-4 * std::abs(value)) << name;
  }
}

// Returns a file, and two files that divide its lines.
struct Shared {
  std::string whole, first, second;
  Shared(const tiny::Folder& folder, const std::string& ending, const std::string& text) {
    std::istringstream lines(text);
    std::string one, other;
    for (std::string line; std::getline(lines, line);) {
      (one.size() < text.size() / 3 ? one : other) += line + "\n";
    }
    whole = write(folder, "whole" + ending, text);
    first = write(folder, "first" + ending, one);
    second = write(folder, "second" + ending, other);
  }
  static std::string write(const tiny::Folder& folder, const std::string& name, const std::string& text) {
    write_text_file(folder / name, text);
    return (folder / name).string();
  }
};

TEST(Sums, AddNameByName) {
  Sums sums = {{"a", {.sum = 1.5, .count = 2}}};
  add(sums, {{"a", {.sum = -1.0, .count = 3}}, {"b", {.sum = 4.0, .count = 0}}});
  EXPECT_EQ(sums, (Sums{{"a", {.sum = 0.5, .count = 5}}, {"b", {.sum = 4.0, .count = 0}}}));
  EXPECT_EQ(mean(sums, "a"), 0.1);
  EXPECT_TRUE(std::isnan(mean(sums, "b")));
  EXPECT_TRUE(std::isnan(mean(sums, "c")));
}

TEST(Sums, OfNothingGiveNaN) {
  const std::vector<const Task*> all = {&language_modelling(),      &masked_language_modelling(), &composition(),
                                        &sequence_classification(), &image_classification(),      &translation()};
  for (const Task* task : all) {
    for (const Sums& nothing : {Sums(), Sums{{std::string(kCrossEntropy), {}}}}) {
      const Figures figures = task->figures_of(nothing);
      for (const FigureKind& kind : task->figures()) {
        EXPECT_TRUE(std::isnan(figure(figures, kind.name))) << task->name() << ": " << kind.name;
      }
    }
  }
}

TEST(Sums, GiveTheStandardErrorOfAMean) {
  const auto of = [](const std::vector<double>& losses) {
    Sums sums;
    for (const double loss : losses) {
      sums[std::string(kCrossEntropy)].add(loss);
      sums[std::string(kSquaredCrossEntropy)].add(loss * loss);
    }
    return sums;
  };
  const auto error = [](const Sums& sums) { return standard_error(sums, kCrossEntropy, kSquaredCrossEntropy); };
  // The standard deviation of the four is sqrt(20 / 3); the standard error of their mean is half as large.
  EXPECT_NEAR(error(of({1.0, 3.0, 5.0, 7.0})), std::sqrt(20.0 / 3.0) / 2.0, 1e-12);
  EXPECT_NEAR(error(added({of({1.0, 7.0}), of({3.0, 5.0})})), std::sqrt(20.0 / 3.0) / 2.0, 1e-12) << "of shards alike";
  EXPECT_EQ(error(of({2.0, 2.0, 2.0})), 0.0);
  EXPECT_TRUE(std::isnan(error(of({2.0}))));
  EXPECT_TRUE(std::isnan(error({{std::string(kCrossEntropy), {.sum = 6.0, .count = 4}}}))) << "no squares";
  const Figures figures = loss_and_perplexity(of({1.0, 3.0, 5.0, 7.0}));
  EXPECT_NEAR(figure(figures, "loss_error"), std::sqrt(20.0 / 3.0) / 2.0, 1e-12);
  EXPECT_EQ(describe(figures, language_modelling().figures()), "loss 4.0000 \u00b1 1.3, perplexity 54.598");
  EXPECT_HAS(uncertainty(figures), "the loss 4.0000 has a standard error of 1.3");
  EXPECT_EQ(uncertainty({{"loss", 4.0}, {"loss_error", 0.009}}), "");
  EXPECT_EQ(uncertainty({{"loss", 4.0}}), "");
}

// The evaluations of all tasks, and sliding windows, also sum the squares of the losses.
TEST(Sums, SquareWhatTheyAddUp) {
  const tiny::Folder folder;
  for (const bool adaptive : {false, true}) {
    config::ModelOptions options = tiny::config().model;
    options.memory_length = 0;
    if (adaptive) {
      options.adaptive_cutoffs = {40, 100};
    }
    const models::LanguageModel model(options, 5);
    const auto tokens = tiny::token_file(folder, adaptive ? "a" : "b", tiny::text(300));
    const Sums chunks = evaluate_text(model, tokens, {.batch_size = 3}).sums;
    const Sums windows = evaluate_text(model, tokens, {.batch_size = 3, .stride = options.context_length}).sums;
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens->size()));
    std::vector<std::int32_t> read(ids.size());
    tokens->copy(0, tokens->size(), read.data());
    std::copy(read.begin(), read.end(), ids.begin());
    double squares = 0.0;
    for (std::int64_t begin = 0; begin + 1 < tokens->size(); begin += options.context_length) {
      const std::int64_t length = std::min(options.context_length, tokens->size() - 1 - begin);
      const at::Tensor all = at::tensor(ids, at::kLong).narrow(0, begin, length + 1).unsqueeze(0);
      models::Memory none;
      const at::Tensor log_p =
          model.score(all.narrow(1, 0, length), all.narrow(1, 1, length), none, {}).log_probability;
      squares += log_p.square().sum().item<double>();
    }
    EXPECT_NEAR(sum_of(chunks, kSquaredCrossEntropy).sum, squares, 1e-5 * squares);
    EXPECT_EQ(sum_of(chunks, kSquaredCrossEntropy).count, sum_of(chunks, kCrossEntropy).count);
    EXPECT_GT(figure(language_modelling().figures_of(windows), "loss_error"), 0.0);
  }
}

// A model without memory reads independent chunks, so the text may be cut between two chunks; both parts then have the
// token at the cut.
TEST(Sums, OfATextsPartsAddUp) {
  const tiny::Folder folder;
  config::ModelOptions options = tiny::config().model;
  options.memory_length = 0;
  const models::LanguageModel model(options, 5);
  const std::string text = tiny::text(403);
  const std::size_t cut = 17 * static_cast<std::size_t>(options.context_length);
  const auto sums = [&](const std::string& name, const std::string& of) {
    return evaluate_text(model, tiny::token_file(folder, name, of), {.batch_size = 3}).sums;
  };
  const Sums whole = sums("whole", text);
  Sums parts = added({sums("first", text.substr(0, cut + 1)), sums("second", text.substr(cut))});
  EXPECT_EQ(sum_of(whole, kCrossEntropy).count, 402);
  for (auto& [name, sum] : parts) {
    if (!name.ends_with(kCrossEntropy)) {  // counts of the file, not of predictions
      EXPECT_EQ(sum.count, 404) << name;
      sum.count -= 1;
      sum.sum -= name == "text_bytes" ? 1.0 : 0.0;
    }
  }
  expect_same(language_modelling(), parts, whole);
}

TEST(Sums, OfTranslatedPartsAddUp) {
  const tiny::Folder folder;
  std::string pairs;
  for (int i = 0; i < 40; ++i) {
    const char* const words[] = {"eins\tone", "eins zwei\tone two", "drei\tthree", "drei zwei eins\tthree two one"};
    pairs += fmt::format("{}\n", words[i % 7 % 4]);
  }
  const Shared files(folder, ".tsv", pairs);
  config::Config config = small_classes::translation_config();
  config.model.context_length = 24;
  config.data.train = config.data.validation = {files.whole};
  const TaskData data = translation().open(config, folder / "cache");
  const auto model = models::make_model(config.model, 5);
  {
    const at::NoGradGuard no_grad;  // a model that generates one word, which is sometimes right
    model->parameters().at("head.b")[data.tokenizer->encode("one").back()].fill_(2.0);
  }
  const auto sums = [&](const std::string& file) {
    return translation()
        .open_evaluation({.config = config, .tokenizer = data.tokenizer, .files = {file}, .cache = folder.path()})
        ->evaluate(*model, {.batch_size = 4})
        .sums;
  };
  const Sums whole = sums(files.whole);
  EXPECT_GT(sum_of(whole, "bleu.1grams").count, 0);
  EXPECT_GT(sum_of(whole, "tokenised_bleu.tokens").count, 0);
  expect_same(translation(), added({sums(files.first), sums(files.second)}), whole);
}

}  // namespace headroom::tasks::sums_test
