#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "complaint.h"
#include "headroom/config/config.h"

namespace headroom::config {
namespace load_test {

namespace fs = std::filesystem;

// A home with two recipes, and the current folder next to them.
class LoadConfig : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "headroom_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    before_ = fs::current_path();
    put("recipes/demo/small.toml", "[model]\nn_layers = 2\n");
    put("recipes/demo/large.toml", "[model]\nn_layers = 20\n");
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
  EXPECT_EQ(load_config((folder_ / "recipes/demo/large.toml").string()).model.n_layers, 20);
  EXPECT_EQ(recipe_names(), (std::vector<std::string>{"demo/large", "demo/small"}));
}

TEST_F(LoadConfig, AFileGoesBeforeARecipe) {
  put("here/demo/small", "[model]\nn_layers = 5\n");
  EXPECT_EQ(load_config("demo/small").model.n_layers, 5);
}

TEST_F(LoadConfig, OverridesComeInOrderAndBeforeTheCheck) {
  EXPECT_EQ(load_config("demo/small", {"model.n_layers=7", "model.n_layers=8"}).model.n_layers, 8);
  const std::string file = (folder_ / "recipes/demo/small.toml").string();
  EXPECT_EQ(complaint_of([&] { load_config("demo/small", {"train.warmup_steps=5000"}); }),
            file + ": train.warmup_steps: must be at most steps = 1000, got 5000");
  EXPECT_EQ(load_config("demo/small", {"train.warmup_steps=5000", "train.steps=6000"}).train.warmup_steps, 5000);
}

TEST_F(LoadConfig, NamesTheFileAndLine) {
  put("here/bad.toml", "[model]\nn_layer = 3\n");
  EXPECT_EQ(complaint_of([] { load_config("bad.toml"); }),
            "bad.toml:2: model.n_layer: unknown key, did you mean n_layers?");
}

TEST_F(LoadConfig, SaysWhatWasMeant) {
  const auto complaint = [](const std::string& name) { return complaint_of([&] { load_config(name); }); };
  EXPECT_EQ(complaint("demo/smal"), "demo/smal: is neither a file nor a recipe's name, did you mean demo/small?");
  EXPECT_EQ(complaint("large"), "large: is neither a file nor a recipe's name, did you mean demo/large?");
  EXPECT_EQ(complaint("recipes/demo/large.toml"),
            "recipes/demo/large.toml: is neither a file nor a recipe's name, did you mean demo/large?");
  EXPECT_EQ(complaint("elsewhere.toml"), "elsewhere.toml: is neither a file nor a recipe's name");
  EXPECT_EQ(complaint(folder_.string()), folder_.string() + ": is a folder, neither a TOML file nor a recipe's name");
  EXPECT_EQ(complaint("../demo/small"),
            "../demo/small: is neither a file nor a recipe's name, did you mean demo/small?");
  ::setenv("HEADROOM_HOME", "/nowhere", 1);
  EXPECT_EQ(complaint("demo/small"), "demo/small: is neither a file nor a recipe's name");
}

TEST_F(LoadConfig, RefusesAFileThatIsNoConfig) {
  put("here/huge.toml", std::string(2 << 20, '#'));
  EXPECT_EQ(complaint_of([] { load_config("huge.toml"); }),
            "huge.toml: too large for a text file: at most 1048576 bytes are read");
}

TEST(Recipes, AllLoadAndReadBack) {
  ::setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  const std::vector<std::string> names = recipe_names();
  EXPECT_GT(names.size(), 40u);
  for (const std::string& name : names) {
    const Config config = load_config(name);
    EXPECT_EQ(to_toml(parse_config(to_toml(config), name)), to_toml(config)) << name;
  }
  ::unsetenv("HEADROOM_HOME");
}

}  // namespace load_test
}  // namespace headroom::config
