// completion, man: the command line described for shells and for man.
#include <memory>

#include "completion.h"
#include "headroom/config/config.h"
#include "program.h"

namespace headroom::cli {

namespace {

std::vector<std::string> keys_of_configs() {
  std::vector<std::string> keys;
  for (const auto& [key, value] : config::flatten(config::Config())) {
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

void add_help_commands(Program& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App& completion = program.add(
      program.root(), "completion", "Print a script by which a shell completes commands and options.",
      "headroom completion bash > ~/.local/share/bash-completion/completions/headroom", [&program, shell] {
        const std::string script = completion_script(command_tree(program.root()), keys_of_configs(), *shell);
        program.output().text(script);
        program.output().document({{"shell", *shell}, {"script", script}});
        return 0;
      });
  completion.add_option("SHELL", *shell, "whose script")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish");
  program.add(program.root(), "man", "Print the manual page.", "headroom man | man -l -", [&program] {
    const std::string page = manual_page(command_tree(program.root()), HEADROOM_VERSION);
    program.output().text(page);
    program.output().document({{"page", page}});
    return 0;
  });
}

}  // namespace headroom::cli
