#include "papers.h"

#include <fnmatch.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::cli {

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
  constexpr std::string_view kTitle = "## ", kCommand = "`headroom recipes --paper ";
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
    user_error("recipes: --paper: must be one of {1}, got {0}", name, names);
  }
  return found;
}

std::vector<const config::Recipe*> recipes_of(const PaperItem& item, const std::vector<config::Recipe>& all) {
  const std::vector<std::string> patterns = words_of(item.recipes);
  std::vector<const config::Recipe*> found;
  for (const config::Recipe& recipe : all) {
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

Json papers_json(const std::vector<Paper>& papers, const std::vector<config::Recipe>& recipes) {
  Json list = Json::array();
  for (const Paper& paper : papers) {
    Json items = Json::array();
    for (const PaperItem& item : paper.items) {
      items.push_back({{"item", item.item},
                       {"shows", item.shows},
                       {"recipes", transformed(recipes_of(item, recipes), &config::Recipe::name)},
                       {"how", item.how},
                       {"commands", commands_of(item)}});
    }
    list.push_back({{"paper", paper.name}, {"title", paper.title}, {"items", std::move(items)}});
  }
  return list;
}

}  // namespace headroom::cli
