// What is asked for, what is read, and what is written.
#include "tools/analyse/analyse.h"

#include <gtest/gtest.h>

#include "engine/store/tiny.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"
#include "small_model.h"
#include "tools/analyse/text.h"

namespace headroom::inspect {
namespace analyse_test {

using small::small_model;
using small::small_options;

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Analyse, UnknownAndMissingOnesAreNamed) {
  const store::OpenedModel opened = small_model(small_options());
  EXPECT_EQ(refusal_of([&] { small::found(opened, "expert", "abc"); }),
            "analyse: --what: must be among circuits, composition, diversity, experts, induction, maps, mixture, rank, "
            "got expert; did you mean experts?");
  EXPECT_EQ(refusal_of([&] { small::found(opened, "experts", "abc"); }),
            "analyse: --what: small has no experts: neither its attention (projection \"dense\") nor its MLP has "
            "experts");
  // Before anything is read.
  EXPECT_THROW(require_analyses({"maps", "experts"}, opened.config().model, "small"), UserError);
  EXPECT_NO_THROW(require_analyses({"maps", "rank"}, opened.config().model, "small"));
  EXPECT_EQ(refusal_of([&] { small::found(opened, "composition", "abc"); }),
            "analyse: --what: small has no composition: its heads are not composed (composition \"none\")");
  EXPECT_EQ(refusal_of([&] { small::found(opened, "mixture", "abc"); }),
            "analyse: --what: small has no mixture: its attention has one key at each position");
}

// Without a wish every model gets what it has, whatever it is made of.
TEST(Analyse, ModelsOfAllKindsAndParts) {
  const std::string text = "the cat sat on the mat, the cat sat";
  for (const auto& [kind, name] : config::values_of<config::ModelKind>()) {
    if (kind == config::ModelKind::vision) {
      continue;
    }
    for (const std::string projection : {"dense", "experts", "routed_heads", "gated_heads", "latent"}) {
      config::ModelOptions o = small_options(kind);
      o.attention.projection = projection;
      o.mlp.kind = projection == "experts" ? config::MlpKind::experts : config::MlpKind::dense;
      o.attention.composition = projection == "dense" ? "dynamic" : "none";
      SCOPED_TRACE(std::string(name) + ", " + projection);
      const store::OpenedModel opened = small_model(o);
      const bool pair = kind == config::ModelKind::encoder_decoder;
      const Analysed all = analyse(
          opened,
          {.what = {}, .text = {.text = pair ? "a source\tand its text" : text, .data = {}}, .command = "test"});
      std::vector<std::string_view> names;
      for (const auto& [what, findings] : all.analyses) {
        names.push_back(what->name);
        EXPECT_FALSE(findings.summary.empty()) << what->name;
        EXPECT_FALSE(findings.pictures.empty()) << what->name;
        for (const auto& [tensor, values] : findings.tensors) {
          EXPECT_TRUE(at::isfinite(values.to(at::kFloat)).all().item<bool>()) << what->name << "." << tensor;
        }
      }
      EXPECT_GE(names.size(), 3U);
    }
  }
}

TEST(Analyse, TextsThatCannotBeReadAreRefused) {
  const store::OpenedModel pairs = small_model(small_options(config::ModelKind::encoder_decoder));
  EXPECT_EQ(refusal_of([&] { small::found(pairs, "maps", "no tab"); }),
            "analyse: --text: line 1: must be a source and its translation with a tab between them");
  EXPECT_EQ(refusal_of([&] { small::found(pairs, "maps", "only\t"); }), "analyse: --text: line 1: has no text");
  EXPECT_EQ(refusal_of([&] { small::found(pairs, "maps", ""); }),
            "analyse: --text or --data: one of them is needed for a model of translation");
  config::ModelOptions vision = small_options(config::ModelKind::vision);
  vision.image_size = 8;
  vision.patch_size = 4;
  vision.context_length = 4;
  vision.attention.position = "learned";
  EXPECT_EQ(refusal_of([&] { small::found(small_model(vision), "maps", "abc"); }),
            "small: is a model of kind vision, which reads no text");
}

// Its texts are symbols of ListOps, which its checkpoint has no tokenizer for, and of which only the beginning is
// shown.
TEST(Analyse, ClassifiersReadTheTextsOfTheirTask) {
  config::ModelOptions o = small_options(config::ModelKind::classifier);
  o.vocabulary_size = 16;
  o.n_classes = 10;
  o.context_length = 400;
  store::OpenedModel opened = small_model(o);
  opened.checkpoint.config.data.generator = config::Generator::listops;
  opened.checkpoint.config.data.generated_validation = 20;
  const std::string text = "[MAX 2 9 [MIN 4 7 ] 0 ]";
  const Findings maps = small::found(opened, "maps", text);
  const at::Tensor weights = maps.tensors.at("layer1.attention");
  EXPECT_EQ(weights.sizes().vec(), (std::vector<std::int64_t>{2, 9, 9}));
  EXPECT_TRUE(at::allclose(weights.sum(-1), at::ones({2, 9}), 1e-5, 1e-5));
  EXPECT_GT(weights.triu(1).sum().item<double>(), 0.0) << "queries see what comes later";
  EXPECT_TRUE(weights.equal(small::recorded(opened, text).at("layer1.attention.probs")[0]));
  EXPECT_NE(maps.pictures.front().markup.find(">[MAX</text>"), std::string::npos);
  EXPECT_EQ(refusal_of([&] { small::found(opened, "maps", "[MAX 2 9"); }),
            "analyse: --text: line 1: unbalanced: 1 of the brackets are never closed");
  // Without a text: what the run is validated on.
  EXPECT_GT(small::found(opened, "maps", "").tensors.at("layer0.attention").size(1), 3);
  std::string sum = "[SM";
  for (int i = 0; i < 300; ++i) {
    sum += " 1";
  }
  EXPECT_EQ(small::found(opened, "maps", sum + " ]").tensors.at("layer0.attention").size(1), 256);
}

TEST(Analyse, SidesOfATranslationHaveTheirOwnTokens) {
  config::ModelOptions o = small_options(config::ModelKind::encoder_decoder);
  o.source_vocabulary_size = 5;
  store::OpenedModel pairs = small_model(o);
  pairs.checkpoint.tokenizer = tokenizers::two_tokenizers(
      tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "vwxyz", "sources"), pairs.checkpoint.tokenizer);
  const Findings maps = small::found(pairs, "maps", "zyx\tabcd");
  const auto names = [&](const std::string& layer) {
    std::string found;
    for (const Picture& picture : maps.pictures) {
      for (const char c : picture.caption == layer ? std::string_view("abcdxyz") : std::string_view()) {
        found += picture.markup.find(fmt::format(">{}</text>", c)) != std::string::npos ? std::string(1, c) : "";
      }
    }
    return found;
  };
  EXPECT_EQ(names("encoder.layer0.attention"), "xyz");
  EXPECT_EQ(names("decoder.layer0.attention"), "abcd");
  EXPECT_EQ(names("decoder.layer0.cross"), "abcdxyz");
}

// What an analysis finds does not depend on which others run beside it.
TEST(Analyse, EachReadsTheSamplesThatItWouldReadAlone) {
  config::ModelOptions o = small_options();
  o.attention.score = "gaussian_mixture";
  const store::OpenedModel opened = small_model(o);
  const std::string text = tiny::text(40 * 12);
  const Analysed together =
      analyse(opened, {.what = {"maps", "rank", "mixture"}, .text = {.text = text, .data = {}}, .command = "test"});
  for (const auto& [kind, findings] : together.analyses) {
    EXPECT_EQ(findings.figures, small::found(opened, std::string(kind->name), text).figures) << kind->name;
  }
}

// Every token is read once, memory or not, whatever is left behind the last whole chunk.
TEST(Analyse, AllOfATextIsReadOnce) {
  for (const std::int64_t memory : {0, 12}) {
    for (const std::size_t size : {1U, 11U, 12U, 13U, 100U, 301U}) {
      config::ModelOptions o = small_options();
      o.memory_length = memory;
      const store::OpenedModel opened = small_model(o);
      const std::string written = tiny::text(std::max<std::size_t>(size, 2)).substr(0, size);
      const std::unique_ptr<Text> text = open_text(opened, {.text = written, .data = {}});
      std::vector<std::int64_t> counts(256, 0), expected(256, 0);
      for (const char c : written) {
        ++expected[static_cast<unsigned char>(c)];
      }
      text->read_all([&](const Reading& reading, models::Memory&) {
        for (std::int64_t i = 0; i < reading.tokens.numel(); ++i) {
          ++counts[static_cast<std::size_t>(reading.tokens.view({-1})[i].item<std::int64_t>())];
        }
      });
      EXPECT_EQ(counts, expected) << size << " bytes";
    }
  }
}

// A sample has the memory that reading from the beginning leaves.
TEST(Analyse, SamplesHaveTheirMemory) {
  config::ModelOptions o = small_options();
  o.memory_length = 12;
  const store::OpenedModel opened = small_model(o);
  const Reader reader(opened);
  const std::unique_ptr<Text> text = open_text(opened, {.text = tiny::text(40), .data = {}});
  models::Memory first, read_on;
  const Reading second = text->sample(1, read_on);
  nn::Recorder nothing({});
  reader.read(text->sample(0, first), first, nothing);
  ASSERT_EQ(read_on.layers.size(), 2U);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(read_on.layers[layer].equal(first.layers[layer]));
  }
  EXPECT_EQ(second.tokens.size(1), 12);
}

TEST(Analyse, WritesItsFiles) {
  const tiny::Folder folder;
  const store::OpenedModel opened = small_model(small_options());
  const AnalyseRequest request{
      .what = {"maps", "rank"}, .text = {.text = "<b>&\x01 text", .data = {}}, .command = "<c>"};
  std::vector<Analysed> all;
  all.push_back(analyse(opened, request));
  const Json document = write_analyses(all, request, folder / "out");
  EXPECT_EQ(document.at("report"), (folder / "out" / "report.html").string());
  EXPECT_TRUE(document.at("analyses").contains("rank"));
  const Json read = parse_json(read_text_file(folder / "out" / "analysis.json"), "analysis.json");
  EXPECT_EQ(read.at("analyses"), document.at("analyses"));
  const SafetensorsFile tensors(folder / "out" / "analysis.safetensors");
  EXPECT_EQ(tensors.at("maps.layer0.attention").shape, (std::vector<std::int64_t>{2, 10, 10}));
  const std::string page = read_text_file(folder / "out" / "report.html");
  EXPECT_NE(page.find("&lt;c&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<c>"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos) << "the page needs nothing else";
}

TEST(Analyse, AnotherCommandsPageStays) {
  const tiny::Folder folder;
  write_text_file(folder / "report.html", "of a comparison");
  EXPECT_THROW(require_room_for_analyses(folder.path()), UserError);
  write_text_file(folder / "analysis.json", "{}");
  EXPECT_NO_THROW(require_room_for_analyses(folder.path()));
  EXPECT_THROW(require_room_for_analyses(folder / "report.html"), UserError);
}

TEST(Analyse, TokensAreSpelled) {
  store::OpenedModel opened = small_model(small_options());
  const Reader reader(opened);
  EXPECT_EQ(reader.token_text('a'), "a");
  EXPECT_EQ(reader.token_text(' '), " ");
  EXPECT_EQ(reader.token_text(0xe2), "\\xE2");
  EXPECT_EQ(reader.token_text(257), "<257>");
  opened.checkpoint.tokenizer =
      tokenizers::restore_tokenizer(config::TokenizerKind::words, "<unk>\n<eos>\ncat\n", "test");
  EXPECT_EQ(Reader(opened).token_text(2), " cat");
}

}  // namespace analyse_test
}  // namespace headroom::inspect
