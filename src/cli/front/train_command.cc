// train: one model.
#include <memory>

#include "headroom/config/config.h"
#include "program.h"

namespace headroom::cli {

void add_train(Program& program) {
  struct Options : Train {
    bool help_config = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command =
      program.add(program.root(), "train", "Train a model and write a run folder.",
                  "headroom train switchhead/wt103_47m --set train.steps=500 --out runs/small", [&program, options] {
                    if (options->help_config) {
                      Output(false).text(config::help_text(options->config));
                      return 0;
                    }
                    if (options->config.empty()) {
                      user_error("train: CONFIG is required (headroom train --help)");
                    }
                    return program.engine<Train>(*options);
                  });
  command.add_option("CONFIG", options->config, "TOML file or recipe")->type_name("");
  command.add_option("--out", options->out, "run folder (default: runs/<name of CONFIG>)")
      ->check(not_empty())
      ->type_name("DIR");
  add_set(command, options->set);
  command.add_flag_callback(
      "--skip-bad-rows", [options] { options->set.emplace_back("data.skip_bad_rows=true"); },
      "leave out rows of the data that cannot be used and say how many");
  command.add_flag("--resume", options->resume,
                   "continue from the newest checkpoint in the run folder, if there is one");
  program.add_threads(command);
  command.add_flag("--help-config", options->help_config,
                   "explain the keys of a config, or only CONFIG (a key or a table), and exit");
}

}  // namespace headroom::cli
