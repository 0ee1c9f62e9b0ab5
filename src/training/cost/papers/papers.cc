#include "papers.h"

#include <fnmatch.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "foundation/core/files/folders.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::cost {

namespace fs = std::filesystem;

namespace {

// Reads the "# key: value" comments at the top of the file.
void read_header(std::string_view text, Recipe& recipe) {
  const std::pair<std::string_view, std::string*> keys[] = {{"# paper: ", &recipe.paper},
                                                            {"# table: ", &recipe.table},
                                                            {"# row: ", &recipe.row},
                                                            {"# about: ", &recipe.about}};
  while (text.starts_with('#')) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    for (const auto& [key, value] : keys) {
      if (line.starts_with(key) && value->empty()) {
        *value = line.substr(key.size());
      }
    }
  }
}

}  // namespace

std::vector<Recipe> list_recipes(const fs::path& folder) {
  std::vector<Recipe> recipes;
  const std::error_code error = walk_folder(folder, [&](const fs::directory_entry& entry) {
    if (entry.path().extension() == ".toml" && entry.is_regular_file()) {
      Recipe recipe{.name = entry.path().lexically_relative(folder).replace_extension().generic_string(),
                    .file = entry.path()};
      read_header(read_text_file(recipe.file), recipe);
      recipes.push_back(std::move(recipe));
    }
    return true;
  });
  if (error) {
    user_error("recipes: cannot list {}: {}", folder.string(), error.message());
  }
  std::ranges::sort(recipes, [](const Recipe& a, const Recipe& b) { return a.name < b.name; });
  return recipes;
}

std::vector<Recipe> list_recipes() {
  return list_recipes(fs::path(home_folder()) / "recipes");
}

extern const std::string_view kPapersMd;  // docs/papers.md, embedded by the build

namespace {

// Parses a table row of docs/papers.md: "| item | what | recipes | by |".
PaperItem parse_row(std::string_view row) {
  constexpr std::string_view kSeparator = " | ";
  PaperItem item;
  std::string* const cells[] = {&item.item, &item.shows, &item.recipes, &item.how};
  std::string_view rest = row.substr(2, row.size() - 4);
  for (std::string* const cell : cells) {
    const std::size_t end = cell == &item.how ? rest.size() : rest.find(kSeparator);
    if (end == std::string_view::npos) {
      fail("docs/papers.md: a row must have four cells, got: {}", row);
    }
    *cell = rest.substr(0, end);
    rest.remove_prefix(std::min(end + kSeparator.size(), rest.size()));
  }
  std::erase(item.recipes, '`');
  return item;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

}  // namespace

std::vector<Paper> papers() {
  constexpr std::string_view kTitle = "## ", kCommand = "`headroom papers ";
  std::vector<Paper> all;
  std::istringstream page{std::string(kPapersMd)};
  for (std::string text; std::getline(page, text);) {
    const std::string_view line = text;
    if (line.starts_with(kTitle)) {
      all.push_back({.name = {}, .title = std::string(line.substr(kTitle.size())), .items = {}});
    } else if (!all.empty() && line.starts_with(kCommand)) {
      all.back().name = line.substr(kCommand.size(), line.size() - kCommand.size() - 1);
    } else if (!all.empty() && line.starts_with("| ") && !line.starts_with("| |")) {
      all.back().items.push_back(parse_row(line));
    }
  }
  return all;
}

std::vector<Paper> papers_named(std::string_view name) {
  std::vector<Paper> found;
  std::string names;
  for (const Paper& paper : papers()) {
    names += (names.empty() ? "" : ", ") + paper.name;
    if (name.empty() || name == paper.name) {
      found.push_back(paper);
    }
  }
  if (found.empty()) {
    user_error("papers: {}: unknown paper, expected one of {}", name, names);
  }
  return found;
}

std::vector<const Recipe*> recipes_of(const PaperItem& item, const std::vector<Recipe>& all) {
  const std::vector<std::string> patterns = words_of(item.recipes);
  std::vector<const Recipe*> found;
  for (const Recipe& recipe : all) {
    for (const std::string& pattern : patterns) {
      if (fnmatch(pattern.c_str(), recipe.name.c_str(), FNM_PATHNAME) == 0) {
        found.push_back(&recipe);
        break;
      }
    }
  }
  return found;
}

std::vector<std::string> commands_of(const PaperItem& item) {
  std::vector<std::string> commands;
  std::string_view rest = item.how;
  for (std::size_t begin = rest.find('`'); begin != std::string_view::npos; begin = rest.find('`')) {
    const std::size_t end = rest.find('`', begin + 1);
    const std::string_view quoted = rest.substr(begin + 1, end - begin - 1);
    if (quoted.starts_with("headroom ")) {
      commands.emplace_back(quoted);
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return commands;
}

Json papers_json(const std::vector<Paper>& papers, const std::vector<Recipe>& recipes) {
  Json list = Json::array();
  for (const Paper& paper : papers) {
    Json items = Json::array();
    for (const PaperItem& item : paper.items) {
      items.push_back({{"item", item.item},
                       {"shows", item.shows},
                       {"recipes", transformed(recipes_of(item, recipes), &Recipe::name)},
                       {"how", item.how},
                       {"commands", commands_of(item)}});
    }
    list.push_back({{"paper", paper.name}, {"title", paper.title}, {"items", std::move(items)}});
  }
  return list;
}

}  // namespace headroom::cost
