// papers: the tables, figures and protocols of the papers and what gives each of them.
#include "training/cost/papers/papers.h"

#include <memory>

#include "help_format.h"
#include "program.h"

namespace headroom::cli {

namespace {

std::string papers_text(const std::vector<cost::Paper>& papers) {
  const std::size_t width = help_width();
  std::string text;
  for (const cost::Paper& paper : papers) {
    text += (text.empty() ? "" : "\n") + wrapped(paper.title, width, 0) + "\n";
    for (const cost::PaperItem& item : paper.items) {
      text += "\n" + wrapped(fmt::format("{}: {}", item.item, item.shows), width, 2) + "\n";
      if (!item.recipes.empty()) {
        text += "  " + wrapped(item.recipes, width - 2, 2) + "\n";
      }
      text += "  " + wrapped(item.how, width - 2, 2) + "\n";
    }
  }
  return text;
}

}  // namespace

void add_papers(Program& program) {
  auto name = std::make_shared<std::string>();
  CLI::App& command = program.add(
      program.root(), "papers",
      "Every table, figure and protocol of the papers: the recipes and the command that give it, or why not.",
      "headroom papers switchhead", [&program, name] {
        const std::vector<cost::Paper> papers = cost::papers_named(*name);
        program.output().text(papers_text(papers));
        program.output().document(cost::papers_json(papers, cost::list_recipes()));
        return 0;
      });
  command.add_option("NAME", *name, "switchhead, switchhead_draft, moa, dcmha or mgk (default: all)")->type_name("");
}

}  // namespace headroom::cli
