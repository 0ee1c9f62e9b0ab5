// --task composition: DCFormer's synthetic tasks. Rows are {"task_id": "task12", "texts": "..."} with the answers in
// brackets. An answer is right if greedy decoding would produce it. Subsets are "block/pattern".
#include <iterator>
#include <string_view>

#include "data/synthetic/composition_task.h"
#include "data/text/text.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "questions.h"
#include "training/tasks/language/language_modelling.h"
#include "zero_shot.h"

namespace headroom::zero_shot {
namespace {

constexpr std::size_t kUnscored = 2;  // worked examples at the start of a row that are not scored

struct NamedRow {
  std::string subset;
  data::CompositionRow row;
  std::string where;
};

NamedRow named_row(int task, std::string_view text, const std::string& where) {
  const data::CompositionSubtask of = data::composition_subtask(task);
  return {.subset = of.block + "/" + of.pattern, .row = data::parse_composition_row(text, where), .where = where};
}

int task_number(const Json& row, const std::string& where) {
  constexpr std::string_view kPrefix = "task";
  const std::string id = text_in(row, "task_id", where);
  const auto number =
      id.starts_with(kPrefix) ? whole_number(std::string_view(id).substr(kPrefix.size())) : std::nullopt;
  if (!number || *number >= data::kCompositionSubtasks) {
    user_error("{}: field \"task_id\" must be task0 to task{}, got \"{}\"", where, data::kCompositionSubtasks - 1, id);
  }
  return static_cast<int>(*number);
}

std::vector<NamedRow> read_rows(const std::vector<data::Document>& documents) {
  std::vector<NamedRow> rows;
  for (const data::Document& document : documents) {
    for_each_row(document, [&](const Json& row, const std::string& where) {
      rows.push_back(named_row(task_number(row, where), text_in(row, "texts", where), where));
    });
  }
  return rows;
}

// Generates the validation rows of a run that was trained on generated data.
std::vector<NamedRow> generate_rows(const config::DataOptions& options) {
  if (options.generator != config::Generator::composition) {
    user_error(
        "evaluate: --task composition needs --data: the run was not trained on data.generator = \"composition\"");
  }
  const data::CompositionRows generated = data::composition_rows(options, data::Split::validation);
  std::vector<NamedRow> rows;
  for (std::int64_t i = 0; i < generated.rows; ++i) {
    const data::GeneratedRow row = data::generated_row(generated, i);
    rows.push_back(named_row(row.task, row.text, fmt::format("generated row {}", i)));
  }
  return rows;
}

std::vector<NamedRow> rows_of(const ZeroShotRequest& request) {
  if (request.data.empty()) {
    return generate_rows(request.run);
  }
  std::vector<NamedRow> rows =
      read_rows(data::read_documents(request.data, [](std::string_view name) { return data::is_json_lines(name); }));
  if (rows.empty()) {
    user_error("{}: holds no rows", request.data.string());
  }
  return rows;
}

}  // namespace

ZeroShotResult evaluate_composition(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                    const ZeroShotRequest& request) {
  if (request.shots != 0 || !request.shots_from.empty()) {
    user_error("evaluate: {} --task composition, whose rows contain worked examples",
               request.shots != 0 ? fmt::format("--shots: must be 0, got {}, with", request.shots)
                                  : "--shots-from: cannot be given with");
  }
  const std::vector<NamedRow> rows = rows_of(request);
  std::vector<tasks::Sequence> sequences;
  std::vector<std::size_t> counts;  // sequences per row
  for (const NamedRow& row : rows) {
    std::vector<tasks::Sequence> answers = tasks::answers_of(
        row.row, {.tokenizer = tokenizer, .model = model.options(), .where = row.where, .prefix = request.prefix});
    counts.push_back(answers.size());
    std::move(answers.begin(), answers.end(), std::back_inserter(sequences));
  }
  const tasks::Scores scores = tasks::score(model, sequences, request.options, "evaluate composition");
  ZeroShotResult result{.task = request.task,
                        .begin = request.prefix.kind,
                        .perplexity = true,
                        .mean_of_subsets = false,
                        .truncated = scores.truncated,
                        .texts = std::ssize(sequences),
                        .tokens = scores.tokens,
                        .complete = scores.complete};
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::size_t shots = kUnscored;
    for (const std::size_t end = next + counts[i]; next < end; ++next) {
      for (const tasks::SpanScore& answer : scores.spans[next]) {
        const Tally one{.questions = 1,
                        .right = answer.likeliest,
                        .log_probability = answer.log_probability,
                        .tokens = answer.tokens};
        result.subsets[rows[i].subset] += one;
        if (request.by_shots) {
          result.by_shots[shots++] += one;
        }
        if (request.items) {
          result.items.push_back({{"question", rows[i].where},
                                  {"subset", rows[i].subset},
                                  {"right", answer.likeliest},
                                  {"log_probability", answer.log_probability},
                                  {"tokens", answer.tokens}});
        }
      }
    }
  }
  return result;
}

}  // namespace headroom::zero_shot
