// checkpoint, import: files of parameters, here and elsewhere.
#include <memory>

#include "program.h"

namespace headroom::cli {

namespace {

void add_info(Program& program, CLI::App& group) {
  auto options = std::make_shared<CheckpointInfo>();
  CLI::App& command =
      program.add(group, "info", "What is in a checkpoint: parameters, config, tokenizer, tensors.",
                  "headroom checkpoint info runs/first", [&program, options] { return program.engine(*options); });
  add_run(command, options->run);
}

void add_export(Program& program, CLI::App& group) {
  auto options = std::make_shared<CheckpointExport>();
  CLI::App& command = program.add(
      group, "export", "The parameters alone, without what only training needs; or a folder of Hugging Face.",
      "headroom checkpoint export runs/first --out first.safetensors\n"
      "  headroom checkpoint export runs/first --format huggingface --out first_hf",
      [&program, options] { return program.engine(*options); });
  add_run(command, options->run);
  add_out(command, options->out, "file to write; huggingface: folder", "FILE");
  command
      .add_option("--format", options->format,
                  "headroom: a checkpoint to evaluate and generate with; huggingface: config.json, model.safetensors "
                  "and tokenizer, for dense models")
      ->capture_default_str()
      ->check(one_of({"headroom", "huggingface"}))
      ->type_name("headroom|huggingface");
}

void add_import(Program& program) {
  auto options = std::make_shared<Import>();
  CLI::App& command =
      program.add(program.root(), "import", "A model of Hugging Face (GPT-2, GPT-NeoX, LLaMA kinds) as a checkpoint.",
                  "headroom import pythia-70m --out pythia.safetensors\n"
                  "  headroom generate pythia.safetensors --prompt \"Once upon a time\"",
                  [&program, options] { return program.engine(*options); });
  command
      .add_option("FOLDER", options->folder,
                  "config.json, safetensors and tokenizer.json, or vocab.json and merges.txt")
      ->required()
      ->type_name("");
  add_out(command, options->out, "checkpoint to write", "FILE");
  command.add_option("--tokenizer", options->tokenizer, "another tokenizer than the folder's, file or folder")
      ->type_name("FILE");
}

}  // namespace

void add_checkpoint_commands(Program& program) {
  CLI::App& group = program.add_group("checkpoint", "Look into a checkpoint, or take its parameters elsewhere.",
                                      "headroom checkpoint info runs/first");
  add_info(program, group);
  add_export(program, group);
  add_import(program);
}

}  // namespace headroom::cli
