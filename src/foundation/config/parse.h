// Shared by the readers of files and of assignments (`--set`).
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "headroom/config/config.h"

namespace headroom::config::detail {

// Parses TOML. Throws UserError "<origin>:<line>: not valid TOML: ...", also for text that is nested too deeply.
toml::table parse_toml(std::string_view text, std::string_view origin);

// Sets the values of a file in `config` and records their places in config.given. File names are resolved relative to
// `folder`; if it is empty, they are left unchanged.
void read_onto(Config& config, const toml::table& values, std::string_view origin, const std::filesystem::path& folder);

// Makes the file names of a field absolute, relative to `folder`. Does nothing for other fields.
void make_absolute(const Field& field, const std::filesystem::path& folder);

// Returns the current name of a key that earlier versions called `dotted`. Any other name is returned unchanged.
std::string current_name(const std::string& dotted);

// Returns the dotted name to suggest for an unknown key `wrong` in the table `table` ("" at the top level). In order of
// preference, this is the same key in another table, the key that other tools call `wrong` ("lr"), a similar key in the
// table, or a similar key elsewhere. Returns "" if there is none.
std::string nearest_key(const Table& all, const std::string& table, std::string_view wrong);

// Returns whether a place in GivenKeys is a command-line option instead of a file.
bool is_option(std::string_view place);

// Derives keys that are not set: one vocabulary size from the other, the context length of a vision model from the
// number of its patches, and the top_k of an attention part that determines it.
void resolve(Config& config, const GivenKeys& given);
void resolve_model(ModelOptions& model, const GivenKeys& given);  // without the vocabulary size

}  // namespace headroom::config::detail
