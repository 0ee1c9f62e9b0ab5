// serve: trained models for other programs.
#include <memory>

#include "program.h"

namespace headroom::cli {

namespace {

constexpr std::int64_t kMostPorts = 65535;

void add_address(CLI::App& command, Serve& serve) {
  command.add_option("--host", serve.host, "where to listen; 127.0.0.1 is reached by this machine alone")
      ->capture_default_str()
      ->check(not_empty())
      ->type_name("HOST");
  command.add_option("--port", serve.port, "0 takes any that is free")
      ->capture_default_str()
      ->check(whole_number(0, kMostPorts))
      ->type_name("N");
  command.add_option("--api-key-file", serve.api_key_file, "file of the key that requests must come with")
      ->check(not_empty())
      ->type_name("FILE");
}

void add_limits(CLI::App& command, Serve& serve) {
  command.add_option("--batch", serve.batch, "answers that are written at the same time (default: 8)")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  command.add_option("--queue", serve.queue, "answers that may wait; of more a request is refused (default: 256)")
      ->check(whole_number(0, 1 << 16))
      ->type_name("N");
  command
      .add_option("--prefix-cache", serve.prefix_cache,
                  "tokens of prompts that are kept for others that begin alike, 0: none (default: 16384)")
      ->check(whole_number(0, 1 << 24))
      ->type_name("N");
  command
      .add_option("--max-length", serve.max_length,
                  "tokens of a prompt and its answer together (default: what the model's context holds)")
      ->check(whole_number(2, 1 << 24))
      ->type_name("N");
  command.add_option("--max-body", serve.max_body, "MiB of a request (default: 8)")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  command.add_option("--timeout", serve.timeout, "seconds that a request may take (default: 600)")
      ->check(number(0.001, 1e6))
      ->type_name("N");
}

}  // namespace

void add_serving_commands(Program& program) {
  auto options = std::make_shared<Serve>();
  CLI::App& command = program.add(
      program.root(), "serve",
      "Serve trained language models to other programs, by the completions interface they know.",
      "headroom serve runs/first\n  headroom serve runs/first runs/second --port 9000 --api-key-file key.txt",
      [&program, options] { return program.engine(*options); });
  add_runs(command, options->runs, "run folders or checkpoint files; each goes by its last part's name");
  add_address(command, *options);
  add_limits(command, *options);
  add_device(command, options->device);
  add_precision(command, options->precision);
  program.add_threads(command);
}

}  // namespace headroom::cli
