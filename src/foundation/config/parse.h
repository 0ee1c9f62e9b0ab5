// What reading files and reading assignments (`--set`) share.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "headroom/config/config.h"

namespace headroom::config::detail {

// Throws UserError "<origin>:<line>: not valid TOML: ...", also for text that nests too deeply.
toml::table parse_toml(std::string_view text, std::string_view origin);

// Sets the values of a file in `config` and records their places in config.given. File names become relative to
// `folder`; if it is empty, they stay as they are.
void read_onto(Config& config, const toml::table& values, std::string_view origin, const std::filesystem::path& folder);

// Makes the file names of a field absolute, relative to `folder`. Does nothing for other fields.
void make_absolute(const Field& field, const std::filesystem::path& folder);

// The present name of a key that earlier versions called `dotted`; any other name is returned as it is.
std::string current_name(const std::string& dotted);

// "Did you mean": for an unknown key `wrong` in the table `table` ("" for the top), the dotted name of, in this order,
// the same key in another table, the key that other tools call so ("lr"), a similar key of the table, a similar key
// elsewhere; or "".
std::string nearest_key(const Table& all, const std::string& table, std::string_view wrong);

// Whether a place in GivenKeys is an option of the command line instead of a file.
bool is_option(std::string_view place);

// Derives keys that are not set: one vocabulary size from the other, and the context length of a vision model from its
// patches.
void resolve(Config& config, const GivenKeys& given);
void resolve_context(ModelOptions& model, const GivenKeys& given);

}  // namespace headroom::config::detail
