// The commands and their options as the parser knows them: what completion and the manual page are made from.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace headroom::cli {

struct OptionText {
  std::vector<std::string> names;    // "-q", "--quiet"; of an argument without a dash: its name alone
  std::string value;                 // "FILE", "a|b|c"; empty: a flag
  std::vector<std::string> choices;  // of the value, where it has no others
  std::string about;
  bool positional = false;
  bool repeats = false;
};

struct CommandText {
  std::vector<std::string> path;  // "tokenizer", "train"; empty: the program itself
  std::string about, footer;
  std::vector<OptionText> options;
  std::vector<std::string> inner;  // commands below it
};

// The program, then every command in the order of the help.
std::vector<CommandText> command_tree(const CLI::App& root);

// "tokenizer train", or with another character between.
std::string joined(const std::vector<std::string>& words, const std::string& between = " ");

}  // namespace headroom::cli
