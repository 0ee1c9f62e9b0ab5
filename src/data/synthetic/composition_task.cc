#include "composition_task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "composition_words.h"
#include "headroom/core/error.h"

namespace headroom::data {
namespace {

constexpr int kForms = 2, kPatterns = 4, kBlocks = 7, kFactTasks = kBlocks * kPatterns * kForms;
constexpr int kShots = 8, kUnscored = 2;
enum Block { superclass, object_copy, country, city_copy, capability, opposite, next };
enum Pattern { other_person, same_person, who_not, who };

constexpr const char* kBlockNames[] = {"object_superclass", "object_copy",        "city_country", "city_copy",
                                       "tool_capability",   "adjective_opposite", "ordinal_next"};
constexpr const char* kPatternNames[] = {"other_person", "same_person", "who_not", "who"};
// The blocks of tasks 56 to 73. Each block has two tasks: "Which is not ...?" and "Which is different?".
constexpr const char* kOddNames[] = {"odd_object_copy",        "odd_object_superclass", "odd_city_copy",
                                     "odd_city_country",       "odd_tool_copy",         "odd_tool_capability",
                                     "odd_adjective_opposite", "odd_ordinal_before",    "odd_ordinal_after"};

template <class List>
const auto& pick(const List& list, Random& random) {
  return list[static_cast<std::size_t>(random.below(std::size(list)))];
}

// Draws `count` distinct integers from 0..n-1.
std::vector<std::size_t> different(std::size_t n, std::size_t count, Random& random) {
  std::vector<std::size_t> places;
  while (places.size() < count) {
    const auto draw = static_cast<std::size_t>(random.below(n));
    if (std::ranges::find(places, draw) == places.end()) {
      places.push_back(draw);
    }
  }
  return places;
}

std::string capitalised(std::string text) {
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

// The value that a fact states about a person.
struct Value {
  std::string with_article;  // "a lynx"
  std::string name;          // "lynx"
  std::string is_or_are;     // "is"
  std::string answer;        // superclass, country, ..., or the name itself
  std::string preposition, unit;
};

Value value_of(const Thing& thing, std::string_view answer) {
  const bool bare = thing.article.empty() || thing.article == "-";
  return {.with_article = bare ? std::string(thing.name) : fmt::format("{} {}", thing.article, thing.name),
          .name = std::string(thing.name),
          .is_or_are = thing.article.empty() ? "are" : "is",
          .answer = std::string(answer),
          .preposition = "",
          .unit = ""};
}

// Values with distinct answers, and a twin with the first value's answer: another member of its class, or the same
// value if the class has no other.
struct Values {
  std::vector<Value> different;
  Value twin;
};

Values things_of(const std::vector<ThingClass>& classes, std::size_t n, bool copy, Random& random) {
  Values values;
  const std::vector<std::size_t> chosen = different(classes.size(), n, random);
  for (const std::size_t place : chosen) {
    const ThingClass& kind = classes[place];
    const std::vector<std::size_t> two = different(kind.things.size(), 2, random);
    const Thing &thing = kind.things[two[0]], &another = kind.things[two[1]];
    values.different.push_back(value_of(thing, copy ? thing.name : kind.name));
    if (place == chosen.front()) {
      values.twin = copy ? values.different.front() : value_of(another, kind.name);
    }
  }
  return values;
}

Values values_of(Block block, std::size_t n, Random& random) {
  switch (block) {
    case superclass:
    case object_copy:
      return things_of(superclasses(), n, block == object_copy, random);
    case country:
    case city_copy:
      return things_of(countries(), n, block == city_copy, random);
    case capability:
      return things_of(capabilities(), n, false, random);
    case opposite: {
      Values values;
      for (const std::size_t place : different(kOpposites.size(), n, random)) {
        const Opposites& pair = kOpposites[place];
        const bool turned = random.below(2) == 1;
        const std::string_view said = turned ? pair.other : pair.one, meant = turned ? pair.one : pair.other;
        values.different.push_back(value_of({"-", said}, meant));
      }
      values.twin = values.different.front();
      return values;
    }
    case next: {
      Values values;
      const Order& order = pick(orders(), random);
      const std::size_t last = order.circular ? order.values.size() : order.values.size() - 1;
      for (const std::size_t place : different(last, n, random)) {
        Value value = value_of({"-", order.values[place]}, order.values[(place + 1) % order.values.size()]);
        value.preposition = order.preposition;
        value.unit = order.unit;
        values.different.push_back(std::move(value));
      }
      values.twin = values.different.front();
      return values;
    }
  }
  fail("composition: there is no block {}", static_cast<int>(block));
}

std::string fact(Block block, int form, const std::string& person, const Value& value) {
  const bool first = form == 0;
  switch (block) {
    case superclass:
    case object_copy:
    case capability:
      return first ? fmt::format("{} has {}.", person, value.with_article)
                   : fmt::format("The {} {} {}'s.", value.name, value.is_or_are, person);
    case country:
    case city_copy:
      return first ? fmt::format("{} likes {}.", person, value.name)
                   : fmt::format("{} attracts {}.", value.name, person);
    case opposite:
      return first ? fmt::format("{} is {}.", person, value.name)
                   : fmt::format("{} {}.", capitalised(value.name), person);
    case next:
      return first ? fmt::format("{} arrived {} {}.", person, value.preposition, value.name)
                   : fmt::format("{} {} arrived {}.", capitalised(value.preposition), value.name, person);
  }
  return {};
}

// The words between the person (or "Who") and the answer, by block: "has a kind of", "does not have a kind of".
struct Predicate {
  const char *does, *does_not, *rest;
};
constexpr Predicate kPredicates[kBlocks] = {{"has", "does not have", " a kind of"},
                                            {"owns", "does not own", ""},
                                            {"longs for", "does not long for", " the city in"},
                                            {"wants to visit", "does not want to visit", ""},
                                            {"has", "does not have", " the thing that can"},
                                            {"is", "is not", " the opposite of"},
                                            {"arrived", "did not arrive", " the {} just before"}};

std::string predicate(Block block, bool negated, const Value& value) {
  const Predicate& words = kPredicates[block];
  return (negated ? words.does_not : words.does) + fmt::format(fmt::runtime(words.rest), value.unit);
}

// An example: the text up to the answer, and the answer.
struct WorkedExample {
  std::string text, answer;
};

WorkedExample fact_example(int task, Random& random) {
  const auto block = static_cast<Block>(task / (kPatterns * kForms));
  const auto pattern = static_cast<Pattern>(task / kForms % kPatterns);
  const int form = task % kForms;
  const std::vector<std::size_t> people = different(kPersons.size(), 3, random);
  const auto person = [&](std::size_t i) { return std::string(kPersons[people[i]]); };
  const std::size_t source = random.below(3);  // index of the fact that gives the answer
  const Values values = values_of(block, 3, random);
  std::vector<std::string> facts;
  std::size_t others = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const bool is_source = i == source;
    // other_person: two facts are about the person in the question. who_not: two people have the value in the question.
    const std::string& who_has = pattern == other_person ? (is_source ? person(1) : person(0)) : person(i);
    if (pattern == who_not) {
      facts.push_back(fact(block, form, who_has,
                           is_source       ? values.different[1]
                           : others++ == 0 ? values.different[0]
                                           : values.twin));
    } else {
      facts.push_back(fact(block, form, who_has, values.different[i]));
    }
  }
  const std::string begin = fmt::format("< {} >. ", fmt::join(facts, " "));
  const bool negated = pattern == other_person || pattern == who_not;
  if (pattern == other_person || pattern == same_person) {
    const Value& value = values.different[source];
    return {begin + person(pattern == other_person ? 0 : source) + " " + predicate(block, negated, value),
            value.answer};
  }
  const Value& value = values.different[pattern == who_not ? 0 : source];
  return {fmt::format("{}Who {} {}?", begin, predicate(block, negated, value), value.answer), person(source)};
}

WorkedExample odd_example(int task, Random& random) {
  const int kind = (task - kFactTasks) / kForms;
  const bool by_name = (task - kFactTasks) % kForms == 0;
  constexpr Block kOf[] = {object_copy, superclass, city_copy, country, object_copy, capability, opposite, next, next};
  const bool tool = kind == 4, after = kind == 8;
  Values values = tool ? things_of(capabilities(), 2, true, random) : values_of(kOf[kind], 2, random);
  if (after) {  // reversed: the successor is shown, its predecessor is the answer
    for (Value& value : values.different) {
      std::swap(value.name, value.answer);
      value.with_article = value.name;
    }
  }
  const Value &twice = values.different[0], &odd = values.different[1];
  const std::size_t place = random.below(3);
  std::vector<std::string> said;
  for (std::size_t i = 0; i < 3; ++i) {
    said.push_back(i == place ? odd.with_article : twice.with_article);
  }
  const std::string begin =
      fmt::format("There are {}. {}", fmt::join(said, ", "),
                  by_name ? fmt::format("Which is not {}?", twice.name) : std::string("Which is different?"));
  const std::string before_answer[] = {"The",
                                       "A kind of",
                                       "",
                                       "The city in",
                                       "The",
                                       "The thing that can",
                                       "The opposite of",
                                       fmt::format("The {} just before", odd.unit),
                                       fmt::format("The {} just after", odd.unit)};
  const std::string& words = before_answer[kind];
  return {words.empty() ? begin : begin + " " + words, odd.answer};
}

class GeneratedText : public tokenizers::TextSource {
 public:
  explicit GeneratedText(const CompositionRows& rows) : rows_(rows) {}

  bool next(std::string& block) override {
    constexpr std::size_t kEnough = std::size_t{64} << 10;
    block.clear();
    for (; row_ < rows_.rows && block.size() < kEnough; ++row_) {
      block += parse_composition_row(generated_row(rows_, row_).text, "composition").text;
    }
    return !block.empty();
  }
  void rewind() override { row_ = 0; }
  std::int64_t bytes_read() const override { return row_ * kBytesPerRow; }
  std::int64_t bytes_total() const override { return rows_.rows * kBytesPerRow; }
  std::string fingerprint() const override {
    return fmt::format("composition 1, {} rows, seed {}", rows_.rows, rows_.seed);
  }

 private:
  static constexpr std::int64_t kBytesPerRow = 650;  // estimate, for progress bars
  CompositionRows rows_;
  std::int64_t row_ = 0;
};

}  // namespace

CompositionSubtask composition_subtask(int number) {
  if (number < 0 || number >= kCompositionSubtasks) {
    fail("composition: there are tasks 0 to {}, got {}", kCompositionSubtasks - 1, number);
  }
  if (number < kFactTasks) {
    return {kBlockNames[number / (kPatterns * kForms)], kPatternNames[number / kForms % kPatterns]};
  }
  // The authors put which_not before which_different.
  return {kOddNames[(number - kFactTasks) / kForms], number % kForms == 0 ? "which_not" : "which_different"};
}

CompositionRow parse_composition_row(std::string_view text, std::string_view where) {
  constexpr std::string_view kOpen = "[ ", kClose = " ]";
  CompositionRow row;
  while (!text.empty()) {
    const std::size_t open = text.find('[');
    row.text += text.substr(0, open);
    if (open == std::string_view::npos) {
      break;
    }
    text.remove_prefix(open);
    const std::size_t close = text.find(']');
    const bool fits = text.starts_with(kOpen) && close != std::string_view::npos && close > kOpen.size() + 1 &&
                      text.substr(close - 1, 2) == kClose && text.find('[', 1) > close &&
                      text.substr(0, close).find('\n') == std::string_view::npos;
    if (!fits) {
      user_error("{}: an answer must be written \"[ answer ]\", got \"{}\"", where,
                 text.substr(0, std::min<std::size_t>(text.find('\n'), 40)));
    }
    const std::string_view answer = text.substr(kOpen.size(), close - 1 - kOpen.size());
    row.answers.push_back({.begin = row.text.size(), .end = row.text.size() + answer.size()});
    row.text += answer;
    text.remove_prefix(close + 1);
  }
  if (row.text.find(']') != std::string::npos) {
    user_error("{}: unmatched \"]\"", where);
  }
  if (row.answers.empty()) {
    user_error("{}: must have answers, written \"[ answer ]\"", where);
  }
  return row;
}

std::string generate_composition_row(int task, Random& random) {
  std::string text = "\n";
  for (int shot = 0; shot < kShots; ++shot) {
    const WorkedExample example = task < kFactTasks ? fact_example(task, random) : odd_example(task, random);
    text += shot < kUnscored ? fmt::format("{} {}\n", example.text, example.answer)
                             : fmt::format("{} [ {} ]\n", example.text, example.answer);
  }
  return text;
}

CompositionRows composition_rows(const config::DataOptions& options, Split split) {
  constexpr std::int64_t kTrain = 50'000, kValidation = 888;  // kValidation: size of the authors' evaluation set
  const bool train = split == Split::train;
  const std::int64_t wanted = train ? options.generated_train : options.generated_validation;
  return {.rows = wanted > 0 ? wanted
                  : train    ? kTrain
                             : kValidation,
          .seed = mix(static_cast<std::uint64_t>(options.generator_seed), train ? "train" : "validation")};
}

GeneratedRow generated_row(const CompositionRows& rows, std::int64_t row) {
  Random random(mix(rows.seed, static_cast<std::uint64_t>(row)));
  const int task = static_cast<int>(random.below(kCompositionSubtasks));
  return {.task = task, .text = generate_composition_row(task, random)};
}

std::unique_ptr<tokenizers::TextSource> composition_text(const CompositionRows& rows) {
  return std::make_unique<GeneratedText>(rows);
}

}  // namespace headroom::data
