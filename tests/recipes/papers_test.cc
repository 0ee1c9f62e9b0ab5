// Compares every recipe with the values that its paper prints. This folder has a file of tables for each folder of
// recipes. A recipe with another value must state the paper's value in a comment. Every number that a recipe sets must
// be in a table; numbers that the paper does not print are in sections that name their source.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <regex>

#include "headroom/config/config.h"
#include "headroom/core/files.h"
#include "training/cost/cost.h"

namespace headroom::cost::papers_test {

using config::Config;
using config::Recipe;
using Cells = std::vector<std::string>;
using Values = std::vector<std::pair<std::string, std::string>>;  // keys are dotted

const std::string kSource = HEADROOM_SOURCE_DIR;
const char* const kFolders[] = {"switchhead", "moa", "dcmha", "mgk", "neighbours"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Splits "| a | b |" into {"a", "b"}.
Cells cells_of(const std::string& line) {
  Cells cells;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

// A value as the paper prints it, with its table, row and recipes.
struct Printed {
  std::string where, recipes, row, key, value;
  double tokens_of_an_epoch = 0.0;
};

std::vector<Printed> read_tables(const std::string& folder) {
  std::vector<Printed> all;
  std::string section;
  Cells keys;
  double tokens = 0.0;
  const std::regex epoch("An epoch has ([0-9,]+) tokens.*");
  for (const std::string& line : lines_of(read_text_file(kSource + "/tests/recipes/" + folder + ".md"))) {
    std::smatch found;
    if (line.starts_with("## ")) {
      section = line.substr(3);
      tokens = 0.0;
    } else if (std::regex_match(line, found, epoch)) {
      tokens = std::stod(std::regex_replace(found[1].str(), std::regex(","), ""));
    }
    if (!line.starts_with("|")) {
      keys.clear();
      continue;
    }
    const Cells cells = cells_of(line);
    if (keys.empty()) {
      keys = cells;
      EXPECT_EQ(keys.at(0), "recipe") << line;
      EXPECT_EQ(keys.at(1), "row") << line;
      continue;
    }
    EXPECT_EQ(cells.size(), keys.size()) << folder << ": " << line;
    for (std::size_t i = 2; !line.starts_with("|---") && i < std::min(cells.size(), keys.size()); ++i) {
      if (cells[i] != "-") {
        all.push_back({section, folder + "/" + cells[0], cells[1], keys[i], cells[i], tokens});
      }
    }
  }
  return all;
}

// Parses numbers such as "0.5M", "8k", "1%", "3e-4" and "8092 x 32". With a unit, only the printed digits count.
struct Number {
  double value = 0.0, tolerance = 0.0;
};

std::optional<Number> number_of(const std::string& text) {
  std::smatch found;
  static const std::regex kProduct("(\\d+) x (\\d+)");
  static const std::regex kNumber("(\\d+(?:\\.(\\d+))?(?:e-\\d+)?)([kKMGB%]?)");
  if (std::regex_match(text, found, kProduct)) {
    return Number{std::stod(found[1]) * std::stod(found[2])};
  }
  if (!std::regex_match(text, found, kNumber)) {
    return std::nullopt;
  }
  const std::map<std::string, double> units = {{"", 1.0},  {"%", 0.01}, {"k", 1e3}, {"K", 1e3},
                                               {"M", 1e6}, {"G", 1e9},  {"B", 1e9}};
  const double unit = units.at(found[3]);
  const double last_digit = std::pow(10.0, -static_cast<double>(found[2].length()));
  // The tolerance is half of the last digit, slightly enlarged because halves are rounded up.
  return Number{std::stod(found[1]) * unit, unit == 1.0 ? 0.0 : 0.5000001 * last_digit * unit};
}

// Removes a list's brackets and quotes; returns "none" for an empty list.
std::string plain(const std::string& value) {
  std::string text = std::regex_replace(value, std::regex("[\\[\\]\",]"), "");
  return text.empty() ? "none" : text;
}

bool agrees(const std::string& computed, const std::string& printed) {
  const std::optional<Number> ours = number_of(computed), theirs = number_of(printed);
  if (ours && theirs) {
    return std::abs(ours->value - theirs->value) <= theirs->tolerance + 1e-12 * theirs->value;
  }
  return plain(computed) == plain(printed);
}

double tokens_of_a_step(const Config& c) {
  if (c.train.batch_tokens > 0) {
    return static_cast<double>(c.train.batch_tokens);
  }
  const bool pictures = c.model.kind == config::ModelKind::vision;
  // Each row contains two special tokens.
  const std::int64_t markers = c.model.kind == config::ModelKind::masked_language_model ? 2 : 0;
  return static_cast<double>(c.train.batch_size * (pictures ? 1 : c.model.context_length - markers));
}

// The config keys that a table column determines, for columns that do not have the key's name.
const std::map<std::string, std::vector<std::string>> kDetermines = {
    {"d_ff", {"model.mlp.d_hidden", "model.mlp.n_experts"}},
    {"hidden_dropout", {"model.mlp.dropout"}},
    {"memory_chunks", {"model.memory_length"}},
    {"batch", {"train.batch_size", "train.batch_tokens"}},
    {"train.batch_tokens", {"train.batch_size"}},  // batch_size is then not the limit
    {"tokens", {"train.steps"}},
    {"epochs", {"train.steps"}},
    {"warmup", {"train.warmup_steps"}},
    {"tokenizer.vocabulary_size", {"model.vocabulary_size"}},
    {"model.vocabulary_size", {"tokenizer.vocabulary_size"}},
};

// A paper's training determines these keys even if a recipe keeps the default.
const char* const kOfEveryTraining[] = {
    "model.dropout",       "model.attention.dropout", "train.steps",           "train.batch_size",
    "train.learning_rate", "train.warmup_steps",      "train.betas",           "train.epsilon",
    "train.weight_decay",  "train.clip_norm",         "train.label_smoothing",
};

// Returns whether a key only sets how often a run is saved and validated, or how its batches are divided. Such a key is
// not from the paper unless a table has it.
bool is_operational(const std::string& key) {
  static const std::set<std::string> keys = {"train.checkpoint_every", "train.evaluate_every", "train.keep_checkpoints",
                                             "train.accumulate"};
  return keys.contains(key);
}

// Returns whether the value is like 3, 1e-4 or [0.9, 0.98].
bool is_numeric(const std::string& value) {
  static const std::regex numbers(R"(\[?[-+.e0-9]+(, [-+.e0-9]+)*\]?)");
  return std::regex_match(value, numbers);
}

std::string exactly(double value) {
  return fmt::format("{:.6f}", value);
}

// Computes the columns that are not config keys.
std::optional<std::string> derived(const Config& c, const Printed& printed) {
  const std::string& key = printed.key;
  const double steps = static_cast<double>(c.train.steps);
  if (key == "parameters") {
    return exactly(static_cast<double>(count_parameters(c.model)));
  }
  if (key == "attention_macs" || key == "attention_memory") {
    const PaperCost cost = paper_cost(c.model);
    return exactly(static_cast<double>(key == "attention_macs" ? cost.attention_macs : cost.attention_memory));
  }
  if (key == "d_ff") {
    const bool experts = c.model.mlp.kind == config::MlpKind::experts;
    return fmt::format("{}", c.model.mlp.d_hidden * (experts ? c.model.mlp.n_experts : 1));
  }
  if (key == "hidden_dropout") {
    return fmt::format("{}", c.model.hidden_dropout());
  }
  if (key == "memory_chunks") {
    return c.model.memory_length == 0 ? "none" : c.model.memory_length == c.model.context_length ? "one" : "several";
  }
  if (key == "batch") {
    return exactly(tokens_of_a_step(c));
  }
  if (key == "tokens") {
    return exactly(steps * tokens_of_a_step(c));
  }
  if (key == "warmup") {
    return exactly(static_cast<double>(c.train.warmup_steps) / steps);
  }
  if (key == "epochs") {
    EXPECT_GT(printed.tokens_of_an_epoch, 0.0) << printed.where << ": no line \"An epoch has ... tokens\"";
    const double epochs = steps * tokens_of_a_step(c) / printed.tokens_of_an_epoch, whole = std::stod(printed.value);
    return std::abs(epochs - whole) < 0.01 * whole ? printed.value : exactly(epochs);
  }
  return std::nullopt;
}

// Returns the only key that is `short_name` or ends with it, such as model.attention.n_heads for n_heads. If several
// keys match, attention's is returned.
std::pair<std::string, std::string> key_named(const Values& values, const std::string& short_name) {
  Values found;
  for (const auto& [key, value] : values) {
    if (key == short_name || key.ends_with("." + short_name)) {
      found.emplace_back(key, value);
    }
  }
  if (found.size() > 1) {
    std::erase_if(found, [](const auto& entry) { return !entry.first.starts_with("model.attention."); });
  }
  EXPECT_EQ(found.size(), 1U) << short_name << " names " << found.size() << " keys";
  return found.empty() ? std::pair<std::string, std::string>() : found.front();
}

bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const auto part = [&](std::size_t i) {
      return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
    };
    if ((at == 0 || !part(at - 1)) && !part(at + word.size())) {
      return true;
    }
  }
  return false;
}

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = (setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1), config::list_recipes());
  return all;
}

// Returns the lines from a heading of a recipe file to the next row or set; for "", the lines before the first heading.
std::string block_of(const std::filesystem::path& file, const std::string& heading) {
  std::string block = "\n", at;
  for (const std::string& line : lines_of(read_text_file(file))) {
    if (line.starts_with("[rows.") || line.starts_with("[sets.")) {
      at = line;
    }
    block += at == heading ? line + "\n" : "";
  }
  return block;
}

// Returns the texts of the row, of its sets and of its bases, nearest first.
std::vector<std::string> texts_of(const std::string& name) {
  const Recipe& recipe = *std::ranges::find(recipes(), name, &Recipe::name);
  const std::string row = block_of(recipe.file, "[rows." + name.substr(name.find('/') + 1) + "]");
  std::vector<std::string> texts = {row};
  std::smatch sets;
  std::regex_search(row, sets, std::regex("\nsets = \\[(.*)\\]\n"));
  const std::string names = sets[1], quoted = "\"([^\"]*)\"";
  const std::regex one(quoted);
  for (std::sregex_iterator at(names.begin(), names.end(), one), end; at != end; ++at) {
    texts.push_back(block_of(recipe.file, "[sets." + (*at)[1].str() + "]"));
  }
  std::vector<std::string> inherited;
  if (row.find("\nbase = ") == std::string::npos) {
    texts.push_back(block_of(recipe.file, ""));
  }
  if (!recipe.base.empty()) {
    inherited = texts_of(recipe.base);
  }
  texts.insert(texts.end(), inherited.begin(), inherited.end());
  return texts;
}

// Returns whether a comment of this text has the paper's value: on the line of the key, or on a separate line that
// mentions the paper. Sets `sets_key` to true if the text sets the key.
bool says_so_in(const std::string& text, const std::string& key, const std::string& value, bool& sets_key) {
  const std::regex of_paper("paper|print|appendix|section|Table|A\\.\\d", std::regex::icase);
  std::string section, before;
  for (const std::string& line : lines_of(text)) {
    const std::size_t hash = line.find('#');
    if (line.starts_with('[')) {
      section = line.substr(1, line.find(']') - 1);
    }
    // The sentence may start on the previous line.
    const bool comment = hash == 0;
    if (comment && has_word(line, value) && std::regex_search(before + line, of_paper)) {
      return true;
    }
    before = comment ? line : "";
    const std::string set = line.substr(0, line.find(' '));
    const std::string name = section.starts_with("rows.") || section.starts_with("sets.") ? set : section + "." + set;
    const std::string in_braces = " " + key.substr(key.rfind('.') + 1) + " = ";
    if (hash != 0 && (name == key || (key.starts_with(name + ".") && line.find(in_braces) != std::string::npos))) {
      sets_key = true;
      if (hash != std::string::npos && has_word(line.substr(hash), value)) {
        return true;
      }
    }
  }
  return false;
}

// Returns whether the recipe, or the base that sets the key, explains a value that differs from the paper's.
bool says_so(const std::string& recipe, const std::string& key, const std::string& value) {
  bool sets_key = false;
  for (const std::string& text : texts_of(recipe)) {
    if (says_so_in(text, key, value, sets_key)) {
      return true;
    }
    if (sets_key) {
      return false;
    }
  }
  return false;
}

std::vector<std::string> matching(const std::string& pattern) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (fnmatch(pattern.c_str(), recipe.name.c_str(), FNM_PATHNAME) == 0) {
      names.push_back(recipe.name);
    }
  }
  return names;
}

class Papers : public testing::TestWithParam<const char*> {};

TEST_P(Papers, RecipesHaveWhatTheTablesPrintOrSayWhyNot) {
  std::map<std::string, std::pair<Config, Values>> configs;
  std::map<std::string, std::set<std::string>> in_tables;  // keys of each recipe
  for (const Printed& printed : read_tables(GetParam())) {
    const std::vector<std::string> names = matching(printed.recipes);
    EXPECT_FALSE(names.empty()) << printed.where << ": no recipe " << printed.recipes;
    for (const std::string& name : names) {
      if (!configs.contains(name)) {
        const Config config = config::load_config(name);
        configs.emplace(name, std::pair(config, config::flatten(config)));
      }
      const auto& [config, values] = configs.at(name);
      std::string key = printed.key, value;
      if (const std::optional<std::string> figure = derived(config, printed)) {
        value = *figure;
      } else {
        std::tie(key, value) = key_named(values, printed.key);
      }
      for (const std::string& column : {printed.key, key}) {
        in_tables[name].insert(column);
        if (const auto found = kDetermines.find(column); found != kDetermines.end()) {
          in_tables[name].insert(found->second.begin(), found->second.end());
        }
      }
      EXPECT_TRUE(agrees(value, printed.value) || says_so(name, key, printed.value))
          << name << ": " << key << " is " << value << ", but " << printed.value << " in " << printed.where << ", row "
          << printed.row << ", and no comment says so";
    }
  }
  for (const std::string& name : matching(GetParam() + std::string("/*"))) {
    ASSERT_TRUE(configs.contains(name)) << name << " is in no row of tests/recipes/" << GetParam() << ".md";
    const auto& [config, values] = configs.at(name);
    std::set<std::string> keys(std::begin(kOfEveryTraining), std::end(kOfEveryTraining));
    for (const auto& [key, value] : values) {
      if (config.given.contains(key) && is_numeric(value) && !is_operational(key)) {
        keys.insert(key);
      }
    }
    for (const std::string& key : keys) {
      EXPECT_TRUE(in_tables.at(name).contains(key)) << name << ": " << key << " = " << config::value_of(config, key)
                                                    << " is in no row of tests/recipes/" << GetParam() << ".md";
    }
  }
}

// The count is in the recipe's text, or at the top of the file, as "# 243,326,784 parameters".
TEST(ParameterCounts, StatedByRecipesAreExact) {
  for (const Recipe& recipe : recipes()) {
    const std::vector<std::string> texts = texts_of(recipe.name);
    std::string text = texts.front();
    if (recipe.name.starts_with("neighbours/")) {  // the file's only row or its first one
      text += texts.at(1);
    }
    std::smatch found;
    if (std::regex_search(text, found, std::regex("\n# ([0-9,]+) parameters"))) {
      const std::int64_t stated = std::stoll(std::regex_replace(found[1].str(), std::regex(","), ""));
      EXPECT_EQ(count_parameters(config::load_config(recipe.name).model), stated) << recipe.name;
    } else {
      EXPECT_FALSE(recipe.name.starts_with("neighbours/")) << recipe.name << " states no number of parameters";
    }
  }
}

// Finds "A training step needs at least 29 GiB" in the recipe, or in the nearest base with such a comment.
double needed_gibibytes(const std::string& recipe) {
  std::smatch found;
  for (const std::string& text : texts_of(recipe)) {
    if (std::regex_search(text, found, std::regex("\n# A training step needs at least (\\d+) GiB"))) {
      return std::stod(found[1]);
    }
  }
  return 0.0;
}

TEST(RecipeMemory, AStepFits24GibibytesOrTheRecipeSaysWhatItNeeds) {
  for (const Recipe& recipe : recipes()) {
    const double needs = static_cast<double>(step_memory(config::load_config(recipe.name)).total) / (1 << 30);
    const double said = needed_gibibytes(recipe.name);
    if (needs > 24.0) {
      EXPECT_NEAR(said, needs, 0.03 * needs) << recipe.name;
    } else {
      EXPECT_EQ(said, 0.0) << recipe.name << " needs " << needs << " GiB";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folder, Papers, testing::ValuesIn(kFolders),
                         [](const auto& folder) { return std::string(folder.param); });

TEST(PrintedNumbers, AgreeToTheirLastDigit) {
  EXPECT_TRUE(agrees("47247416.000000", "47M"));
  EXPECT_FALSE(agrees("47600000.000000", "47M"));
  EXPECT_TRUE(agrees("453427200.000000", "453.4M"));
  EXPECT_FALSE(agrees("453427200.000000", "453.5M"));
  EXPECT_TRUE(agrees("0.00025", "2.5e-4"));
  EXPECT_TRUE(agrees("258944", "8092 x 32"));
  EXPECT_FALSE(agrees("0.11", "0.1"));
  EXPECT_TRUE(agrees("[\"v\", \"o\"]", "v o"));
  EXPECT_TRUE(agrees("[]", "none"));
  EXPECT_FALSE(agrees("relu", "gelu"));
  EXPECT_TRUE(has_word("the paper says 32k", "32k"));
  EXPECT_FALSE(has_word("it has 132k of them", "32k"));
  EXPECT_TRUE(is_numeric("[0.9, 0.98]") && is_numeric("1e-05"));
  EXPECT_FALSE(is_numeric("[\"v\"]") || is_numeric("true"));
}

}  // namespace headroom::cost::papers_test
