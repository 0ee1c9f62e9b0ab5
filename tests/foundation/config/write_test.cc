#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "complaint.h"
#include "foundation/core/random.h"
#include "headroom/config/config.h"
#include "headroom/config/part_options.h"

namespace headroom::config::write_test {

std::string read_back(const Config& config) {
  return to_toml(parse_config(to_toml(config), "copy"));
}

TEST(ToToml, KeepsEveryCharacter) {
  Config config;
  std::string all;
  for (char c = 0; c < 127; ++c) {
    all += c;
  }
  all += "\x7f ä 漢 \xf0\x9f\x98\x80 \"\"\" ''' \\";
  config.data.separator = all;
  config.data.train = {all, "", "a,b", "]"};
  const Config copy = parse_config(to_toml(config), "copy");
  EXPECT_EQ(copy.data.separator, all);
  EXPECT_EQ(copy.data.train, config.data.train);
}

// Sets a field to a random permitted value.
struct Randomiser {
  Random& random;
  const Field& field;

  double number() const {
    const double low = std::isfinite(field.range.low) ? field.range.low : -1e6;
    const double high = std::isfinite(field.range.high) ? field.range.high : low + 1e6;
    const double x = low + (high - low) * (0.001 + 0.998 * random.uniform());
    return random.below(2) == 0 ? x : low + (high - low) * 0.5 * random.uniform() + 1e-9;
  }
  std::string text() const {
    static const std::string kPieces[] = {"a", "\"", "\\", "\n", "ä", "漢", " ", "=", "[", "#", "'", "\t", "\x01", "."};
    std::string text;
    for (std::uint64_t n = random.below(8); n > 0; --n) {
      text += kPieces[random.below(std::size(kPieces))];
    }
    return text;
  }
  void operator()(bool* slot) const { *slot = random.below(2) == 0; }
  void operator()(std::int64_t* slot) const { *slot = static_cast<std::int64_t>(std::ceil(number())); }
  void operator()(double* slot) const { *slot = number(); }
  void operator()(std::string* slot) const {
    *slot =
        field.table ? fmt::format("\"a\" = {{\"b\" = {}, \"c\" = \"{}\"}}", random.below(9), random.below(9)) : text();
  }
  void operator()(std::vector<std::int64_t>* slot) const {
    slot->assign(random.below(4), 0);
    for (std::int64_t& x : *slot) {
      x = static_cast<std::int64_t>(std::ceil(number()));
    }
  }
  void operator()(std::vector<double>* slot) const {
    slot->assign(random.below(4), 0);
    for (double& x : *slot) {
      x = number();
    }
  }
  void operator()(std::vector<std::string>* slot) const {
    slot->assign(random.below(4), "");
    for (std::string& x : *slot) {
      x = field.choices.empty() ? text() : field.choices[random.below(field.choices.size())];
    }
  }
  void operator()(std::vector<LayerOptions>* slot) const {
    slot->assign(random.below(3), {});
    for (LayerOptions& layer : *slot) {
      layer.repeat = static_cast<std::int64_t>(1 + random.below(9));
      layer.attention["dropout"] = fmt::format("0.{}", 1 + random.below(9));
    }
  }
  void operator()(const Choice& choice) const { choice.set(choice.names[random.below(choice.names.size())]); }
};

TEST(ToToml, RandomConfigsReadBackExactly) {
  Random random(11);
  for (int i = 0; i < 500; ++i) {
    Config config;
    Fields fields;
    describe(fields, config);
    fields.root().for_each([&](const std::string&, const Field& field) {
      std::visit(Randomiser{random, field}, field.slot);
    });
    EXPECT_EQ(read_back(config), to_toml(config));
    EXPECT_EQ(flatten(parse_config(to_toml(config), "copy")), flatten(config));
  }
}

// Makes values of another type than the field's, and numbers outside its range.
struct WrongValues {
  const Field& field;
  std::vector<std::string> numbers() const {
    std::vector<std::string> all;
    for (const double edge : {field.range.low - 1, field.range.high + 1}) {
      if (std::abs(edge) < 1e6) {
        all.push_back(fmt::format("{}", edge));
      }
    }
    return all;
  }
  std::vector<std::string> with(std::vector<std::string> types) const {
    const std::vector<std::string> beyond = numbers();
    types.insert(types.end(), beyond.begin(), beyond.end());
    return types;
  }
  std::vector<std::string> operator()(const bool*) const { return {"1", "\"yes\""}; }
  std::vector<std::string> operator()(const std::int64_t*) const { return with({"\"two\"", "true", "1.5", "[1]"}); }
  std::vector<std::string> operator()(const double*) const { return with({"\"small\"", "[0.5]", "nan"}); }
  std::vector<std::string> operator()(const Choice&) const { return {"\"no_such_name\"", "[1]"}; }
  std::vector<std::string> operator()(const std::vector<LayerOptions>*) const { return {"3", "[3]"}; }
  std::vector<std::string> operator()(const std::string*) const { return {"true", "[1]"}; }
  template <class T>
  std::vector<std::string> operator()(const std::vector<T>*) const {
    return {"true", "5", std::is_same_v<T, std::string> ? "[1]" : "[\"a\"]"};
  }
};

TEST(Keys, RefuseWrongValuesByName) {
  Config config;
  Fields fields;
  describe(fields, config);
  int refused = 0;
  fields.root().for_each([&](const std::string& dotted, const Field& field) {
    const std::vector<std::string> wrong = std::visit(WrongValues{field}, field.slot);
    for (const std::string& value : wrong) {
      const std::string text = complaint_of([&] { parse_config(fmt::format("\n{} = {}", dotted, value), "x.toml"); });
      EXPECT_TRUE(text.starts_with("x.toml:2: " + dotted)) << value << ": " << text;
      ++refused;
    }
    if (!std::holds_alternative<std::string*>(field.slot)) {  // any word is a valid text
      const std::string text = complaint_of([&] { set_key(config, dotted + "=" + wrong[0]); });
      EXPECT_TRUE(text.starts_with("--set: " + dotted)) << wrong[0] << ": " << text;
    }
  });
  EXPECT_GT(refused, 400);
}

TEST(ValueOf, ReadsEntriesOfLayersAsWell) {
  const Config config = parse_config(
      "[[model.layers]]\nrepeat = 2\nattention = { window = 8, composition = \"dynamic\" }\n[[model.layers]]\n",
      "x.toml");
  EXPECT_EQ(value_of(config, "model.layers.0.attention.window"), "8");
  EXPECT_EQ(value_of(config, "model.layers.0.attention.composition"), "dynamic");
  EXPECT_EQ(value_of(config, "model.layers.0.repeat"), "2");
  EXPECT_EQ(value_of(config, "model.layers.1.repeat"), "1");
  EXPECT_EQ(value_of(config, "model.layers.0.attention"), "{composition = \"dynamic\", window = 8}");
  EXPECT_EQ(value_of(config, "model.attention.window"), "0");
  EXPECT_THROW(value_of(config, "model.layers.1.attention.window"), Error);
  EXPECT_THROW(value_of(config, "train.parts"), Error);
}

TEST(TakeValues, OfTheRequestedKeys) {
  Config from, to;
  from.model.d_model = 64;
  from.model.norm = Norm::rms;
  from.model.attention.projection = "experts";
  from.model.attention.of<ExpertOptions>().experts = {"q"};
  from.train.steps = 7;
  from.tokenizer.model = "x";
  take_values(to, from, [](std::string_view key) { return key.starts_with("model.") && key != "model.d_model"; });
  EXPECT_EQ(value_of(to, "model.d_model"), "256");
  EXPECT_EQ(value_of(to, "model.norm"), "rms");
  EXPECT_EQ(value_of(to, "model.attention.projection"), "experts");
  EXPECT_EQ(value_of(to, "model.attention.experts"), "[\"q\"]");
  EXPECT_EQ(value_of(to, "train.steps"), "1000");
  take_values(to, from, [](std::string_view) { return true; });
  EXPECT_EQ(flatten(to), flatten(from));
}

TEST(Help, ExplainsEveryKeyWithItsDefaultAndChoices) {
  Config config;
  Fields fields;
  describe(fields, config);
  const std::string help = help_text();
  int n_fields = 0;
  fields.root().for_each([&](const std::string& dotted, const Field& field) {
    ++n_fields;
    EXPECT_GT(field.about.size(), 10u) << dotted;
    EXPECT_EQ(field.about.find('\n'), std::string::npos) << dotted;
    EXPECT_NE(help.find("\n  " + field.key + " = "), std::string::npos) << dotted;
    if (const Choice* const choice = std::get_if<Choice>(&field.slot)) {
      for (const std::string& name : choice->names) {
        EXPECT_NE(help.find(name), std::string::npos) << dotted << " " << name;
      }
    }
  });
  EXPECT_GT(n_fields, 70);
  EXPECT_NE(help.find("\n[model.attention]  "), std::string::npos);
  EXPECT_NE(help.find("\n  n_layers = 4                      blocks of attention and MLP (1 to 65536)\n"),
            std::string::npos)
      << help;
  EXPECT_NE(help.find("(layer | rms)"), std::string::npos);
  for (std::size_t begin = 0, end = 0; begin < help.size(); begin = end + 1) {
    end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100u) << help.substr(begin, end - begin);
  }
}

}  // namespace headroom::config::write_test
