// Reads multiple-choice questions in the common format of evaluation suites or in the original format of a benchmark.
#include <algorithm>
#include <cctype>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "questions.h"

namespace headroom::zero_shot {
namespace {

// Reads fields of one row. Throws UserError if a field is missing or invalid.
class RowReader {
 public:
  RowReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  const std::string& where() const { return where_; }
  const Json& value(const char* key) const { return value_in(json_, key, where_); }
  std::string raw_text(const char* key) const { return text_in(json_, key, where_); }
  std::string text(const char* key) const { return std::string(trimmed(raw_text(key))); }
  std::string text_or_empty(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_string() ? std::string(trimmed(found->get_ref<const std::string&>())) : "";
  }
  std::vector<std::string> texts(const char* key) const { return texts_of(value(key), key); }
  std::vector<std::string> texts_of(const Json& list, const char* key) const {
    std::vector<std::string> texts;
    for (const Json& text : list) {
      texts.emplace_back(text.is_string() ? trimmed(text.get_ref<const std::string&>()) : "");
    }
    if (!list.is_array() || texts.size() < 2 || std::ranges::count(texts, "") > 0) {
      user_error("{}: field \"{}\" must be a list of at least two texts", where_, key);
    }
    return texts;
  }

  // Returns an index below `n`, stored as a number or a string and counted from `first`.
  std::size_t index(const char* key, std::size_t n, std::size_t first = 0) const {
    const Json& found = value(key);
    for (std::size_t i = 0; i < n; ++i) {
      if (found == i + first || found == std::to_string(i + first)) {
        return i;
      }
    }
    user_error("{}: field \"{}\" must be the index of the right choice, {} to {}, got {}", where_, key, first,
               first + n - 1, to_json_line(found));
  }

  // Returns the index of the field's value in `labels`.
  std::size_t label(const char* key, const std::vector<std::string>& labels) const {
    const std::string name = text(key);
    const auto found = std::ranges::find(labels, name);
    if (found == labels.end()) {
      user_error("{}: field \"{}\" must be the label of the right choice, {} to {}, got {}", where_, key,
                 labels.front(), labels.back(), to_json_line(name));
    }
    return static_cast<std::size_t>(found - labels.begin());
  }

  Question question(const std::string& context, const std::vector<std::string>& choices, std::size_t gold) const {
    Question question{.gold = gold, .where = where_};
    for (const std::string& choice : choices) {
      question.choices.push_back({context, " " + choice});
    }
    return question;
  }

 private:
  const Json& json_;
  const std::string& where_;
};

// Returns "A", "B", ...
std::vector<std::string> letters(std::size_t n, char first) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < n; ++i) {
    labels.emplace_back(1, static_cast<char>(first + static_cast<char>(i)));
  }
  return labels;
}

// Appends "Answer:" to texts that ask a question.
std::string prompt(std::string text) {
  text.erase(text.find_last_not_of(kBlanks) + 1);
  const bool asks = text.starts_with("Question:") || text.starts_with("Passage:") || text.starts_with("Context:");
  return asks && !text.ends_with("Answer:") ? text + "\nAnswer:" : text;
}

// Reads {"query", "choices", "gold"}, the format of evaluation suites.
Question suite_choices(const RowReader& row) {
  const std::string query = prompt(row.raw_text("query"));
  const std::vector<std::string> choices = row.texts("choices");
  return row.question(query, choices, row.index("gold", choices.size()));
}

// Reads {"context_options", "continuation", "gold"}: the choices are contexts of the same continuation.
Question suite_contexts(const RowReader& row) {
  const std::string continuation = fmt::format(" {}", row.text("continuation"));
  Question question{.where = row.where()};
  for (const std::string& option : row.texts("context_options")) {
    question.choices.push_back({option, continuation});
  }
  question.gold = row.index("gold", question.choices.size());
  return question;
}

Question piqa(const RowReader& row) {
  return row.question(fmt::format("Question: {}\nAnswer:", row.text("goal")), {row.text("sol1"), row.text("sol2")},
                      row.index("label", 2));
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    changed.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return changed.append(text);
}

// Removes bracketed marks, which end on the line where they begin.
std::string without_marks(std::string_view text) {
  std::string plain;
  std::size_t close = 0, line_end = 0;  // those found last
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') {
      close = close <= at ? text.find(']', at) : close;
      line_end = line_end <= at ? text.find('\n', at) : line_end;
      if (close < line_end) {
        at = close;
        continue;
      }
    }
    plain += text[at];
  }
  return plain;
}

// Cleans texts of WikiHow's headings as lm_eval does.
Question hellaswag(const RowReader& row) {
  const auto clean = [](const std::string& text) {
    return replaced(without_marks(replaced(trimmed(text), " [title]", ". ")), "  ", " ");
  };
  const std::string activity = row.text_or_empty("activity_label");
  std::string context = row.text("ctx"), rest = lower_case(row.text_or_empty("ctx_b"));
  if (!rest.empty()) {  // ctx is ctx_a and ctx_b
    rest.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(rest.front())));
    context = fmt::format("{} {}", row.text("ctx_a"), rest);
  }
  context = clean(activity.empty() ? context : fmt::format("{}: {}", activity, context));
  std::vector<std::string> endings = row.texts("endings");
  std::ranges::transform(endings, endings.begin(), clean);
  return row.question(context, endings, row.index("label", endings.size()));
}

Question winogrande(const RowReader& row) {
  const std::string sentence = row.text("sentence");
  const std::size_t gap = sentence.find('_');
  if (gap == std::string::npos) {
    user_error("{}: field \"sentence\" must contain _ where the options go", row.where());
  }
  Question question{.gold = row.index("answer", 2, 1), .where = row.where()};
  for (const char* option : {"option1", "option2"}) {
    question.choices.push_back({sentence.substr(0, gap) + row.text(option),
                                fmt::format(" {}", trimmed(std::string_view(sentence).substr(gap + 1)))});
  }
  return question;
}

Question boolq(const RowReader& row) {
  const Json& answer = row.value("answer");
  if (!answer.is_boolean()) {
    user_error("{}: field \"answer\" must be true or false, got {}", row.where(), to_json_line(answer));
  }
  return row.question(fmt::format("{}\nQuestion: {}?\nAnswer:", row.text("passage"), row.text("question")),
                      {"no", "yes"}, answer.get<bool>() ? 1 : 0);
}

Question sciq(const RowReader& row) {
  return row.question(
      fmt::format("{}\nQuestion: {}\nAnswer:", row.text_or_empty("support"), row.text("question")),
      {row.text("distractor1"), row.text("distractor2"), row.text("distractor3"), row.text("correct_answer")}, 3);
}

// Returns "A. <option>" for each option, one a line.
std::string lettered(const std::vector<std::string>& options, const std::vector<std::string>& names) {
  std::string lines;
  for (std::size_t i = 0; i < options.size(); ++i) {
    lines += fmt::format("{}. {}\n", names[i], options[i]);
  }
  return lines;
}

// Reads ARC, OpenBookQA and CommonsenseQA: {"text": [...], "label": [...]}.
Question labelled(const RowReader& row) {
  const Json& choices = row.value("choices");
  if (!choices.is_object()) {
    user_error("{}: field \"choices\" must be an object with \"text\" and \"label\"", row.where());
  }
  const std::vector<std::string> texts = row.texts_of(value_in(choices, "text", row.where()), "choices.text"),
                                 labels = row.texts_of(value_in(choices, "label", row.where()), "choices.label");
  if (texts.size() != labels.size()) {
    user_error("{}: field \"choices\" must have a label for each text, got {} labels for {} texts", row.where(),
               labels.size(), texts.size());
  }
  const std::size_t gold = row.label("answerKey", labels);
  if (const std::string stem = row.text_or_empty("question_stem"); !stem.empty()) {
    return row.question(stem, texts, gold);  // OpenBookQA
  }
  const std::string question = row.text("question");
  if (!row.text_or_empty("question_concept").empty()) {  // CommonsenseQA
    return row.question(fmt::format("Question: {}\n{}Answer:", question, lettered(texts, labels)), labels, gold);
  }
  return row.question(fmt::format("Question: {}\nAnswer:", question), texts, gold);
}

Question race(const RowReader& row) {
  const std::vector<std::string> options = row.texts("options");
  return row.question(fmt::format("Article: {}\n\nQuestion: {}\nAnswer:", row.text("article"), row.text("question")),
                      options, row.label("answer", letters(options.size(), 'A')));
}

// Returns "The man broke his toe because" or "... therefore".
Question copa(const RowReader& row) {
  std::string premise = row.text("premise");
  if (premise.ends_with('.')) {
    premise.pop_back();
  }
  const std::string asked = row.text("question");
  if (asked != "cause" && asked != "effect") {
    user_error("{}: field \"question\" must be \"cause\" or \"effect\", got \"{}\"", row.where(), printable(asked));
  }
  std::vector<std::string> choices = {row.text("choice1"), row.text("choice2")};
  for (std::string& choice : choices) {
    choice[0] = lower_case(choice[0]);
  }
  return row.question(fmt::format("{} {}", premise, asked == "cause" ? "because" : "therefore"), choices,
                      row.index("label", 2));
}

Question logiqa(const RowReader& row) {
  const std::vector<std::string> options = row.texts("options");
  const std::string asked = row.text_or_empty("question");
  const std::string text =
      fmt::format("Passage: {}\nQuestion: {}\nChoices:\n{}Answer:", row.text("context"),
                  asked.empty() ? row.text("query") : asked, lettered(options, letters(options.size(), 'A')));
  const std::size_t gold = row.text_or_empty("label").empty() ? row.index("correct_option", options.size())
                                                              : row.label("label", letters(options.size(), 'a'));
  return row.question(text, options, gold);
}

Question siqa(const RowReader& row) {
  return row.question(fmt::format("Q: {} {}\nA:", row.text("context"), row.text("question")),
                      {row.text("answerA"), row.text("answerB"), row.text("answerC")}, row.index("label", 3, 1));
}

struct RowLayout {
  std::vector<const char*> fields;  // a combination of fields that is unique to this layout
  Question (*read)(const RowReader& row);
  std::string_view benchmarks;
};

const std::vector<RowLayout>& layouts() {
  static const std::vector<RowLayout> kLayouts = {
      {{"context_options"}, suite_contexts, "winograd or winogrande"},
      {{"goal", "sol1", "sol2"}, piqa, "piqa"},
      {{"ctx", "endings"}, hellaswag, "hellaswag"},
      {{"sentence", "option1", "option2"}, winogrande, "winogrande"},
      {{"passage", "question", "answer"}, boolq, "boolq"},
      {{"correct_answer", "distractor1"}, sciq, "sciq"},
      {{"question_stem", "choices", "answerKey"}, labelled, "openbook_qa"},
      {{"choices", "answerKey"}, labelled, "arc_challenge, arc_easy, commonsense_qa or openbook_qa"},
      {{"article", "options"}, race, "race"},
      {{"premise", "choice1"}, copa, "copa"},
      {{"context", "options"}, logiqa, "logiqa"},
      {{"answerA", "answerB"}, siqa, "siqa"}};
  return kLayouts;
}

}  // namespace

Question read_choice(const Json& json, const std::string& where) {
  const auto fits = [&](const RowLayout& layout) {
    return std::ranges::all_of(layout.fields, [&](const char* field) { return json.contains(field); });
  };
  const auto layout = std::find_if(layouts().begin(), layouts().end(), fits);
  const RowReader row(json, where);
  if (layout == layouts().end()) {
    return suite_choices(row);
  }
  Question question = layout->read(row);
  question.of = layout->benchmarks;
  return question;
}

}  // namespace headroom::zero_shot
