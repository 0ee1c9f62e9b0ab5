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

// Returns a completion script for "bash", "zsh" or "fish". The script runs `headroom __complete WORD...` with the words
// before the cursor, the last one unfinished or empty, and offers what completions() returns.
std::string completion_script(std::string_view shell);

// The name of that command, which is not listed.
inline constexpr std::string_view kComplete = "__complete";

// Returns a line for each word that may stand at the end: the word, or the word, a tab and its description. The line
// ":files" stands for the names of files. `keys`: the config keys, for options of the form KEY=VALUE.
std::string completions(const std::vector<CommandText>& commands, const std::vector<std::string>& keys,
                        const std::vector<std::string>& words);

}  // namespace headroom::cli
