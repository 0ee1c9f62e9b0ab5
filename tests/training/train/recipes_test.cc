// Scales down every shipped recipe, then trains, saves, resumes and evaluates.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include "foundation/core/machine/log.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/store/open_model.h"
#include "tiny/files.h"
#include "training/cost/small_model.h"
#include "training/tasks/task.h"
#include "training/train/loop/train.h"

namespace headroom::train::train_recipes_test {

using config::Config;

void at_most(std::int64_t& value, std::int64_t most) {
  value = std::min(value, most);
}

void shrink(config::AttentionOptions& a) {
  at_most(a.n_heads, 2);
  at_most(a.n_kv_heads, 2);
  at_most(a.of<config::RoutingOptions>().n_experts, 4);
  if (a.projection.name() == "shared_and_routed") {
    at_most(a.of<config::SharedHeadOptions>().shared_heads, 1);
  }
  at_most(a.of<config::RoutingOptions>().top_k, std::min<std::int64_t>(2, a.projection->router_width(a)));
  at_most(a.d_head, 8);
  at_most(a.of<config::LatentOptions>().d_value, 4);
  at_most(a.of<config::LatentOptions>().d_rotary, 4);
  if (a.projection == config::PartName<config::ProjectionPart>("latent")) {
    at_most(a.of<config::LatentOptions>().kv_rank, 4);
  }
  if (a.projection == config::PartName<config::ProjectionPart>("factored")) {
    at_most(a.of<config::LatentOptions>().kv_rank, 2);
  }
  at_most(a.of<config::LatentOptions>().q_rank, 4);
  at_most(a.window, 8);
}

// Zero stays zero, because it often means "derived from another key".
void shrink(config::ModelOptions& m) {
  for (config::LayerOptions& layer : m.layers) {
    layer.repeat = 1;
  }
  at_most(m.n_layers, std::max<std::int64_t>(2, std::ssize(m.layers)));
  at_most(m.n_decoder_layers, 2);
  at_most(m.d_model, 16);
  at_most(m.context_length, 24);
  at_most(m.memory_length, 24);
  at_most(m.d_head_hidden, 8);
  at_most(m.n_classes, 10);
  for (std::size_t i = 0; i < m.adaptive_cutoffs.size(); ++i) {
    m.adaptive_cutoffs[i] = 2 + 2 * static_cast<std::int64_t>(i);
  }
  at_most(m.patch_size, 4);
  at_most(m.image_size, 8);
  if (m.kind == config::ModelKind::vision) {
    m.context_length = m.patches();
  }
  at_most(m.mlp.d_hidden, 16);
  at_most(m.mlp.n_experts, 4);
  at_most(m.mlp.top_k, 2);
  shrink(m.attention);
}

void shrink(config::TrainOptions& t) {
  t.steps = 1;
  at_most(t.warmup_steps, 1);
  at_most(t.accumulate, 2);
  t.batch_size = 2 * t.accumulate;
  at_most(t.batch_tokens, 200);
  t.threads = 1;
  t.precision = config::Precision::fp32;
  t.checkpoint_every = t.evaluate_every = 0;  // only at the end
}

// Writes small files in every format that recipes read.
class TrainRecipes : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto file = [&](const std::string& name, const std::string& content) {
      write_text_file(folder_ / name, content);
      return (folder_ / name).string();
    };
    text_ = file("text.txt", tiny::text(1500));
    std::string pairs, labelled = "label\ttext\n", paired, listops = "Source\tTarget\n";
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::string line = tiny::text(24, i + 1).substr(0, 23);
      std::string sentence = line;
      std::ranges::replace(sentence, '\n', ' ');
      std::string upper = sentence;
      std::transform(upper.begin(), upper.end(), upper.begin(),
                     [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
      pairs += sentence + "\t" + upper + "\n";
      labelled += fmt::format("{}\t{}\n", i % 2, sentence);
      paired += fmt::format("{}.0\ta\tb\t{}\t{}\n", i % 2, sentence, upper);
      listops += fmt::format("[MAX {} [MIN 4 2 ] 1 ]\t{}\n", i, std::max<std::uint64_t>(i, 2));
    }
    pairs_ = file("pairs.tsv", pairs);
    labelled_ = file("labelled.tsv", labelled);
    paired_ = file("paired.tsv", paired);
    listops_ = file("listops.tsv", listops);
  }

  // Writes an 8 x 8 image for each of 10 classes: grey images in idx files, coloured images in folders.
  std::vector<std::string> pictures(std::int64_t channels) const {
    std::string images("\0\0\x08\x03\0\0\0\x0a\0\0\0\x08\0\0\0\x08", 16), labels("\0\0\x08\x01\0\0\0\x0a", 8);
    Random random(1);
    for (char i = 0; i < 10; ++i) {
      std::string pixels;
      for (std::int64_t k = 0; k < 64 * channels; ++k) {
        pixels += static_cast<char>(random.below(256));
      }
      images += pixels;
      labels += i;
      const std::filesystem::path folder = folder_ / fmt::format("pictures/class{}", static_cast<int>(i));
      std::filesystem::create_directories(folder);
      write_text_file(folder / "picture.ppm", "P6\n8 8\n255\n" + pixels);
    }
    if (channels == 3) {
      return {(folder_ / "pictures").string()};
    }
    write_text_file(folder_ / "images", images);
    write_text_file(folder_ / "labels", labels);
    return {(folder_ / "images").string(), (folder_ / "labels").string()};
  }

  Config small(Config config) const {
    config::ModelOptions& m = config.model;
    shrink(m);
    shrink(config.train);
    config.decoding.extra_length = 2;
    config::TokenizerOptions& tokenizer = config.tokenizer;
    at_most(config.data.generated_train, 20);
    at_most(config.data.generated_validation, 5);
    std::vector<std::string> files = {text_};
    switch (m.kind) {
      case config::ModelKind::encoder_decoder:
        files = {pairs_};
        break;
      case config::ModelKind::classifier:
        files = {config.data.generator != config::Generator::none ? listops_ : m.paired ? paired_ : labelled_};
        break;
      case config::ModelKind::vision:
        files = pictures(m.image_channels);
        break;
      default:
        break;
    }
    config.data.train = config.data.validation = files;
    if (config.data.generator == config::Generator::composition || config.data.synthetic != config::Synthetic::none) {
      config.data.train = config.data.validation = {};
      config.data.generated_train = config.data.generated_validation = 20;
    }
    if (!m.has_classes()) {
      if (tokenizer.kind == config::TokenizerKind::words) {
        tokenizer.vocabulary_size = 10;
      } else {
        const bool composition = config.data.generator == config::Generator::composition;
        at_most(tokenizer.vocabulary_size, composition ? 400 : 295);
      }
      m.vocabulary_size = tokenizer.vocabulary_size + config::n_special_tokens(m.kind);
      at_most(m.source_vocabulary_size, 280);
    }
    return config;
  }

  // Returns the error; empty if there is none.
  std::string failure(const Config& config, const std::filesystem::path& out) const {
    try {
      TrainRequest request{.config = config, .out = out, .cache = folder_ / "cache"};
      train(request);
      request.resume = true;
      request.config.train.steps = 2;
      const TrainResult result = train(request);
      const store::OpenedModel opened = store::open_model(out.string(), {});
      const tasks::Task& task = tasks::task_for(opened.config(), "evaluate");
      const auto data = task.open_evaluation({.config = opened.config(),
                                              .tokenizer = opened.checkpoint.tokenizer,
                                              .files = {},
                                              .cache = folder_ / "cache"});
      const tasks::Figures figures = task.figures_of(data->evaluate(*opened.model, {.context = opened.context}).sums);
      const double was = result.validation.back().figures.at("loss"), is = figures.at("loss");
      if (opened.checkpoint.step != 2 || !(std::abs(is - was) < 1e-4)) {
        return fmt::format("step {}, loss {} where the run's is {}", opened.checkpoint.step, is, was);
      }
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  tiny::Folder folder_;
  std::string text_, pairs_, labelled_, paired_, listops_;
};

TEST_F(TrainRecipes, EachTrainsResumesAndIsEvaluated) {
  set_log_level(LogLevel::quiet);
  std::map<std::string, std::string> seen;  // by config: recipes that differ only in size run once
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  for (const std::string& name : config::recipe_names()) {
    const Config config = small(cost::recipe(name));
    const auto [first, fresh] = seen.emplace(config::to_toml(config), name);
    if (fresh) {
      const std::filesystem::path out = folder_ / fmt::format("run{}", seen.size());
      EXPECT_EQ(failure(config, out), "") << name;
      std::filesystem::remove_all(out);
    }
  }
  EXPECT_GT(seen.size(), 100U);
  set_log_level(LogLevel::info);
}

}  // namespace headroom::train::train_recipes_test
