#include "papers.h"

#include <fnmatch.h>

#include <sstream>

#include "headroom/core/error.h"
#include "items.h"

namespace headroom::cost {

std::vector<Paper> papers() {
  return {
      {"switchhead", "SwitchHead",
       "SwitchHead: Accelerating Transformers with Mixture-of-Experts Attention (Csordás et al., 2023)",
       detail::switchhead_items()},
      {"switchhead_draft", "SwitchHead draft", "Few Heads Are Enough (2023), the draft of SwitchHead",
       detail::switchhead_draft_items()},
      {"moa", "MoA", "Mixture of Attention Heads: Selecting Attention Heads Per Token (Zhang et al., 2022)",
       detail::moa_items()},
      {"dcmha", "DCMHA", "Improving Transformers with Dynamically Composable Multi-Head Attention (Xiao et al., 2024)",
       detail::dcmha_items()},
      {"mgk", "Transformer-MGK", "Transformer with a Mixture of Gaussian Keys (2021)", detail::mgk_items()}};
}

std::vector<Paper> papers_named(std::string_view name) {
  std::vector<Paper> found;
  std::string names;
  for (const Paper& paper : papers()) {
    names += (names.empty() ? "" : ", ") + std::string(paper.name);
    if (name.empty() || name == paper.name) {
      found.push_back(paper);
    }
  }
  if (found.empty()) {
    user_error("papers: {}: unknown paper, expected one of {}", name, names);
  }
  return found;
}

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

}  // namespace

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
      Json names = Json::array();
      for (const Recipe* recipe : recipes_of(item, recipes)) {
        names.push_back(recipe->name);
      }
      items.push_back({{"item", item.item},
                       {"shows", item.shows},
                       {"recipes", std::move(names)},
                       {"how", item.how},
                       {"commands", commands_of(item)}});
    }
    list.push_back({{"paper", paper.name}, {"title", paper.title}, {"items", std::move(items)}});
  }
  return list;
}

std::string papers_page(const std::vector<Paper>& papers) {
  std::string page =
      "# The papers, row by row\n\n"
      "Every table, figure and protocol of the papers: the recipes of its rows, and the command that gives it, or\n"
      "the reason why there is none. RUN is the folder of a trained model; FILE, TEXT and DIR are your own.\n"
      "`headroom papers` prints this, `headroom recipes` the row of each recipe. A number that differs from a paper's\n"
      "has a comment in its recipe or the base that it is from; a test checks this (`tests/recipes`). This page is "
      "made\n"
      "by a test: `HEADROOM_WRITE_DOCS=1 ctest -R documents`.\n";
  for (const Paper& paper : papers) {
    page += fmt::format("\n## {}\n`headroom papers {}`\n\n| | what | recipes | by |\n|---|---|---|---|\n", paper.title,
                        paper.name);
    for (const PaperItem& item : paper.items) {
      std::string recipes;
      for (const std::string& pattern : words_of(item.recipes)) {
        recipes += (recipes.empty() ? "`" : " `") + pattern + "`";
      }
      page += fmt::format("| {} | {} | {} | {} |\n", item.item, item.shows, recipes, item.how);
    }
  }
  return page;
}

}  // namespace headroom::cost
