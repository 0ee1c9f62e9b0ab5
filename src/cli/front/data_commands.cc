// tokenizer, data: text to token ids and token files.
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "data/text/text.h"
#include "data/tokens/token_file.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/message.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/tokenizers/tokenizer.h"
#include "program.h"

namespace headroom::cli {

namespace {

constexpr const char* kTrainExample = "headroom tokenizer train book.txt --vocabulary-size 4000 --out book.tokenizer";
constexpr const char* kPrepareExample = "headroom data prepare book.txt --tokenizer book.tokenizer --out book.tokens";
constexpr const char* kTokenizerFile =
    "file of `tokenizer train`, SentencePiece model, tokenizer.json, vocab.json next to merges.txt, or their folder";

// What is there is replaced if `open` takes it for one of its kind, or if it is empty; nothing else is.
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
    user_error("{}: --out: {} is there and is no {}: choose another name", command, printable(out), kind);
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
                  "text, .gz, .zst, JSON lines (.jsonl), patterns with * and ? (default: the built-in corpus)")
      ->type_name("");
  command.add_option("--json-field", input.options.json_field, "JSON lines: where the document stands")
      ->capture_default_str()
      ->type_name("NAME");
}

struct TokenizerTrain {
  Input input;
  config::TokenizerOptions options;
  std::optional<std::int64_t> vocabulary_size;
  std::string kind = "sentencepiece", out;
};

// A sentence about keys of a config, about the options that set them here.
std::string about_options(std::string text) {
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

// Runs `work`, whose errors speak of this command.
template <class Work>
int with_options_named(std::string_view command, Work&& work) {
  try {
    return work();
  } catch (const UserError& error) {
    const std::string text = about_options(error.what());
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
    user_error("tokenizer train: --out: a tokenizer.json holds a tokenizer of --kind bpe, not {}", command.kind);
  }
  if (command.options.kind == config::TokenizerKind::bytes && command.options.vocabulary_size > config::kByteValues) {
    user_error("tokenizer train: --vocabulary-size: must be at most {} with --kind bytes, got {}", config::kByteValues,
               command.options.vocabulary_size);
  }
  for (const std::filesystem::path& file : data::expand_patterns(command.input.files)) {
    std::error_code ignored;
    if (std::filesystem::equivalent(file, command.out, ignored)) {
      user_error("tokenizer train: --out: {} is one of the texts to read: choose another name", printable(command.out));
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
  CLI::App& command = program.add(group, "train", "Make a tokenizer from text.", kTrainExample, [&program, options] {
    return with_options_named("tokenizer train", [&] { return run_tokenizer_train(*options, program.output()); });
  });
  add_input(command, options->input);
  add_out(command, options->out, "file to write; of bpe also a tokenizer.json, by its name", "FILE");
  command
      .add_option("--kind", options->kind,
                  "what becomes an id: a byte, a piece, a word, or bytes merged inside words as GPT-2's (bpe)")
      ->capture_default_str()
      ->check(one_of({"bytes", "sentencepiece", "words", "bpe"}))
      ->type_name("bytes|sentencepiece|words|bpe");
  command
      .add_option("--vocabulary-size", options->vocabulary_size,
                  "sentencepiece, bpe: pieces (default: 8000); words: most frequent kept (default: all)")
      ->check(whole_number(1, INT32_MAX))
      ->type_name("N");
  command
      .add_option("--character-coverage", options->options.character_coverage,
                  "sentencepiece: share of the text's characters that get a piece of their own, the others being "
                  "spelled in bytes; less where there are thousands of them, as in Chinese or Japanese")
      ->capture_default_str()
      ->check(number(0.9, 1.0))
      ->type_name("X");
  command.add_flag("--keep-whitespace", options->options.keep_whitespace,
                   "sentencepiece: blanks and line ends survive a round trip");
}

// A tokenizer that is there.
struct UsedTokenizer {
  std::string file, side = "target";

  std::shared_ptr<const tokenizers::Tokenizer> open() const {
    const std::shared_ptr<const tokenizers::Tokenizer> both = tokenizers::load_tokenizer(file);
    return {both, side == "source" ? &both->for_sources() : &both->for_targets()};
  }
};

// `name`: an argument or an option, of the type that help shows.
void add_tokenizer(CLI::App& command, UsedTokenizer& tokenizer, const std::string& name, const std::string& type) {
  command.add_option(name, tokenizer.file, kTokenizerFile)->required()->type_name(type);
  command
      .add_option("--side", tokenizer.side,
                  "of the two tokenizers of a translation, the sources' or that of their translations")
      ->capture_default_str()
      ->check(one_of({"source", "target"}))
      ->type_name("source|target");
}

void add_tokenizer_encode(Program& program, CLI::App& group) {
  struct Options {
    UsedTokenizer tokenizer;
    std::string text;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(
      group, "encode", "Text to ids.", "headroom tokenizer encode book.tokenizer \"It was\"", [&program, options] {
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
  command.add_option("TEXT", options->text, "text in UTF-8")->required()->type_name("");
}

void add_tokenizer_decode(Program& program, CLI::App& group) {
  struct Options {
    UsedTokenizer tokenizer;
    std::vector<std::int32_t> ids;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(group, "decode", "Ids to text.", "headroom tokenizer decode book.tokenizer 17 4 260",
                                  [&program, options] {
                                    const auto tokenizer = options->tokenizer.open();
                                    const std::string text = tokenizer->decode(options->ids);
                                    program.output().text(text + "\n");
                                    program.output().document({{"text", text}, {"tokenizer", tokenizer->name()}});
                                    return 0;
                                  });
  add_tokenizer(command, options->tokenizer, "TOKENIZER", "");
  command.add_option("ID", options->ids, "ids")->required()->check(whole_number(0, INT32_MAX))->type_name("");
}

struct Prepare {
  Input input;
  UsedTokenizer tokenizer;
  std::string out;
  double validation_fraction = 0.0;

  // "book.validation.tokens" of "book.tokens".
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
  const bool whole = !out.ends_with(".tokens");  // which only token files are named: a damaged one may go
  require_replaceable(out, "data prepare", "token file", [&] {
    if (whole) {
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

int run_prepare(const Prepare& command, const Output& output) {
  if (!config::is_token_file(command.out)) {
    user_error("data prepare: --out: must end in .tokens or .safetensors, got \"{}\"", command.out);
  }
  const bool splits = command.validation_fraction > 0.0;
  if (splits && command.input.files.empty()) {
    user_error("data prepare: --validation-share: needs FILE: {}",
               "the built-in corpus has a validation split of its own");
  }
  require_token_file(command.out);
  if (splits) {
    require_token_file(command.validation_out());
  }
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
      program.add(group, "prepare", "Encode text once, to a token file that configs can name.", kPrepareExample,
                  [&program, options] {
                    return with_options_named("data prepare", [&] { return run_prepare(*options, program.output()); });
                  });
  add_input(command, options->input);
  add_tokenizer(command, options->tokenizer, "--tokenizer", "FILE");
  add_out(command, options->out, "token file to write", "FILE");
  command
      .add_option("--validation-share", options->validation_fraction,
                  "share of the text to hold out, its last lines, as a second file: NAME.validation.tokens of "
                  "NAME.tokens")
      ->check(number(0.0, 0.99))
      ->type_name("X");
}

}  // namespace

void add_data_commands(Program& program) {
  CLI::App& tokenizer = program.add_group("tokenizer", "Make a tokenizer, or use one.", kTrainExample);
  add_tokenizer_train(program, tokenizer);
  add_tokenizer_encode(program, tokenizer);
  add_tokenizer_decode(program, tokenizer);
  add_prepare(program, program.add_group("data", "Prepare text for training.", kPrepareExample));
}

}  // namespace headroom::cli
