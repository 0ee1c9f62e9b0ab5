#include "composition.h"

#include <algorithm>
#include <charconv>

#include "headroom/core/error.h"
#include "headroom/data/composition.h"
#include "headroom/tasks/scoring.h"
#include "rows.h"

namespace headroom::tasks::zero_shot {
namespace {

struct NamedRow {
  std::string subset;
  data::CompositionRow row;
  std::string where;
};

int number_in(const Json& row, const std::string& where) {
  constexpr std::string_view kPrefix = "task";
  const std::string id = text_in(row, "task_id", where);
  int number = -1;
  const char* const end = id.data() + id.size();
  const bool fits = id.starts_with(kPrefix) && std::from_chars(id.data() + kPrefix.size(), end, number).ptr == end;
  if (!fits || number < 0 || number >= data::kCompositionTasks) {
    misuse("{}: field \"task_id\" must be task0 to task{}, got \"{}\"", where, data::kCompositionTasks - 1, id);
  }
  return number;
}

std::vector<NamedRow> read_rows(const std::vector<data::Document>& documents) {
  std::vector<NamedRow> rows;
  for (const data::Document& document : documents) {
    for_each_row(document, [&](const Json& row, const std::string& where) {
      const data::CompositionTask task = data::composition_task(number_in(row, where));
      rows.push_back({.subset = task.block + "/" + task.pattern,
                      .row = data::parse_composition(text_in(row, "texts", where), where),
                      .where = where});
    });
  }
  return rows;
}

// The validation rows of a run on generated data.
std::vector<NamedRow> generate_rows(const config::DataOptions& options) {
  if (options.generator != config::Generator::composition) {
    misuse("evaluate: --task composition needs --data: the run was not trained on data.generator = \"composition\"");
  }
  const data::CompositionRows generated = data::composition_rows(options, data::Part::validation);
  std::vector<NamedRow> rows;
  for (std::int64_t i = 0; i < generated.rows; ++i) {
    const data::GeneratedRow row = data::generated_row(generated, i);
    const data::CompositionTask task = data::composition_task(row.task);
    const std::string where = fmt::format("generated row {}", i);
    rows.push_back(
        {.subset = task.block + "/" + task.pattern, .row = data::parse_composition(row.text, where), .where = where});
  }
  return rows;
}

std::vector<NamedRow> rows_of(const ZeroShotRequest& request) {
  if (request.data.empty()) {
    return generate_rows(request.run);
  }
  std::vector<NamedRow> rows = read_rows(data::read_documents(
      request.data, [](std::string_view name) { return name.ends_with(".jsonl") || name.ends_with(".json"); }));
  if (rows.empty()) {
    misuse("{}: holds no rows", request.data.string());
  }
  return rows;
}

// The row read once where the model's context holds it; a sequence an answer otherwise, so that each has all the
// context that there is room for.
void add_sequences(const NamedRow& named, const data::Tokenizer& tokenizer, bool whole, std::vector<Sequence>& all) {
  std::vector<Sequence> answers;
  for (const auto& answer : named.row.answers) {
    const std::string_view text = named.row.text;
    const std::size_t blank = text.substr(0, answer.begin).ends_with(' ') ? 1 : 0;
    answers.push_back(to_sequence(tokenizer, text.substr(0, answer.begin - blank),
                                  text.substr(answer.begin - blank, answer.end - answer.begin + blank), named.where));
  }
  if (!whole) {
    all.insert(all.end(), answers.begin(), answers.end());
    return;
  }
  // Text up to an answer's end has the same tokens as the beginning of the longest of them.
  Sequence& last = answers.back();
  std::vector<Span> spans;
  for (const Sequence& answer : answers) {
    const bool begins = std::equal(answer.tokens.begin(), answer.tokens.end(), last.tokens.begin(),
                                   last.tokens.begin() + std::min(std::ssize(answer.tokens), std::ssize(last.tokens)));
    if (!begins) {
      all.insert(all.end(), answers.begin(), answers.end());
      return;
    }
    spans.push_back(answer.scored.front());
  }
  last.scored = std::move(spans);
  all.push_back(std::move(last));
}

}  // namespace

ZeroShotResult evaluate_composition(const models::LanguageModel& model, const data::Tokenizer& tokenizer,
                                    const ZeroShotRequest& request) {
  if (request.shots != 0) {
    misuse("evaluate: --shots: must be 0 with --task composition, whose rows have their own, got {}", request.shots);
  }
  const std::vector<NamedRow> rows = rows_of(request);
  std::vector<Sequence> sequences;
  std::vector<std::size_t> counts;  // sequences of each row
  for (const NamedRow& row : rows) {
    const std::size_t before = sequences.size();
    add_sequences(row, tokenizer, /*whole=*/true, sequences);
    const bool fits = model.options().memory_length > 0 || sequences.size() > before + 1 ||
                      std::ssize(sequences.back().tokens) <= model.options().context_length + 1;
    if (!fits) {
      sequences.resize(before);
      add_sequences(row, tokenizer, /*whole=*/false, sequences);
    }
    counts.push_back(sequences.size() - before);
  }
  const Scores scores = score(model, sequences, request.options, "evaluate composition");
  ZeroShotResult result{.task = request.task,
                        .perplexity = true,
                        .truncated = scores.truncated,
                        .texts = std::ssize(sequences),
                        .tokens = scores.tokens,
                        .complete = scores.complete};
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Tally& tally = result.subsets[rows[i].subset];
    for (const std::size_t end = next + counts[i]; next < end; ++next) {
      for (const SpanScore& answer : scores.spans[next]) {
        ++tally.questions;
        tally.right += answer.likeliest;
        tally.log_probability += answer.log_probability;
      }
    }
  }
  return result;
}

}  // namespace headroom::tasks::zero_shot
