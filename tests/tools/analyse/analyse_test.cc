#include "tools/analyse/analyse.h"

#include "engine/nn/combinations.h"
#include "folder_test.h"
#include "small_model.h"
#include "tiny/files.h"

namespace headroom::analyse::analyse_test {

using small::small_model;
using small::small_options;

// Expects that the analysis throws a UserError whose message contains all `parts`.
void expect_refusal(const store::OpenedModel& opened, const std::string& what, const std::string& text,
                    const std::vector<std::string>& parts) {
  const std::string why = user_error_of([&] { small::found(opened, what, text); });
  for (const std::string& part : parts) {
    EXPECT_HAS(why, part);
  }
}

TEST(Analyse, UnknownAndInapplicableAnalysesAreRefused) {
  const store::OpenedModel opened = small_model("");
  expect_refusal(opened, "expert", "abc",
                 {"--what", "circuits, composition, diversity, experts, importance, induction, maps, mixture, rank",
                  "expert", "did you mean experts?"});
  expect_refusal(opened, "experts", "abc", {"--what: experts", "small", "projection \"dense\""});
  expect_refusal(opened, "composition", "abc", {"--what: composition", "small", "composition \"none\""});
  // Settings are refused before any data is read.
  const config::ModelOptions& options = opened.config().model;
  EXPECT_THROW(require_analyses({.what = {"maps", "experts"}}, options, "small"), UserError);
  EXPECT_NO_THROW(require_analyses({.what = {"maps", "rank"}}, options, "small"));
  EXPECT_THROW(require_analyses({.key = 3}, options, "small"), UserError) << "no composition";
}

// By default all applicable analyses run, for every kind of model.
TEST(Analyse, ModelsOfAllKindsAndParts) {
  const std::string text = "the cat sat on the mat, the cat sat";
  for (const auto& [kind, name] : config::values_of<config::ModelKind>()) {
    if (kind == config::ModelKind::vision) {
      continue;
    }
    for (const std::string& projection : small::kProjections) {
      config::ModelOptions o = small_options(fmt::format("kind={}", name));
      small::set_projection(o.attention, projection);
      o.mlp.kind = projection == "experts" ? config::MlpKind::experts : config::MlpKind::dense;
      o.attention.composition = projection == "dense" ? "dynamic" : "none";
      SCOPED_TRACE(std::string(name) + ", " + projection);
      const store::OpenedModel opened = small_model(o);
      const bool pair = kind == config::ModelKind::encoder_decoder;
      const ModelFindings all = analyse(
          opened,
          {.what = {}, .text = {.text = pair ? "a source\tand its text" : text, .data = {}}, .command = "test"});
      std::vector<std::string_view> names;
      for (const auto& [what, findings] : all.analyses) {
        names.push_back(what->name);
        EXPECT_FALSE(findings.summary.empty()) << what->name;
        EXPECT_FALSE(findings.figures.empty()) << what->name;
        for (const auto& [tensor, values] : findings.tensors) {
          EXPECT_TRUE(at::isfinite(values.to(at::kFloat)).all().item<bool>()) << what->name << "." << tensor;
        }
      }
      const bool has_diversity = o.attention.projection->has_head_matrices() || o.attention.projection->has_latent();
      EXPECT_GE(names.size(), has_diversity ? 3U : 2U);
    }
  }
}

TEST(Analyse, MapsOfAPairShowItsSecondText) {
  const store::OpenedModel opened = small_model("kind=classifier paired=true");
  const Findings maps = small::found(opened, "maps", "longer text\tshort");
  EXPECT_EQ(maps.tensors.at("layer0.attention").size(1), 5);
  EXPECT_TRUE(maps.summary.ends_with("over 5 tokens")) << maps.summary;
}

// Every analysis runs on every part that it does not refuse.
TEST(Analyse, EveryPartIsAnalysedOrRefused) {
  std::int64_t n_run = 0;
  for (const auto& choices : {testing::projections(), testing::scores(), testing::compositions(), testing::positions(),
                              testing::output_gates()}) {
    for (const testing::Choice& choice : choices) {
      config::ModelOptions o = testing::small_model();
      o.vocabulary_size = 260;
      o.context_length = 12;
      choice.set(o);
      if (!testing::refusal(o).empty()) {  // in language models
        continue;
      }
      const store::OpenedModel opened = small_model(o);
      for (const auto& [name, kind] : analysis_kinds()) {
        SCOPED_TRACE(choice.name + ", " + std::string(name));
        if (kind.refusal(o).empty()) {
          EXPECT_FALSE(small::found(opened, std::string(name), "the cat sat!").summary.empty());
          ++n_run;
        }
      }
    }
  }
  EXPECT_GT(n_run, 150);
}

// Layers that differ in windows, rotary bases and MLPs are analysed together; layers of other kinds separately.
TEST(Analyse, LayersMayDiffer) {
  config::ModelOptions o = small_options("attention.position=rope");
  o.layers = {{.repeat = 1, .attention = {{"window", "4"}, {"rope_base", "700.0"}}, .mlp = {{"kind", "\"gated\""}}},
              {.repeat = 1, .attention = {}, .mlp = {{"kind", "\"experts\""}}}};
  const store::OpenedModel opened = small_model(o);
  const ModelFindings all =
      analyse(opened, {.text = {.text = "the cat sat on the mat, the cat sat"}, .command = "test"});
  std::set<std::string_view> names;
  for (const auto& [what, findings] : all.analyses) {
    names.insert(what->name);
  }
  for (const char* name : {"maps", "experts", "induction", "rank"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  const at::Tensor first = small::found(opened, "maps", "the cat sat").tensors.at("layer0.attention");
  EXPECT_EQ(first.select(1, 10).narrow(1, 0, 7).abs().max().item<double>(), 0.0) << "outside the window";
  o.n_layers = 3;
  o.layers[1].attention = {{"composition", "\"dynamic\""}};
  const ModelFindings mixed = analyse(small_model(o), {.text = {.text = "the cat sat on the mat"}, .command = "test"});
  for (const auto& [what, findings] : mixed.analyses) {
    if (what->name == "composition") {
      EXPECT_FALSE(findings.metrics.contains("layer 1")) << "the only group that has it";
    } else if (what->name == "maps") {
      EXPECT_TRUE(findings.metrics.contains("layers 0, 2"));
      EXPECT_TRUE(findings.metrics.contains("layer 1"));
      EXPECT_EQ(findings.tensors.size(), 3U);
    }
    names.insert(what->name);
  }
  EXPECT_TRUE(names.contains("composition"));
}

TEST(Analyse, InvalidTextsAreRefused) {
  const store::OpenedModel pairs = small_model("kind=encoder_decoder");
  expect_refusal(pairs, "maps", "no tab", {"--text: line 1", "tab"});
  expect_refusal(pairs, "maps", "only\t", {"--text: line 1", "has no text"});
  expect_refusal(pairs, "maps", "", {"--text or --file"});
  const store::OpenedModel images =
      small_model("kind=vision image_size=8 patch_size=4 context_length=4 attention.position=learned");
  expect_refusal(images, "maps", "abc", {"--what: maps", "small", "kind vision"});
  const ModelFindings all = analyse(images, {.text = {}, .command = "test"});
  ASSERT_EQ(all.analyses.size(), 1U) << "by default";
  EXPECT_EQ(all.analyses.front().first->name, "diversity");
}

// ListOps uses the task's tokenizer instead of the checkpoint's, and long samples are cut.
TEST(Analyse, ClassifiersReadTheTextsOfTheirTask) {
  store::OpenedModel opened = small_model("kind=classifier vocabulary_size=16 n_classes=10 context_length=400");
  opened.checkpoint.config.data.generator = config::Generator::listops;
  opened.checkpoint.config.data.generated_validation = 20;
  const std::string text = "[MAX 2 9 [MIN 4 7 ] 0 ]";
  const Findings maps = small::found(opened, "maps", text);
  const at::Tensor weights = maps.tensors.at("layer1.attention");
  EXPECT_EQ(weights.sizes().vec(), (std::vector<std::int64_t>{2, 9, 9}));
  EXPECT_TRUE(at::allclose(weights.sum(-1), at::ones({2, 9}), 1e-5, 1e-5));
  EXPECT_GT(weights.triu(1).sum().item<double>(), 0.0) << "queries see what comes later";
  EXPECT_TRUE(weights.equal(small::recorded(opened, text).at("layer1.attention.probs")[0]));
  EXPECT_NE(maps.figures.at(1).blocks.dump().find("\"[MAX\""), std::string::npos);
  expect_refusal(opened, "maps", "[MAX 2 9", {"--text: line 1", "unbalanced"});
  // If no text is given, the run's validation data are read.
  EXPECT_GT(small::found(opened, "maps", "").tensors.at("layer0.attention").size(1), 3);
  std::string sum = "[SM";
  for (int i = 0; i < 300; ++i) {
    sum += " 1";
  }
  EXPECT_EQ(small::found(opened, "maps", sum + " ]").tensors.at("layer0.attention").size(1), 256);
}

TEST(Analyse, SidesOfATranslationHaveTheirOwnTokens) {
  store::OpenedModel pairs = small_model("kind=encoder_decoder source_vocabulary_size=5");
  pairs.checkpoint.tokenizer = tokenizers::two_tokenizers(
      tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "vwxyz", "sources"), pairs.checkpoint.tokenizer);
  const Findings maps = small::found(pairs, "maps", "zyx\tabcd");
  const auto names = [&](const std::string& layer) {
    std::string found;
    for (const Figure& figure : maps.figures) {
      for (const char c : figure.caption == layer ? std::string_view("abcdxyz") : std::string_view()) {
        found += figure.blocks.dump().find(fmt::format("\"{}\"", c)) != std::string::npos ? std::string(1, c) : "";
      }
    }
    return found;
  };
  EXPECT_EQ(names("encoder.layer0.attention"), "xyz");
  EXPECT_EQ(names("decoder.layer0.attention"), "abcd");
  EXPECT_EQ(names("decoder.layer0.cross"), "abcdxyz");
}

TEST(Analyse, ResultsDoNotDependOnOtherAnalyses) {
  const std::string text = tiny::text(40 * 12);
  for (const bool composed : {false, true}) {
    const store::OpenedModel opened =
        small_model(composed ? "attention.composition=dynamic" : "attention.score=gaussian_mixture");
    const ModelFindings together =
        analyse(opened, {.what = {"maps", "rank", "circuits", composed ? "composition" : "mixture"},
                         .text = {.text = text, .data = {}}});
    for (const auto& [kind, findings] : together.analyses) {
      EXPECT_EQ(findings.metrics, small::found(opened, std::string(kind->name), text).metrics) << kind->name;
    }
  }
}

// Every token is read once, with and without memory, for all lengths of the last chunk.
TEST(Analyse, EveryPartOfATextIsReadOnce) {
  for (const std::int64_t memory : {0, 12}) {
    for (const std::size_t size : {1U, 11U, 12U, 13U, 100U, 301U}) {
      const store::OpenedModel opened = small_model(fmt::format("memory_length={}", memory));
      const std::string written = tiny::text(std::max<std::size_t>(size, 2)).substr(0, size);
      const std::unique_ptr<InputText> text = open_text(opened, {.text = written, .data = {}});
      std::vector<std::int64_t> counts(256, 0), expected(256, 0);
      for (const char c : written) {
        ++expected[static_cast<unsigned char>(c)];
      }
      text->for_each_batch([&](const InputBatch& input, models::Memory&) {
        for (std::int64_t i = 0; i < input.tokens.numel(); ++i) {
          ++counts[static_cast<std::size_t>(input.tokens.view({-1})[i].item<std::int64_t>())];
        }
      });
      EXPECT_EQ(counts, expected) << size << " bytes";
    }
  }
}

TEST(Analyse, WritesItsFiles) {
  const tiny::Folder folder;
  const store::OpenedModel opened = small_model("");
  const AnalyseRequest request{
      .what = {"maps", "rank"}, .text = {.text = "<b>&\x01 text", .data = {}}, .command = "<c>"};
  std::vector<ModelFindings> all;
  all.push_back(analyse(opened, request));
  const Json document = write_analyses(all, request, folder / "out");
  EXPECT_EQ(document.at("report"), (folder / "out" / "report.html").string());
  EXPECT_TRUE(document.at("analyses").contains("rank"));
  const Json read = parse_json(read_text_file(folder / "out" / "analysis.json"), "analysis.json");
  EXPECT_EQ(read.at("analyses"), document.at("analyses"));
  const SafetensorsFile tensors(folder / "out" / "analysis.safetensors");
  EXPECT_EQ(tensors.at("maps.layer0.attention").shape, (std::vector<std::int64_t>{2, 10, 10}));
  const std::string page = read_text_file(folder / "out" / "report.html");
  EXPECT_NE(page.find("[\"Command\",\"\\u003cc>\"]"), std::string::npos);
}

TEST(Analyse, AnotherCommandsPageIsKept) {
  const tiny::Folder folder;
  write_text_file(folder / "report.html", "of a comparison");
  EXPECT_THROW(check_output_folder(folder.path(), true), UserError);
  write_text_file(folder / "analysis.json", "{}");
  EXPECT_NO_THROW(check_output_folder(folder.path(), true));
  EXPECT_THROW(check_output_folder(folder.path(), false), UserError);
  EXPECT_THROW(check_output_folder(folder / "report.html", true), UserError);
}

}  // namespace headroom::analyse::analyse_test
