#include "headroom/data/commands.h"

#include <array>
#include <chrono>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/data/token_file.h"
#include "prepare.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void write_part(PartInput& part, const Tokenizer& tokenizer, const fs::path& path) {
  if (part.text) {
    write_token_file(*part.text, tokenizer, path);
  } else {
    join_token_files(part.token_files, path);
  }
}

Json summary(const fs::path& path) {
  const TokenFile file(path);
  return {{"file", path.string()}, {"tokens", file.size()}, {"text_bytes", file.text_bytes()}};
}

}  // namespace

Json tokenizer_train(const TrainTokenizerRequest& request) {
  const Stopwatch watch;
  const PartInput input = open_input(request.data, Part::train);
  if (!input.text) {
    misuse("tokenizer train: data.train must name text, got the token file {}", input.token_files.front().string());
  }
  const std::unique_ptr<Tokenizer> tokenizer = train_tokenizer(request.tokenizer, *input.text);
  save_tokenizer(*tokenizer, request.out);
  return {{"file", request.out.string()},
          {"tokenizer", tokenizer->name()},
          {"kind", config::name_of(tokenizer->kind())},
          {"vocabulary_size", tokenizer->vocabulary_size()},
          {"seconds", watch.seconds()}};
}

Json tokenizer_encode(const EncodeRequest& request) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(request.tokenizer);
  const std::vector<std::int32_t> ids = tokenizer->encode(std::string_view(request.text));
  Json pieces = Json::array();
  for (const std::int32_t id : ids) {
    pieces.push_back(tokenizer->decode(std::array{id}));
  }
  return {{"tokenizer", tokenizer->name()},
          {"ids", ids},
          {"pieces", std::move(pieces)},
          {"tokens", ids.size()},
          {"bytes", request.text.size()}};
}

Json tokenizer_decode(const DecodeRequest& request) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(request.tokenizer);
  return {{"tokenizer", tokenizer->name()}, {"text", tokenizer->decode(request.ids)}};
}

Json data_prepare(const PrepareRequest& request) {
  const Stopwatch watch;
  const bool validates = request.data.train.empty() || !request.data.validation.empty();
  PartInput train = open_input(request.data, Part::train), validation;
  if (validates) {
    validation = open_input(request.data, Part::validation);
  }
  make_folder(request.out);
  std::shared_ptr<const Tokenizer> tokenizer = find_tokenizer(request.tokenizer, {&train, &validation});
  if (!tokenizer) {
    tokenizer = train_tokenizer(request.tokenizer, *train.text);
  }
  write_part(train, *tokenizer, request.out / "train.tokens");
  if (validates) {
    write_part(validation, *tokenizer, request.out / "validation.tokens");
  }
  return {{"tokenizer", tokenizer->name()},
          {"vocabulary_size", tokenizer->vocabulary_size()},
          {"train", summary(request.out / "train.tokens")},
          {"validation", validates ? summary(request.out / "validation.tokens") : Json()},
          {"seconds", watch.seconds()}};
}

}  // namespace headroom::data
