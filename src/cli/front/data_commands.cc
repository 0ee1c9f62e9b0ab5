// The commands tokenizer and data, which create tokenizers and convert text to token ids and token files.
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "data/synthetic/run_text.h"
#include "data/text/text.h"
#include "data/tokens/token_file.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/core/safetensors.h"
#include "headroom/tokenizers/tokenizer.h"
#include "program.h"

namespace headroom::cli {

namespace {

constexpr const char* kTrainExample = "headroom tokenizer train book.txt --vocabulary-size 4000 --out book.tokenizer";
constexpr const char* kPrepareExample = "headroom data prepare book.txt --tokenizer book.tokenizer --out book.tokens";
constexpr const char* kTokenizerFile =
    "file written by `tokenizer train`, SentencePiece model, tokenizer.json, vocab.json beside merges.txt, or their "
    "folder; or a run folder or checkpoint";

// Allows overwriting a file if it is empty or `open` can read it as a file of the same kind.
template <class Open>
void require_replaceable(const std::string& out, const char* command, const char* kind, const Open& open) {
  require_writable(out, fmt::format("{}: --out", command));
  std::error_code unknown;
  if (!std::filesystem::exists(out, unknown) || std::filesystem::is_empty(out, unknown)) {
    return;
  }
  bool alike = std::filesystem::is_regular_file(out, unknown);
  try {
    alike ? open() : void();
  } catch (const Error&) {
    alike = false;
  }
  if (!alike) {
    user_error("{}: --out: {} exists and is not a {}; choose another name", command, printable(out), kind);
  }
}

struct Input {
  std::vector<std::string> files;
  config::DataOptions options;

  std::unique_ptr<tokenizers::TextSource> open(config::TokenizerKind kind) const {
    return files.empty() ? data::open_built_in_corpus(data::Split::train)
                         : data::open_text(files, options, data::content_for(kind));
  }
};

void add_input(CLI::App& command, Input& input) {
  command
      .add_option("FILE", input.files,
                  "text, .gz, .zst or JSON lines (.jsonl); patterns with * and ? (default: the built-in corpus)")
      ->type_name("");
  command.add_option("--json-field", input.options.json_field, "JSON lines: field that holds the text")
      ->capture_default_str()
      ->type_name("NAME");
}

struct TokenizerTrain {
  Input input;
  config::TokenizerOptions options;
  std::optional<std::int64_t> vocabulary_size;
  std::string kind = "sentencepiece", out;
};

// Replaces the names of config keys in a message by the command's options that set them.
std::string with_option_names(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
      {"tokenizer.vocabulary_size", "--vocabulary-size"},
      {"tokenizer.character_coverage", "--character-coverage"},
      {"data.json_field", "--json-field"}};
  for (const auto& [key, option] : kOptions) {
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
      text.replace(at, key.size(), option);
    }
  }
  return text;
}

// Runs `work` and rewrites its errors to name this command and its options.
template <class Work>
int run_naming_options(std::string_view command, Work&& work) {
  try {
    return work();
  } catch (const UserError& error) {
    const std::string text = with_option_names(error.what());
    throw UserError(text.starts_with("--") ? fmt::format("{}: {}", command, text) : text);
  }
}

int run_tokenizer_train(TokenizerTrain& command, const Output& output) {
  for (const auto& [kind, name] : config::values_of<config::TokenizerKind>()) {
    if (name == command.kind) {
      command.options.kind = kind;
    }
  }
  const bool pieces = command.kind == "sentencepiece" || command.kind == "bpe";
  command.options.vocabulary_size = command.vocabulary_size.value_or(pieces ? 8000 : command.kind == "bytes" ? 256 : 0);
  const bool as_json = command.out.ends_with(".json");
  if (as_json && command.options.kind != config::TokenizerKind::bpe) {
    user_error("tokenizer train: --out: a .json file needs --kind bpe, got {}", command.kind);
  }
  if (command.options.kind == config::TokenizerKind::bytes && command.options.vocabulary_size > config::kByteValues) {
    user_error("tokenizer train: --vocabulary-size: must be at most {} with --kind bytes, got {}", config::kByteValues,
               command.options.vocabulary_size);
  }
  for (const std::filesystem::path& file : data::expand_patterns(command.input.files)) {
    std::error_code ignored;
    if (std::filesystem::equivalent(file, command.out, ignored)) {
      user_error("tokenizer train: --out: {} is one of the texts to read; choose another name", printable(command.out));
    }
  }
  require_replaceable(command.out, "tokenizer train", "tokenizer", [&] { tokenizers::load_tokenizer(command.out); });
  catch_interrupts();
  const std::unique_ptr<tokenizers::Tokenizer> tokenizer =
      tokenizers::train_tokenizer(command.options, *command.input.open(command.options.kind));
  if (as_json) {
    write_text_file(command.out, tokenizers::to_tokenizer_json(*tokenizer));
  } else {
    tokenizers::save_tokenizer(*tokenizer, command.out);
  }
  output.text(fmt::format("{}: {}, {} ids\n", printable(command.out), tokenizer->name(), tokenizer->vocabulary_size()));
  output.document(
      {{"file", command.out}, {"tokenizer", tokenizer->name()}, {"vocabulary_size", tokenizer->vocabulary_size()}});
  return 0;
}

void add_tokenizer_train(Program& program, CLI::App& group) {
  auto options = std::make_shared<TokenizerTrain>();
  CLI::App& command = program.add(group, "train", "Train a tokenizer on text.", kTrainExample, [&program, options] {
    return run_naming_options("tokenizer train", [&] { return run_tokenizer_train(*options, program.output()); });
  });
  add_input(command, options->input);
  add_out(command, options->out, "file to write; with --kind bpe a name that ends in .json makes a tokenizer.json",
          "FILE");
  add_choice(command, "--kind", options->kind, {"bytes", "sentencepiece", "words", "bpe"},
             "units of the vocabulary: bytes, pieces, words, or byte pairs merged within words as in GPT-2 (bpe)");
  add_value(
      command, "--vocabulary-size", options->vocabulary_size, "N", whole_number(1, INT32_MAX),
      "sentencepiece, bpe: number of pieces (default: 8000); words: number of words, the most frequent (default: all)");
  add_value(command, "--character-coverage", options->options.character_coverage, "X", number(0.9, 1.0),
            "sentencepiece: share of the text's characters that get their own piece, the others are encoded as bytes; "
            "use less than 1 for scripts with thousands of characters, such as Chinese or Japanese");
  command.add_flag("--keep-whitespace,!--normalise", options->options.keep_whitespace,
                   "sentencepiece: preserve spaces and line ends exactly (the default), or normalise each line");
}

// The command-line choice of an existing tokenizer.
struct TokenizerChoice {
  std::string file, side = "target";

  std::shared_ptr<const tokenizers::Tokenizer> open() const {
    const std::shared_ptr<const tokenizers::Tokenizer> both = tokenizers::load_tokenizer(file);
    return {both, side == "source" ? &both->for_sources() : &both->for_targets()};
  }
};

// Adds the argument or option `name`; `type` names its value in the help.
void add_tokenizer(CLI::App& command, TokenizerChoice& tokenizer, const std::string& name, const std::string& type) {
  command.add_option(name, tokenizer.file, kTokenizerFile)->required()->type_name(type);
  add_choice(command, "--side", tokenizer.side, {"source", "target"},
             "for a pair of tokenizers for translation: the source or the target side");
}

void add_tokenizer_encode(Program& program, CLI::App& group) {
  struct Options {
    TokenizerChoice tokenizer;
    std::string text;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command =
      program.add(group, "encode", "Convert text to token ids.", "headroom tokenizer encode book.tokenizer \"It was\"",
                  [&program, options] {
                    if (!is_utf8(options->text)) {
                      user_error("tokenizer encode: TEXT must be valid UTF-8, got \"{}\"", printable(options->text));
                    }
                    const auto tokenizer = options->tokenizer.open();
                    const std::vector<std::int32_t> ids = tokenizer->encode(options->text);
                    program.output().text(fmt::format("{}\n", fmt::join(ids, " ")));
                    program.output().document({{"ids", ids}, {"tokenizer", tokenizer->name()}});
                    return 0;
                  });
  add_tokenizer(command, options->tokenizer, "TOKENIZER", "");
  command.add_option("TEXT", options->text, "text, in UTF-8")->required()->type_name("");
}

void add_tokenizer_decode(Program& program, CLI::App& group) {
  struct Options {
    TokenizerChoice tokenizer;
    std::vector<std::int32_t> ids;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(group, "decode", "Convert token ids to text.",
                                  "headroom tokenizer decode book.tokenizer 17 4 260", [&program, options] {
                                    const auto tokenizer = options->tokenizer.open();
                                    const std::string text = tokenizer->decode(options->ids);
                                    program.output().text(text + "\n");
                                    program.output().document({{"text", text}, {"tokenizer", tokenizer->name()}});
                                    return 0;
                                  });
  add_tokenizer(command, options->tokenizer, "TOKENIZER", "");
  add_value(command, "ID", options->ids, "", whole_number(0, INT32_MAX), "token ids")->required();
}

struct Prepare {
  Input input;
  TokenizerChoice tokenizer;
  std::optional<std::string> separator;
  std::string out;
  double validation_fraction = 0.0;

  // Without --separator, documents are joined as in the run or checkpoint that --tokenizer names.
  void choose_separator() {
    const std::filesystem::path run = tokenizer.file, keys = run / "config.toml";
    std::error_code unknown;
    if (!separator && std::filesystem::exists(keys, unknown)) {
      separator = config::load_config(keys.string()).data.separator;
    } else if (!separator && run.extension() == ".safetensors" && std::filesystem::exists(run, unknown)) {
      const SafetensorsFile file(run);
      if (const auto written = file.metadata().find("config"); written != file.metadata().end()) {
        separator = config::parse_config(written->second, run.string()).data.separator;
      }
    }
    input.options.separator = separator.value_or(input.options.separator);
  }

  // Returns "book.validation.tokens" for "book.tokens".
  std::string validation_out() const {
    const std::filesystem::path path(out);
    return (path.parent_path() / path.stem()).string() + ".validation" + path.extension().string();
  }
  std::unique_ptr<tokenizers::TextSource> open(config::TokenizerKind kind, data::Split split) const {
    if (!(validation_fraction > 0.0)) {
      return input.open(kind);
    }
    config::DataOptions options = input.options;
    options.train = input.files;
    options.validation_fraction = validation_fraction;
    return data::open_split(options, split, data::content_for(kind));
  }
};

void require_token_file(const std::string& out) {
  require_replaceable(out, "data prepare", "token file", [&] {
    if (!out.ends_with(".tokens")) {  // only token files have this extension, so even a corrupt one may be overwritten
      data::TokenFile{out};
    }
  });
}

Json describe_tokens(const std::string& out, const Output& output) {
  const data::TokenFile file(out);
  output.text(fmt::format("{}: {} tokens of {} bytes of text, {}\n", printable(out), file.size(), file.text_bytes(),
                          printable(file.tokenizer_name())));
  return {{"file", out},
          {"tokens", file.size()},
          {"text_bytes", file.text_bytes()},
          {"tokenizer", file.tokenizer_name()},
          {"vocabulary_size", file.vocabulary_size()}};
}

int run_prepare(Prepare command, const Output& output) {
  if (!config::is_token_file(command.out)) {
    user_error("data prepare: --out: must end in .tokens or .safetensors, got \"{}\"", command.out);
  }
  const bool splits = command.validation_fraction > 0.0;
  if (splits && command.input.files.empty()) {
    user_error("data prepare: --validation-share: needs FILE, the built-in corpus has its own validation split");
  }
  require_token_file(command.out);
  if (splits) {
    require_token_file(command.validation_out());
  }
  command.choose_separator();
  catch_interrupts();
  const std::shared_ptr<const tokenizers::Tokenizer> tokenizer = command.tokenizer.open();
  data::write_token_file(*command.open(tokenizer->kind(), data::Split::train), *tokenizer, command.out);
  Json document = describe_tokens(command.out, output);
  if (splits) {
    const auto held_out = command.open(tokenizer->kind(), data::Split::validation);
    data::write_token_file(*held_out, *tokenizer, command.validation_out());
    document["validation"] = describe_tokens(command.validation_out(), output);
  }
  output.document(document);
  return 0;
}

void add_prepare(Program& program, CLI::App& group) {
  auto options = std::make_shared<Prepare>();
  CLI::App& command =
      program.add(group, "prepare", "Tokenize text into a token file, for data.train and data.validation of a config.",
                  kPrepareExample, [&program, options] {
                    return run_naming_options("data prepare", [&] { return run_prepare(*options, program.output()); });
                  });
  add_input(command, options->input);
  add_tokenizer(command, options->tokenizer, "--tokenizer", "FILE");
  command
      .add_option(
          "--separator", options->separator,
          "text between documents (default: that of the run or checkpoint given as --tokenizer, else a line end)")
      ->type_name("TEXT");
  add_out(command, options->out, "token file to write", "FILE");
  add_value(command, "--validation-share", options->validation_fraction, "X", number(0.0, 0.99),
            "share of the text, documents from all parts of it, to write to a second file: NAME.validation.tokens "
            "beside NAME.tokens");
}

}  // namespace

void add_data_commands(Program& program) {
  CLI::App& tokenizer = program.add_group("tokenizer", "Train or use a tokenizer.", kTrainExample);
  add_tokenizer_train(program, tokenizer);
  add_tokenizer_encode(program, tokenizer);
  add_tokenizer_decode(program, tokenizer);
  add_prepare(program, program.add_group("data", "Prepare text for training.", kPrepareExample));
}

}  // namespace headroom::cli
