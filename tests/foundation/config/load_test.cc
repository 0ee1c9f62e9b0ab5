#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "complaint.h"
#include "foundation/core/machine/system.h"
#include "headroom/config/config.h"

namespace headroom::config::load_test {

namespace fs = std::filesystem;

// Makes a home folder with two recipes, and a current folder beside it.
class LoadConfig : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "headroom_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    before_ = fs::current_path();
    put("recipes/demo/sizes.toml", "[rows.small]\nmodel.n_layers = 2\n[rows.large]\nmodel.n_layers = 20\n");
    put("recipes/notes.txt", "no recipe");
    fs::create_directories(folder_ / "here");
    fs::current_path(folder_ / "here");
    ::setenv("HEADROOM_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HEADROOM_HOME");
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  void put(const std::string& name, std::string_view text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  fs::path folder_, before_;
};

TEST_F(LoadConfig, FindsFilesAndRecipes) {
  put("here/mine.toml", "[model]\nn_layers = 3\n");
  EXPECT_EQ(load_config("mine.toml").model.n_layers, 3);
  EXPECT_EQ(load_config("demo/small").model.n_layers, 2);
  EXPECT_EQ(load_config("demo/large").model.n_layers, 20);
  EXPECT_EQ(recipe_names(), (std::vector<std::string>{"demo/large", "demo/small"}));
}

TEST_F(LoadConfig, OverridesComeInOrderAndBeforeTheCheck) {
  EXPECT_EQ(load_config("demo/small", {"model.n_layers=7", "model.n_layers=8"}).model.n_layers, 8);
  EXPECT_EQ(subject_of(complaint_of([&] { load_config("demo/small", {"train.warmup_steps=5000"}); })),
            "--set: train.warmup_steps");
  EXPECT_EQ(load_config("demo/small", {"train.warmup_steps=5000", "train.steps=6000"}).train.warmup_steps, 5000);
}

TEST_F(LoadConfig, NamesTheLocationOfAnInvalidKey) {
  put("here/base.toml", "[model]\nmemory_length = 4\n");
  put("here/mine.toml", "base = \"base.toml\"\n[train]\nbatch_size = 10\n\naccumulate = 4\n");
  const auto complaint = [](const std::vector<std::string>& overrides) {
    return subject_of(complaint_of([&] { load_config("mine.toml", overrides); }));
  };
  EXPECT_EQ(complaint({}), "base.toml:2: model.memory_length");
  EXPECT_EQ(complaint({"model.memory_length=0"}), "mine.toml:5: train.accumulate");
  EXPECT_EQ(complaint({"model.memory_length=0", "train.accumulate=3"}), "--set: train.accumulate");
  EXPECT_EQ(complaint({"model.memory_length=0", "train.accumulate=5", "model.kind=vision"}).substr(0, 11),
            "mine.toml: ");
}

TEST_F(LoadConfig, FewerStepsCutTheWarmUp) {
  put("here/mine.toml", "[train]\nsteps = 500\nwarmup_steps = 100\n");
  EXPECT_EQ(load_config("mine.toml", {"train.steps=50"}).train.warmup_steps, 50);
  EXPECT_EQ(load_config("mine.toml", {"train.steps=200"}).train.warmup_steps, 100);
  EXPECT_EQ(subject_of(complaint_of([] {
              load_config("mine.toml", {"train.steps=50", "train.warmup_steps=60"});
            })),
            "--set: train.warmup_steps");
}

TEST_F(LoadConfig, SuggestsTheNearestName) {
  const auto suggestion = [](const std::string& name) {
    const std::string message = complaint_of([&] { load_config(name); });
    EXPECT_EQ(message.find(name + ": "), 0U) << message;
    return suggestion_of(message);
  };
  EXPECT_EQ(suggestion("demo/smal"), "demo/small");
  EXPECT_EQ(suggestion("large"), "demo/large");
  EXPECT_EQ(suggestion("recipes/demo/large.toml"), "demo/large");
  EXPECT_EQ(suggestion("elsewhere.toml"), "");
  EXPECT_EQ(suggestion(folder_.string()), "");
  EXPECT_EQ(suggestion("../demo/small"), "demo/small");
  for (const std::string folder : {"demo", "demo/"}) {  // no recipe is suggested, since any of them could be meant
    const std::string message = complaint_of([&] { load_config(folder); });
    EXPECT_TRUE(message.ends_with("; `headroom recipes demo/` lists the 2 recipes of this folder")) << message;
  }
  ::setenv("HEADROOM_HOME", "/nowhere", 1);
  EXPECT_EQ(suggestion("demo/small"), "");
}

TEST_F(LoadConfig, InheritsAndOverrides) {
  put("here/dense.toml", "[model]\nn_layers = 3\nd_model = 96\n[train]\nsteps = 7\n");
  put("here/runs/sparse.toml", "base = \"../dense.toml\"\n[model]\nn_layers = 5\n[model.attention]\nn_heads = 2\n");
  const Config config = load_config("runs/sparse.toml", {"train.seed=9"});
  EXPECT_EQ(config.model.n_layers, 5);
  EXPECT_EQ(config.model.d_model, 96);
  EXPECT_EQ(config.model.attention.n_heads, 2);
  EXPECT_EQ(config.train.steps, 7);
  const std::string text = to_toml(config, /*sources=*/true);
  EXPECT_NE(text.find("\nn_layers = 5  # runs/sparse.toml:3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nd_model = 96  # runs/../dense.toml:3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nseed = 9  # --set\n"), std::string::npos) << text;
  EXPECT_EQ(to_toml(parse_config(text, "again")), to_toml(config));
  put("here/of_recipe.toml", "base = \"demo/large\"\n[train]\nsteps = 8\n");
  EXPECT_EQ(load_config("of_recipe.toml").model.n_layers, 20);
}

TEST_F(LoadConfig, RefusesALongChain) {
  const auto chain = [&](int configs) {
    for (int i = 0; i < configs; ++i) {
      put(fmt::format("here/{}.toml", i), i + 1 < configs ? fmt::format("base = \"{}.toml\"\n", i + 1) : "");
    }
  };
  chain(100);
  EXPECT_NO_THROW(load_config("0.toml"));
  chain(101);
  EXPECT_EQ(subject_of(complaint_of([] { load_config("0.toml"); })), "0.toml: base");
}

TEST_F(LoadConfig, RefusesAWrongBase) {
  put("here/a.toml", "base = \"b.toml\"\n");
  put("here/b.toml", "base = \"c/../a.toml\"\n");
  fs::create_directories(folder_ / "here/c");
  EXPECT_EQ(subject_of(complaint_of([] { load_config("a.toml"); })), "a.toml: base");
  put("here/itself.toml", "base = \"itself.toml\"\n");
  EXPECT_EQ(subject_of(complaint_of([] { load_config("itself.toml"); })), "itself.toml: base");
  put("here/lost.toml", "\nbase = \"demo/smal\"\n");
  EXPECT_EQ(subject_of(complaint_of([] { load_config("lost.toml"); })), "lost.toml:2: base");
  put("here/number.toml", "base = 3\n");
  EXPECT_EQ(subject_of(complaint_of([] { load_config("number.toml"); })), "number.toml:1: base");
  put("here/wrong.toml", "[model]\nn_layers = 0\n");
  put("here/late.toml", "[model]\nn_layers = 1\nbase = \"demo/small\"\n");
  const std::string late = complaint_of([] { load_config("late.toml"); });
  EXPECT_EQ(subject_of(late), "late.toml:3: model.base");
  EXPECT_EQ(suggestion_of(late), "");  // the most similar key is not suggested
  put("here/of_wrong.toml", "base = \"wrong.toml\"\n");
  EXPECT_EQ(subject_of(complaint_of([] { load_config("of_wrong.toml"); })), "wrong.toml:2: model.n_layers");
}

TEST_F(LoadConfig, NamesOfFilesAreRelativeToTheFile) {
  put("here/runs/mine.toml",
      "[data]\ntrain = [\"a/*.txt\", \"/b.txt\", \"~/c\"]\nvalidation = [\"../v.txt\"]\n"
      "[tokenizer]\nmodel = \"t.model\"\n");
  const std::string here = fs::current_path().string();
  Config config = load_config("runs/mine.toml");
  EXPECT_EQ(config.data.train, (std::vector<std::string>{here + "/runs/a/*.txt", "/b.txt", with_home("~/c")}));
  EXPECT_EQ(config.data.validation, std::vector<std::string>{here + "/v.txt"});
  EXPECT_EQ(config.tokenizer.model, here + "/runs/t.model");
  config = load_config("runs/mine.toml", {"data.validation=[\"w.txt\"]"});
  EXPECT_EQ(config.data.validation, std::vector<std::string>{here + "/w.txt"});
  put("here/other/of_mine.toml", "base = \"../runs/mine.toml\"\n[data]\nvalidation = [\"x.txt\"]\n");
  config = load_config("other/of_mine.toml");
  EXPECT_EQ(config.data.train.front(), here + "/runs/a/*.txt");
  EXPECT_EQ(config.data.validation, std::vector<std::string>{here + "/other/x.txt"});
  put("recipes/demo/data.toml", "[data]\ntrain = [\"mnist/x\"]\n[rows.with_data]\nmodel.n_layers = 3\n");
  EXPECT_EQ(load_config("demo/with_data").data.train, std::vector<std::string>{here + "/mnist/x"});
}

TEST_F(LoadConfig, ARowChangesItsSetsAndTheseItsBase) {
  put("recipes/paper/table1.toml",
      "paper = \"P\"\nmade_for = \"the files of C4\"\n[model]\nn_layers = 2\nd_model = 96\n"
      "[sets.wide]\nmodel = { d_model = 48, context_length = 8 }\n[sets.long]\nmodel.context_length = 9\n"
      "[rows.a]\nrow = \"R=1, k=2\"\ntable = \"3\"\nabout = \"A\"\n"
      "[rows.b]\npaper = \"Q\"\nmade_for = \"the Pile\"\nsets = [\"wide\", \"long\"]\nmodel.d_model = 24\n"
      "[rows.c]\nbase = \"paper/b\"\nmodel.n_layers = 5\n[rows.d]\nbase = \"demo/large\"\n"
      "[rows.e.model]\nn_layers = 6\n");
  const auto sizes = [](const std::string& name) {
    const ModelOptions m = load_config(name).model;
    return std::vector<std::int64_t>{m.n_layers, m.d_model, m.context_length};
  };
  const std::int64_t d_model = ModelOptions().d_model, context = ModelOptions().context_length;
  EXPECT_EQ(sizes("paper/a"), (std::vector<std::int64_t>{2, 96, context}));
  EXPECT_EQ(sizes("paper/b"), (std::vector<std::int64_t>{2, 24, 9}));
  EXPECT_EQ(sizes("paper/c"), (std::vector<std::int64_t>{5, 24, 9}));
  EXPECT_EQ(sizes("paper/e"), (std::vector<std::int64_t>{6, 96, context}));
  EXPECT_EQ(sizes("paper/d"), (std::vector<std::int64_t>{20, d_model, context})) << "not on top of its file";
  EXPECT_EQ(load_config("paper/a").made_for, "the files of C4");
  EXPECT_EQ(load_config("paper/b").made_for, "the Pile");
  EXPECT_EQ(load_config("paper/d").made_for, "the files of C4");
  const std::vector<Recipe> recipes = list_recipes();
  ASSERT_EQ(recipes.size(), 7U);
  const Recipe &a = recipes[2], &c = recipes[4];
  EXPECT_EQ(a.name, "paper/a");
  EXPECT_EQ(a.file, folder_ / "recipes/paper/table1.toml");
  EXPECT_EQ(a.paper + "|" + a.table + "|" + a.row + "|" + a.about + "|" + a.base, "P|3|R=1, k=2|A|");
  EXPECT_EQ(recipes[3].paper, "Q");
  EXPECT_EQ(c.base, "paper/b");
  const std::string file = "../recipes/paper/table1.toml";
  EXPECT_EQ(suggestion_of(complaint_of([&] { load_config(file); })), "");
  EXPECT_TRUE(complaint_of([&] { load_config(file); }).ends_with("such as paper/a"));
  EXPECT_EQ(load_config("paper/c").given.at("model.n_layers"), (folder_ / "recipes/paper/table1.toml#c:21").string());
}

TEST_F(LoadConfig, RefusesAWrongRow) {
  put("recipes/paper/wrong.toml",
      "[rows.set]\nsets = [\"none\"]\n[rows.sets]\nsets = 3\n[rows.key]\nmodel.n_layer = 3\n[rows.losses]\nlosses = "
      "[1, \"a\"]\n[rows.itself]\nbase = \"paper/itself\"\n");
  const auto place = [&](const std::string& name) {
    const std::string complaint = complaint_of([&] { load_config("paper/" + name); });
    return complaint.substr(complaint.find('#') + 1,
                            complaint.find(": ", complaint.find(": ") + 2) - complaint.find('#') - 1);
  };
  EXPECT_EQ(place("set"), "set: sets");
  EXPECT_EQ(place("sets"), "sets:4: sets");
  EXPECT_EQ(place("key"), "key:6: model.n_layer");
  EXPECT_EQ(place("losses"), "losses:8: losses");
  EXPECT_EQ(place("itself"), "itself: base");
}

TEST_F(LoadConfig, RecordedLossesAreTheFilesOwnAndEndWithAnOverride) {
  put("here/losses.toml", "losses = [5, 4.5, 4, 3.5, 3]\n[train]\nsteps = 40\n");
  put("here/heir.toml", "base = \"losses.toml\"\n");
  EXPECT_EQ(load_config("losses.toml").recorded_losses, (std::vector<double>{5, 4.5, 4, 3.5, 3}));
  EXPECT_EQ(load_config("losses.toml", {"train.seed=2", "train.threads=1"}).recorded_losses.size(), 5u);
  EXPECT_TRUE(load_config("losses.toml", {"train.learning_rate=0.1"}).recorded_losses.empty());
  EXPECT_TRUE(load_config("heir.toml").recorded_losses.empty());
}

TEST_F(LoadConfig, ChangesReadBackOnTopOfTheirBase) {
  const auto read_back = [&](const std::string& base, const std::vector<std::string>& sets) {
    const Config changed = load_config(base, sets);
    put("elsewhere/changed.toml", changes_to_toml(changed, load_config(base), base));
    return std::pair(to_toml(load_config((folder_ / "elsewhere/changed.toml").string())), to_toml(changed));
  };
  put("here/mine.toml", "[tokenizer]\nvocabulary_size = 600\n[train]\nsteps = 500\n");
  const std::string mine = (folder_ / "here/mine.toml").string();
  for (const std::string& base : {mine, std::string("demo/small")}) {
    for (const std::vector<std::string>& sets : {std::vector<std::string>{},
                                                 {"model.attention.d_head=12", "data.train=[\"a \\\"b\\\".txt\"]"},
                                                 {"train.steps=7"},
                                                 {"tokenizer.vocabulary_size=700"}}) {
      const auto [read, changed] = read_back(base, sets);
      EXPECT_EQ(read, changed) << base;
    }
  }
  EXPECT_TRUE(load_config(mine, {"tokenizer.vocabulary_size=700"}).vocabulary_follows_tokenizer);
  EXPECT_EQ(changes_to_toml(load_config("demo/small", {"model.attention.d_head=12"}), load_config("demo/small"),
                            "demo/small"),
            "base = \"demo/small\"\n\n[model.attention]\nd_head = 12  # was 32\n");
  put("elsewhere/changed.toml",
      changes_to_toml(load_config(mine, {"tokenizer.vocabulary_size=700"}), load_config(mine), mine));
  EXPECT_TRUE(load_config((folder_ / "elsewhere/changed.toml").string()).vocabulary_follows_tokenizer)
      << "the tokenizer's size still decides";
}

TEST_F(LoadConfig, RefusesOtherFiles) {
  put("here/huge.toml", std::string(2 << 20, '#'));
  put("here/book.txt", "Call me Ishmael.\nSome years ago\n");
  put("here/long.txt", std::string(2 << 20, '#'));
  put("here/model.safetensors", "\x08\0\0");
  const auto complaint = [](const std::string& name) { return complaint_of([&] { load_config(name); }); };
  EXPECT_TRUE(complaint("huge.toml").starts_with("huge.toml: ")) << complaint("huge.toml");
  EXPECT_TRUE(complaint("book.txt").starts_with("book.txt:1: ")) << complaint("book.txt");
  for (const std::string name : {"book.txt", "long.txt"}) {  // the message suggests training on the file
    EXPECT_NE(complaint(name).find("data.train = [\"" + name + "\"]"), std::string::npos) << complaint(name);
  }
  EXPECT_TRUE(complaint("model.safetensors").starts_with("model.safetensors: is a checkpoint"));
}

TEST(Recipes, AllLoadAndReadBack) {
  ::setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  const std::vector<std::string> names = recipe_names();
  EXPECT_GT(names.size(), 40u);
  for (const std::string& name : names) {
    const Config config = load_config(name);
    EXPECT_EQ(to_toml(parse_config(to_toml(config), name)), to_toml(config)) << name;
    EXPECT_EQ(unused_keys(config), std::vector<std::string>()) << name;
  }
  ::unsetenv("HEADROOM_HOME");
}

// Without a warning, a forgotten `projection = "experts"` would train a dense model.
TEST_F(LoadConfig, UnusedKeysAreNamed) {
  put("here/mine.toml",
      "[model.attention]\nn_heads = 2\nn_experts = 7\nposition = \"none\"\n"
      "[model.mlp]\ntop_k = 3\n");
  const std::vector<std::string> said = unused_keys(load_config("mine.toml"));
  ASSERT_EQ(said.size(), 2);
  EXPECT_TRUE(said.back().ends_with(
      "mine.toml:6: model.mlp.top_k = 3 has no effect with kind = \"dense\", only with \"experts\""))
      << said.back();
  EXPECT_NE(said.front().find("mine.toml:3: model.attention.n_experts = 7 has no effect with projection = \"dense\", "
                              "only with \"experts\", \"gated_heads\" or \"routed_heads\""),
            std::string::npos)
      << said.front();
  EXPECT_EQ(unused_keys(load_config("mine.toml", {"model.attention.projection=experts"})).size(), 1);

  // Keys inherited from a base with another projection are not listed.
  put("here/experts.toml", "[model.attention]\nprojection = \"experts\"\nn_experts = 7\n");
  put("here/dense.toml", "base = \"experts.toml\"\n[model.attention]\nprojection = \"dense\"\n");
  EXPECT_TRUE(unused_keys(load_config("dense.toml")).empty());
  const std::vector<std::string> asked = unused_keys(load_config("dense.toml", {"model.attention.top_k=3"}));
  ASSERT_EQ(asked.size(), 1);
  EXPECT_EQ(asked.front(),
            "--set: model.attention.top_k = 3 has no effect with projection = \"dense\", only with \"experts\", "
            "\"gated_heads\", \"routed_heads\", \"routed_queries\" or \"shared_and_routed\"");
}

TEST_F(LoadConfig, UnusedKeysOutsideTheModelAreNamed) {
  put("here/mine.toml",
      "[tokenizer]\nkind = \"bytes\"\nkeep_whitespace = false\n[data]\naugment_flip = true\nclasses = [\"a\", \"b\"]\n"
      "synthetic_items = 3\n[train]\nschedule = \"constant\"\nfinal_learning_rate = 0.1\n[decoding]\nbeam_size = 2\n");
  const auto keys = [](const std::vector<std::string>& overrides) {
    std::vector<std::string> subjects;
    for (const std::string& warning : unused_keys(load_config("mine.toml", overrides))) {
      const std::string place = warning.substr(0, warning.find(" = "));
      subjects.push_back(place.substr(place.rfind(' ') + 1));
    }
    return subjects;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys({}), (Keys{"tokenizer.keep_whitespace", "data.synthetic_items", "data.classes", "data.augment_flip",
                            "train.final_learning_rate", "decoding.beam_size"}));
  EXPECT_EQ(keys({"data.synthetic=lookup", "train.schedule=linear"}),
            (Keys{"tokenizer.keep_whitespace", "data.classes", "data.augment_flip", "decoding.beam_size"}));
  EXPECT_EQ(keys({"model.kind=classifier", "model.n_classes=2", "model.vocabulary_size=256"}),
            (Keys{"tokenizer.keep_whitespace", "data.synthetic_items", "train.final_learning_rate"}));
  const std::vector<std::string> said = unused_keys(load_config("mine.toml", {"data.augment_shift=2"}));
  EXPECT_EQ(std::ranges::count(said,
                               "--set: data.augment_shift = 2 has no effect with model.kind = \"language_model\", "
                               "only with \"vision\""),
            1);
}

// The keys must not be compared with defaults before the checkpoint has completed the model.
TEST_F(LoadConfig, AModelThatACheckpointCompletesIsNotChecked) {
  put("here/tune.toml", "[model]\nmemory_length = 32\n[train]\nbatch_size = 4\nstart_from = \"run\"\n");
  EXPECT_EQ(load_run_config("tune.toml").model.memory_length, 32);
  const auto complaint = [](const std::vector<std::string>& overrides) {
    return subject_of(complaint_of([&] { load_run_config("tune.toml", overrides); }));
  };
  EXPECT_EQ(complaint({"train.accumulate=3"}), "--set: train.accumulate");
  EXPECT_EQ(complaint({"train.muon_momentum=0.9"}), "--set: train.muon_momentum");
  EXPECT_EQ(complaint({"data.max_words=9"}), "no error") << "the checkpoint may translate";
  EXPECT_EQ(complaint({"train.start_from="}), "tune.toml:2: model.memory_length");
  EXPECT_EQ(subject_of(complaint_of([] { load_config("tune.toml"); })), "tune.toml:2: model.memory_length");
}

}  // namespace headroom::config::load_test
