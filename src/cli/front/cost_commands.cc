// The commands cost and recipes.
#include <memory>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "papers.h"
#include "program.h"

namespace headroom::cli {

namespace {

// Throws UserError unless the options belong together.
void check(const Cost& options) {
  if (options.configs.empty() && options.paper.empty()) {
    user_error("cost: either CONFIG or --paper is required (headroom cost --help)");
  }
  if (!options.configs.empty() && !options.paper.empty()) {
    user_error("cost: CONFIG ({}) and --paper {} cannot both be given, --paper has its own models",
               options.configs.front(), options.paper);
  }
  // --paper and --match print something else than the costs of CONFIG, so they exclude these options.
  const std::string what = !options.paper.empty() ? "--paper" : !options.match.empty() ? "--match" : "";
  if (!what.empty()) {
    for (const auto& [option, given] : {std::pair("--set", !options.set.empty() && what == "--paper"),
                                        {"--match", !options.match.empty() && what == "--paper"},
                                        {"--vary", !options.vary.empty()},
                                        {"--plot", !options.plot.empty()},
                                        {"--time", !options.time.empty()},
                                        {"--processes", !options.devices.ranks.empty()}}) {
      if (given) {
        user_error("cost: {} and {} cannot both be given", what, option);
      }
    }
  }
  if (!(options.devices.macs_per_second > 0.0)) {
    user_error("cost: --rate: must be above 0, got {}", options.devices.macs_per_second);
  }
  if (!options.plot.empty()) {
    if (options.vary.empty()) {
      user_error("cost: --plot {}: needs --vary", options.plot);
    }
    if (!options.plot.ends_with(".html")) {
      user_error("cost: --plot: must name an .html file, got {}", printable(options.plot));
    }
    require_writable(options.plot, "cost: --plot");
  }
  if (!options.time.empty() && (!options.vary.empty() || !options.devices.ranks.empty())) {
    user_error("cost: --time and {} cannot both be given", options.vary.empty() ? "--processes" : "--vary");
  }
}

void add_cost(Program& program) {
  auto options = std::make_shared<Cost>();
  CLI::App& command = program.add(
      program.root(), "cost",
      "Show parameters, multiply-accumulates and memory of models; resize one to match another.",
      "headroom cost switchhead/wt103_47m switchhead/wt103_47m_dense_h10\n  headroom cost "
      "switchhead/wt103_262m --processes 8,64\n  headroom cost demo/dense_h8 --vary "
      "model.attention.n_heads=2,4,8 --plot heads.html\n  headroom cost mine.toml --time "
      "2h\n  headroom cost demo/switchhead_h2 --match demo/dense_h8 > matched.toml\n  headroom cost --paper switchhead",
      [&program, options] {
        check(*options);
        return program.engine(*options);
      });
  command.add_option("CONFIG", options->configs, "TOML files or recipes")->type_name("");
  add_set(command, options->set);
  command.add_option("--paper", options->paper, "compare every figure of a paper's cost tables with the computed one")
      ->type_name("switchhead|moa|dcmha|mgk");
  command
      .add_option("--vary", options->vary,
                  "a key and its values: show the costs of every CONFIG with each value; V:W gives the first CONFIG V "
                  "and the second W")
      ->type_name("KEY=V1,V2,...");
  add_text(command, "--time", options->time, "TIME",
           "2h, 30m: the size of CONFIG that this machine trains in the time, on 20 tokens per parameter, by the "
           "measured speed of steps; needs CONFIG's data");
  CLI::Option* const match =
      add_text(command, "--match", options->match, "TARGET",
               "TOML file or recipe: resize CONFIG to TARGET's parameters or compute, and print the resulting config");
  add_choice(command, "--by", options->by, {"parameters", "macs"}, "with --match: quantity to make equal")
      ->needs(match);
  command.add_flag("--full", options->full, "with --match: print every key, not only those that differ from CONFIG")
      ->needs(match);
  add_text(command, "--plot", options->plot, "FILE", "with --vary: page to write, with the costs over the values");
  CLI::Option* const processes =
      command
          .add_option("--processes", options->devices.ranks,
                      "numbers of ranks: show what a rank stores, computes and sends in a training step")
          ->delimiter(',')
          ->allow_extra_args(false)  // CONFIG may follow
          ->check(whole_number(1, 65536))
          ->type_name("N,...");
  command
      .add_flag("--sharded", options->devices.sharded, "with --processes: of python -m headroom_torch.train, by FSDP2")
      ->needs(processes);
  command
      .add_option("--rate", options->devices.macs_per_second,
                  "with --processes: assumed multiply-accumulates per second of a rank")
      ->capture_default_str()
      ->needs(processes)
      ->type_name("MACS");
}

struct RecipesOptions {
  std::string filter, paper;
  bool resolved = false;
};

// Returns the recipe of this name, or those that have the filter in their name, paper, row or description.
std::vector<config::Recipe> recipes_with(const std::string& filter) {
  const std::vector<config::Recipe> all = config::list_recipes();
  std::vector<config::Recipe> found;
  std::vector<std::string> names;
  for (const config::Recipe& recipe : all) {
    if (recipe.name == filter) {
      return {recipe};
    }
    names.insert(names.end(), {recipe.name, recipe.name.substr(0, recipe.name.find('/'))});
    const std::string text = recipe.name + "\n" + recipe.paper + "\n" + recipe.row + "\n" + recipe.about;
    if (lower_case(text).find(lower_case(filter)) != std::string::npos) {
      found.push_back(recipe);
    }
  }
  if (found.empty()) {
    const std::string close = nearest(filter, names);
    user_error("recipes: {}: no recipe has this in its name, paper, row or description{}", printable(filter),
               close.empty() ? "" : "; did you mean " + close + "?");
  }
  return found;
}

std::string papers_text(const std::vector<Paper>& papers) {
  const std::size_t width = help_width();
  std::string text;
  for (const Paper& paper : papers) {
    text += (text.empty() ? "" : "\n") + wrapped(std::string(paper.title), width, 0) + "\n";
    for (const PaperItem& item : paper.items) {
      text += "\n" + wrapped(fmt::format("{}: {}", item.item, item.shows), width, 2) + "\n";
      if (!item.recipes.empty()) {
        text += "  " + wrapped(std::string(item.recipes), width - 2, 2) + "\n";
      }
      text += "  " + wrapped(std::string(item.how), width - 2, 2) + "\n";
    }
  }
  return text;
}

Json recipes_json(const std::vector<config::Recipe>& recipes) {
  Json list = Json::array();
  for (const config::Recipe& recipe : recipes) {
    list.push_back({{"name", recipe.name},
                    {"file", recipe.file.string()},
                    {"paper", recipe.paper},
                    {"table", recipe.table},
                    {"row", recipe.row},
                    {"about", recipe.about}});
  }
  return list;
}

std::string recipes_table(const std::vector<config::Recipe>& recipes) {
  std::vector<std::vector<std::string>> rows = {{"name", "paper", "table", "about"}};
  for (const config::Recipe& recipe : recipes) {
    rows.push_back({recipe.name, recipe.paper, recipe.table, recipe.about});
  }
  return text_table(rows, {true, true, true, true});
}

int run_recipes(const RecipesOptions& options, const Output& output) {
  if (!options.paper.empty()) {
    if (!options.filter.empty() || options.resolved) {
      user_error("recipes: --paper cannot be combined with FILTER or --resolved");
    }
    const std::vector<Paper> papers = papers_named(options.paper);
    output.text(papers_text(papers));
    output.document(papers_json(papers, config::list_recipes()));
    return 0;
  }
  const std::vector<config::Recipe> recipes = recipes_with(options.filter);
  if (options.resolved && recipes.size() != 1) {
    user_error("recipes: --resolved: prints one recipe, but {} match; give its name", recipes.size());
  }
  Json document = recipes_json(recipes);
  if (options.resolved) {
    const std::string toml = config::to_toml(config::load_config(recipes.front().name));
    document.back()["resolved"] = toml;
    output.text(toml);
  } else {
    output.text(recipes_table(recipes));
  }
  output.document(document);
  return 0;
}

void add_recipes(Program& program) {
  auto options = std::make_shared<RecipesOptions>();
  CLI::App& command =
      program.add(program.root(), "recipes", "List the shipped configs, with their papers and table rows.",
                  "headroom recipes listops\n  headroom recipes moa/wmt14_ende_8k8e128d --resolved > mine.toml\n  "
                  "headroom recipes --paper switchhead",
                  [&program, options] { return run_recipes(*options, program.output()); });
  command.add_option("FILTER", options->filter, "only recipes with this in their name, paper, row or description")
      ->type_name("");
  command.add_flag("--resolved", options->resolved,
                   "print the recipe as a complete config, with the keys of its bases and the defaults");
  add_text(command, "--paper", options->paper, "switchhead|switchhead_draft|moa|dcmha|mgk",
           "list a paper's tables, figures and protocols, with the recipes and command that reproduce each");
}

}  // namespace

void add_cost_commands(Program& program) {
  add_cost(program);
  add_recipes(program);
}

}  // namespace headroom::cli
