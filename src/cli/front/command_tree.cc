#include "command_tree.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "tools/bench/bench_names.h"
#include "tools/zero_shot/task_names.h"

namespace headroom::cli {

namespace {

// Returns the values in "a|b|c". A value with a capital letter, such as "cuda:N", is a placeholder.
std::vector<std::string> choices_of(const std::string& value) {
  if (value.find('|') == std::string::npos) {
    return {};
  }
  std::vector<std::string> choices;
  std::istringstream words(value);
  for (std::string word; std::getline(words, word, '|');) {
    if (std::ranges::none_of(word, [](char c) { return c >= 'A' && c <= 'Z'; })) {
      choices.push_back(word);
    }
  }
  return choices;
}

// Returns the values of options whose type in the help is only NAME.
std::vector<std::string> named_values(const std::vector<std::string>& path, const std::string& option) {
  std::vector<std::string> names;
  if (path == std::vector<std::string>{"evaluate"} && option == "--task") {
    names.assign(std::begin(zero_shot::kTaskNames), std::end(zero_shot::kTaskNames));
  } else if (path == std::vector<std::string>{"bench"} && option == "NAME") {
    std::transform(std::begin(bench::kBenchNames), std::end(bench::kBenchNames), std::back_inserter(names),
                   [](const bench::BenchName& bench) { return bench.name; });
  }
  return names;
}

OptionText described(const CLI::Option& option, const std::vector<std::string>& path) {
  OptionText text{.about = option.get_description(), .positional = !option.nonpositional()};
  for (const std::string& name : option.get_snames()) {
    text.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    text.names.push_back("--" + name);
  }
  if (text.positional) {
    text.names = {option.get_name()};
  }
  const int most = option.get_items_expected_max();
  if (most > 0) {
    text.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
    text.choices = choices_of(text.value);
    if (text.choices.empty()) {
      text.choices = named_values(path, text.names.back());
    }
    text.repeats = most >= CLI::detail::expected_max_vector_size;
  }
  return text;
}

void collect(const CLI::App& app, const std::vector<std::string>& path, std::vector<CommandText>& all) {
  CommandText text{.path = path, .about = app.get_description(), .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) {  // options without a group are hidden
      text.options.push_back(described(*option, path));
    }
  }
  const std::vector<const CLI::App*> inner = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : inner) {
    text.inner.push_back(command->get_name());
  }
  all.push_back(std::move(text));
  for (const CLI::App* command : inner) {
    std::vector<std::string> below = path;
    below.push_back(command->get_name());
    collect(*command, below, all);
  }
}

}  // namespace

std::vector<CommandText> command_tree(const CLI::App& root) {
  std::vector<CommandText> all;
  collect(root, {}, all);
  return all;
}

}  // namespace headroom::cli
