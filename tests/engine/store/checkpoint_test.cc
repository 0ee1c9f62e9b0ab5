#include "headroom/store/checkpoint.h"
#include "headroom/config/part_options.h"

#include <cmath>

#include "engine/store/checkpoint_reader.h"
#include "folder_test.h"
#include "headroom/core/json.h"
#include "headroom/models/language_model.h"
#include "headroom/store/open_model.h"
#include "tiny/files.h"

namespace headroom::store::checkpoint_test {

namespace fs = std::filesystem;

Checkpoint checkpoint_of(const models::LanguageModel& model, const config::Config& config, std::int64_t step) {
  Checkpoint checkpoint{
      .config = config, .step = step, .tokenizer = tiny::bytes_tokenizer(), .tensors = {}, .metadata = {}};
  for (const nn::Parameter& parameter : model.parameters().stored()) {
    checkpoint.tensors.emplace("model." + parameter.name, parameter.tensor);
  }
  return checkpoint;
}

Checkpoint tiny_checkpoint(std::int64_t step = 3) {
  const config::Config config = tiny::config();
  return checkpoint_of(models::LanguageModel(config.model, 7), config, step);
}

TEST(Checkpoint, RestoresTheModel) {
  const tiny::Folder folder;
  const config::Config config = tiny::config();
  const models::LanguageModel model(config.model, 7);
  Checkpoint written = checkpoint_of(model, config, 12);
  written.tensors.emplace("optimizer.m.x", at::arange(5, at::kFloat));
  written.tensors.emplace("memory.layer0", at::zeros({0, 3}));
  written.metadata.emplace("train_state", "{}");
  const fs::path path = write_checkpoint(written, folder.path(), 2);
  EXPECT_EQ(path, folder / "step_12.safetensors");

  const Checkpoint read = read_checkpoint(path);
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(config::to_toml(read.config), config::to_toml(config));
  EXPECT_EQ(read.tokenizer->name(), written.tokenizer->name());
  EXPECT_EQ(read.metadata, written.metadata);
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const auto& [name, tensor] : written.tensors) {
    EXPECT_TRUE(at::equal(read.tensors.at(name), tensor)) << name;
  }
  const std::unique_ptr<models::Model> again = build_model(read);
  for (std::size_t i = 0; i < model.parameters().all().size(); ++i) {
    EXPECT_TRUE(at::equal(again->parameters().all()[i].tensor, model.parameters().all()[i].tensor));
  }
}

TEST(Checkpoint, KeepsTheNewestFew) {
  const tiny::Folder folder;
  for (const std::int64_t step : {1, 2, 9, 10, 11}) {
    write_checkpoint(tiny_checkpoint(step), folder.path(), 2);
  }
  EXPECT_TRUE(fs::exists(folder / "step_11.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "step_10.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "step_9.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "step_1.safetensors"));
  EXPECT_EQ(read_text_file(folder / "latest"), "step_11.safetensors\n");
}

TEST(Checkpoint, RefusesNumbersThatAreNotFinite) {
  const tiny::Folder folder;
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Checkpoint checkpoint = tiny_checkpoint();
    checkpoint.tensors["optimizer.v.x"] = at::full({3}, bad);
    EXPECT_THROW(write_checkpoint(checkpoint, folder.path(), 2), NotFiniteError);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Checkpoint, NamesTheFirstTensorThatIsNotFinite) {
  Checkpoint checkpoint = tiny_checkpoint();
  EXPECT_EQ(first_not_finite(checkpoint), "");
  checkpoint.tensors["z"] = at::empty({2}, at::TensorOptions(at::kFloat).device(at::kMeta));
  checkpoint.shards["z"] = {{.begin = 0, .values = at::ones({1})}, {.begin = 1, .values = at::full({1}, std::nan(""))}};
  EXPECT_EQ(first_not_finite(checkpoint), "z");
  EXPECT_EQ(first_not_finite(checkpoint, "model."), "");
  checkpoint.tensors["model.head"] = at::full({2}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(first_not_finite(checkpoint), "model.head");
  EXPECT_EQ(first_not_finite(checkpoint, "model."), "model.head");
}

TEST(Checkpoint, TheMeanOfTheNewest) {
  const tiny::Folder run;
  const config::Config config = tiny::config();
  std::map<std::string, at::Tensor> expected;
  for (const std::int64_t step : {1, 2, 3, 10}) {
    Checkpoint checkpoint =
        checkpoint_of(models::LanguageModel(config.model, static_cast<std::uint64_t>(step)), config, step);
    checkpoint.tensors.emplace("optimizer.m.x", at::arange(5, at::kFloat));
    write_checkpoint(checkpoint, run / "checkpoints", 9);
    for (const auto& [name, tensor] : checkpoint.tensors) {
      if (step > 1) {
        at::Tensor& sum = expected[name];
        sum = (sum.defined() ? sum : at::zeros(tensor.sizes(), at::kDouble)) + tensor.detach().to(at::kDouble) / 3.0;
      }
    }
  }
  const Checkpoint mean = average_checkpoints(run.path(), 3);
  EXPECT_EQ(mean.step, 10);
  EXPECT_FALSE(mean.tensors.contains("optimizer.m.x"));
  for (const auto& [name, tensor] : mean.tensors) {
    EXPECT_TRUE(at::allclose(tensor.to(at::kDouble), expected.at(name), 1e-6, 1e-8)) << name;
  }
  EXPECT_EQ(build_model(mean)->parameters().count(), models::LanguageModel(config.model, 1).parameters().count());
  EXPECT_HAS(user_error_of([&] { average_checkpoints(run.path(), 5); }), "holds 4 checkpoints");
  EXPECT_HAS(user_error_of([&] { average_checkpoints(run / "absent", 2); }), "not a run folder");
}

TEST(Checkpoint, IsFoundInARunFolder) {
  const tiny::Folder run;
  const fs::path folder = run / "checkpoints";
  EXPECT_FALSE(has_checkpoints(run.path()));
  EXPECT_HAS(user_error_of([&] { find_checkpoint(run.path()); }), "holds no checkpoint");
  EXPECT_HAS(user_error_of([&] { find_checkpoint(run / "absent"); }), "absent");

  for (const std::int64_t step : {8, 9, 10}) {
    write_checkpoint(tiny_checkpoint(step), folder, 9);
  }
  EXPECT_TRUE(has_checkpoints(run.path()));
  EXPECT_EQ(find_checkpoint(run.path()), folder / "step_10.safetensors");
  EXPECT_EQ(find_checkpoint(folder / "step_8.safetensors"), folder / "step_8.safetensors");
  write_text_file(folder / "latest", "step_9.safetensors");
  EXPECT_EQ(find_checkpoint(run.path()), folder / "step_9.safetensors") << "latest decides";
  for (const char* lie : {"step_77.safetensors", "../../etc/passwd", "", "\xff"}) {
    write_text_file(folder / "latest", lie);
    EXPECT_EQ(find_checkpoint(run.path()), folder / "step_10.safetensors") << lie;
  }
  bool pruned = false;  // the run prunes a file between listing and reading
  open_first(run.path(), [&](const fs::path& file, bool /*is_only*/) {
    if (!std::exchange(pruned, true)) {
      fs::rename(file, folder / "step_11.safetensors");
    }
    read_checkpoint(file);
    EXPECT_EQ(file, folder / "step_11.safetensors");
  });
  fs::rename(folder / "step_11.safetensors", folder / "step_10.safetensors");
  fs::remove(folder / "latest");
  EXPECT_EQ(find_checkpoint(run.path()), folder / "step_10.safetensors");
  fs::resize_file(folder / "step_10.safetensors", 100);
  EXPECT_EQ(find_checkpoint(run.path()), folder / "step_9.safetensors") << "the newest is cut short";
  fs::resize_file(folder / "step_9.safetensors", 0);
  fs::resize_file(folder / "step_8.safetensors", 7);
  EXPECT_HAS(user_error_of([&] { find_checkpoint(run.path()); }), "readable");
}

TEST(Checkpoint, NamesTheDamagedTensor) {
  const tiny::Folder folder;
  const fs::path path = write_checkpoint(tiny_checkpoint(), folder.path(), 2);
  const std::string whole = read_text_file(path, std::size_t{1} << 24);
  const SafetensorsFile file(path);
  for (const char* name : {"model.embed", "model.layer1.ffn.w_down", "model.head.w"}) {
    const std::span<const std::byte> data = file.at(name).data;
    const auto begin =
        static_cast<std::size_t>(std::search(whole.begin(), whole.end(), reinterpret_cast<const char*>(data.data()),
                                             reinterpret_cast<const char*>(data.data()) + data.size()) -
                                 whole.begin());
    std::string damaged = whole;
    std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(begin + data.size() / 2), 8, '\0');
    write_text_file(folder / "damaged.safetensors", damaged);
    const std::string why = user_error_of([&] { read_checkpoint(folder / "damaged.safetensors"); });
    for (const char* newer : {"step_5000.safetensors", "step_9999.safetensors"}) {
      write_text_file(folder / newer, damaged);
      EXPECT_HAS(user_error_of([&] { read_checkpoint(folder / newer); }), "; " + path.string() + " is intact: name it");
    }
    EXPECT_NE(why.find(name), std::string::npos) << why;
    EXPECT_NE(why.find("damaged.safetensors"), std::string::npos) << why;
  }
}

TEST(Checkpoint, FallsBackFromBrokenMetadata) {
  const tiny::Folder run;
  const fs::path folder = run / "checkpoints";
  write_checkpoint(tiny_checkpoint(1), folder, 9);
  const fs::path newest = write_checkpoint(tiny_checkpoint(2), folder, 9);
  std::string bytes = read_text_file(newest, std::size_t{1} << 24);
  const std::size_t key = bytes.find("d_model = ");
  ASSERT_NE(key, std::string::npos);
  bytes.replace(key, 7, "d_mudel");
  write_text_file(newest, bytes);
  EXPECT_EQ(find_checkpoint(run.path()), folder / "step_1.safetensors");
}

// Writes a valid checkpoint, applies `change` and returns the changed file.
struct Contents {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};
fs::path forge(const tiny::Folder& folder, const std::function<void(Contents&)>& change) {
  const fs::path good = write_checkpoint(tiny_checkpoint(), folder.path(), 9);
  const SafetensorsFile file(good);
  Contents contents{file.tensors(), file.metadata()};
  change(contents);
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : contents.tensors) {
    writer.add(name, tensor.dtype, tensor.shape, tensor.data);
  }
  for (const auto& [key, value] : contents.metadata) {
    writer.set_metadata(key, value);
  }
  writer.write(folder / "forged.safetensors");
  return folder / "forged.safetensors";
}

void replace(std::string& text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  ASSERT_NE(at, std::string::npos) << what;
  text.replace(at, what.size(), by);
}

TEST(Checkpoint, WithInvalidContentIsRefused) {
  struct Lie {
    const char* expected;
    std::function<void(Contents&)> change;
  };
  const auto config = [](const char* what, const char* by) {
    return [=](Contents& c) { replace(c.metadata.at("config"), what, by); };
  };
  const std::vector<Lie> lies = {
      {"format", [](Contents& c) { c.metadata.at("format") = "headroom.tokens.1"; }},
      {"format", [](Contents& c) { c.metadata.erase("format"); }},
      {"config", [](Contents& c) { c.metadata.erase("config"); }},
      {"forged.safetensors", [](Contents& c) { c.metadata.at("config") = "[model"; }},
      {"n_layer", config("n_layers = 2", "n_layer = 2")},
      {"n_layers", config("n_layers = 2", "n_layers = 1000000000000")},
      {"layer2.", config("n_layers = 2", "n_layers = 3")},
      {"parameters", config("n_layers = 2", "n_layers = 1")},
      {"embed", config("d_model = 16", "d_model = 1048576")},
      {"embed", config("d_model = 16", "d_model = 18")},
      {"vocabulary_size", config("vocabulary_size = 256", "vocabulary_size = 255")},
      {"forged.safetensors", config("d_hidden = 32", "d_hidden = 9223372036854775807")},
      {"step", [](Contents& c) { c.metadata.at("step") = "-3"; }},
      {"step", [](Contents& c) { c.metadata.at("step") = "3 and more"; }},
      {"step", [](Contents& c) { c.metadata.at("step") = "99999999999999999999"; }},
      {"tokenizer_kind", [](Contents& c) { c.metadata.at("tokenizer_kind") = "runes"; }},
      {"SentencePiece", [](Contents& c) { c.metadata.at("tokenizer_kind") = "sentencepiece"; }},
      {"tokenizer", [](Contents& c) { c.metadata.at("tokenizer_name") = "bytes-256-00000000"; }},
      {"tokenizer", [](Contents& c) { c.tensors.erase("tokenizer"); }},
      {"tokenizer", [](Contents& c) { c.tensors.at("tokenizer") = c.tensors.at("model.head.b"); }},
      {"head.b", [](Contents& c) { c.tensors.erase("model.head.b"); }},
      {"parameters", [](Contents& c) { c.tensors["model.more"] = c.tensors.at("model.head.b"); }},
      {"head.b",
       [](Contents& c) {
         c.tensors.at("model.head.b").shape = {16, 16};
       }},
      {"head.b", [](Contents& c) { c.tensors.at("model.head.b").dtype = DType::i32; }},
      {"optimizer.x",
       [](Contents& c) {
         StoredTensor odd = c.tensors.at("model.head.b");
         odd.dtype = DType::u16;
         odd.shape = {512};
         c.tensors["optimizer.x"] = odd;
       }},
  };
  const tiny::Folder folder;
  ASSERT_NO_THROW(read_checkpoint(forge(folder, [](Contents&) {})));
  for (std::size_t i = 0; i < lies.size(); ++i) {
    const fs::path path = forge(folder, lies[i].change);
    const std::string why = user_error_of([&] { read_checkpoint(path); });
    EXPECT_NE(why.find(lies[i].expected), std::string::npos) << i << ": " << why;
    EXPECT_NE(why.find("forged.safetensors"), std::string::npos) << i << ": " << why;
  }
}

// Returns a mixture with a prior for each head and key position.
config::Config mixture(config::PriorUpdate update, const char* position) {
  config::Config config = tiny::config();
  tiny::set(config, "model.memory_length=0 model.attention.projection=dense model.attention.score=gaussian_mixture");
  config.model.attention.position = position;
  tiny::set(config, "model.attention.keys=own model.attention.n_mixtures=2 model.attention.prior=head_position");
  config.model.attention.of<config::MixtureOptions>().prior_update = update;
  return config;
}

TEST(Checkpoint, HasPriorsByPositionWhateverThePositions) {
  const tiny::Folder folder;
  for (const char* position : {"none", "learned", "sinusoidal", "rope"}) {
    for (const config::PriorUpdate update : {config::PriorUpdate::gradient, config::PriorUpdate::soft_e}) {
      const config::Config config = mixture(update, position);
      const Checkpoint written = checkpoint_of(models::LanguageModel(config.model, 7), config, 3);
      const Checkpoint read = read_checkpoint(write_checkpoint(written, folder.path(), 1));
      EXPECT_TRUE(read.verified) << position;
      EXPECT_EQ(read.tensors.size(), written.tensors.size()) << position;
    }
  }
}

// A group in which this process is rank 0 of two; rank 1 sends the same data.
class Twins : public ProcessGroup {
 public:
  Twins() { size_ = 2; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine, mine}; }
};

TEST(Checkpoint, OfSeveralRanksHasEveryByteOnce) {
  const tiny::Folder folder;
  Twins twins;
  EXPECT_THROW(save_checkpoint(tiny_checkpoint(), folder / "twice.safetensors", twins), SharedError);
  Checkpoint checkpoint = tiny_checkpoint();
  for (auto& [name, tensor] : checkpoint.tensors) {
    tensor = tensor.to(at::kMeta);
  }
  EXPECT_THROW(save_checkpoint(checkpoint, folder / "never.safetensors", twins), SharedError);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace headroom::store::checkpoint_test
