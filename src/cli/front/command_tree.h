// The commands and options as data, from which shell completion and the manual page are generated.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cli {

struct OptionText {
  std::vector<std::string> names;    // "-q", "--quiet"; the name of a positional argument
  std::string value;                 // "FILE", "a|b|c"; empty for a flag
  std::vector<std::string> choices;  // all values, if they can be enumerated
  std::string about;
  bool positional = false;
  bool repeats = false;
};

struct CommandText {
  std::vector<std::string> path;  // "tokenizer", "train"; empty for the program
  std::string about, footer;
  std::vector<OptionText> options;
  std::vector<std::string> inner;  // names of the subcommands
};

// Returns the program, then every command, in the order of the help.
std::vector<CommandText> command_tree(const CLI::App& root);

// Joins the words with `between`.
std::string joined(const std::vector<std::string>& words, const std::string& between = " ");

// Returns a completion script for "bash", "zsh" or "fish". `keys`: the config keys for options of the form KEY=VALUE.
// The script runs `headroom recipes` to complete recipe names.
std::string completion_script(const std::vector<CommandText>& commands, const std::vector<std::string>& keys,
                              std::string_view shell);

}  // namespace headroom::cli
