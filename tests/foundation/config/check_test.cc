#include <gtest/gtest.h>

#include "complaint.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/config.h"
#include "headroom/config/part_options.h"
#include "headroom/core/files.h"

namespace headroom::config::check_test {

using Settings = std::map<std::string, std::string>;  // TOML values of dotted keys

std::string complaint(std::string_view text) {
  return subject_of(complaint_of([&] { check(parse_config(text, "x"), "x"); }));
}

std::string full_name(const std::string& table, const std::string& key) {
  const bool whole = key.starts_with("model.") || key.starts_with("data.") || key.starts_with("tokenizer.");
  return whole ? key : table + "." + key;
}

// Adds "key = value; key = value".
void add(Settings& settings, const std::string& table, const std::string& text) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const std::size_t equals = part.find('=');
    settings[full_name(table, std::string(trimmed(part.substr(0, equals))))] = trimmed(part.substr(equals + 1));
  }
}

TEST(Check, AcceptsAndRefusesTheCombinationsOfTheTable) {
  std::istringstream lines(read_text_file(HEADROOM_SOURCE_DIR "/tests/foundation/config/checks"));
  std::string table;
  Settings common;
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      const std::size_t end = line.find(']');
      table = line.substr(1, end - 1);
      common.clear();
      add(common, table, std::string(trimmed(line.substr(end + 1))));
    } else if (const std::size_t bar = line.find('|'); bar != std::string::npos) {
      const std::string key(trimmed(line.substr(0, bar)));
      Settings settings = common;
      add(settings, table, std::string(trimmed(line.substr(bar + 1))));
      std::string text;
      for (const auto& [name, value] : settings) {
        text += fmt::format("{} = {}\n", name, value);
      }
      EXPECT_EQ(complaint(text), key == "ok" ? "no error" : "x: " + full_name(table, key)) << text;
      ++checked;
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(Check, AStepReadsAsManyWholeSequencesAsFitItsTokens) {
  Config config;
  config.model.context_length = 256;
  config.train.batch_size = 160;
  EXPECT_EQ(config.whole_sequences(), 160);
  config.train.batch_tokens = 4096;
  EXPECT_EQ(config.whole_sequences(), 16);
  config.train.batch_size = 8;
  EXPECT_EQ(config.whole_sequences(), 8);
}

TEST(Check, DerivedValuesFollowUntilTheyAreSet) {
  Config routed = parse_config("[model.attention]\nprojection = \"routed_heads\"\nn_heads = 3", "x");
  EXPECT_EQ(routed.model.attention.of<RoutingOptions>().top_k, 3);
  set_key(routed, "model.attention.n_heads=4");
  EXPECT_EQ(routed.model.attention.of<RoutingOptions>().top_k, 4);
  set_key(routed, "model.attention.top_k=3");
  EXPECT_EQ(routed.model.attention.of<RoutingOptions>().top_k, 3);
  Config vision = parse_config("[model]\nkind = \"vision\"\nn_classes = 2\nimage_size = 32\npatch_size = 8\n", "x");
  EXPECT_EQ(vision.model.context_length, 16);
  set_key(vision, "model.patch_size=4");
  EXPECT_EQ(vision.model.context_length, 64);
  set_key(vision, "model.context_length=63");
  EXPECT_EQ(vision.model.context_length, 63);
}

}  // namespace headroom::config::check_test
