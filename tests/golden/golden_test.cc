#include "golden/golden.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"
#include "tiny/folder.h"

namespace headroom::golden::golden_test {

namespace fs = std::filesystem;

// Writes a case of a dense layer with one head and one channel, on one token: out = x w_v w_o, for any q and k.
struct OneNumber {
  tiny::Folder folder;
  fs::path json = folder / "one.json", values = folder / "one.safetensors";

  // `more` adds or replaces options.
  void write(float expected, const std::string& family = "dense", const Json& more = Json::object()) const {
    const std::map<std::string, float> numbers = {
        {"in.x", 3.0F},           {"param.w_q", 0.5F},      {"param.w_k", 0.25F},      {"param.w_v", 2.0F},
        {"param.w_o", -1.0F},     {"out", expected},        {"grad_out", 1.0F},        {"grad.in.x", -2.0F},
        {"grad.param.w_q", 0.0F}, {"grad.param.w_k", 0.0F}, {"grad.param.w_v", -3.0F}, {"grad.param.w_o", 6.0F}};
    SafetensorsWriter writer;
    for (const auto& [name, value] : numbers) {
      writer.add(name, DType::f32, {1, 1, 1}, std::as_bytes(std::span(&value, 1)));
    }
    writer.write(values);
    Json meaning = {{"format", 1},
                    {"case", "one"},
                    {"family", family},
                    {"dims", {{"B", 1}, {"T", 1}, {"d_model", 1}, {"H", 1}, {"d_head", 1}}},
                    {"options",
                     {{"causal", true},
                      {"position", "none"},
                      {"scale", "inv_sqrt"},
                      {"objective", {{"out", 1.0}, {"loss", 0.0}, {"aux", 0.0}}}}},
                    {"tolerance", {{"out", 1e-5}, {"grad", 2e-5}, {"grad_floor", 0.1}}}};
    meaning["options"].update(more);
    write_text_file(json, meaning.dump());
  }
};

TEST(Golden, UnsupportedOptionsAreRefused) {
  const OneNumber one;
  const auto reason = [&](const std::string& family, const Json& more) {
    one.write(-6.0F, family, more);
    const CaseOutcome outcome = run_cases({one.folder.path()}, {})[0];
    EXPECT_FALSE(outcome.passed) << more.dump();
    return outcome.reason;
  };
  const auto refused = [&](const std::string& family, const Json& more, const char* key, const char* value) {
    const std::string text = reason(family, more);
    EXPECT_NE(text.find(key), std::string::npos) << text;
    EXPECT_NE(text.find(value), std::string::npos) << text;
  };
  refused("dense", {{"scale", "sqrt"}}, "options.scale", "\"sqrt\"");
  refused("dense", {{"scale", 2}}, "options.scale", "2");
  refused("dense", {{"qk_norm", {{"kind", "layer"}, {"epsilon", 1e-6}}}}, "options.kind", "\"layer\"");
  refused("dense", {{"qk_norm", {{"kind", "rms"}, {"epsilon", 1e-6}}}}, "q_norm", "");
  refused("dense", {{"padding", {{"keys", true}, {"queries", "none"}}}}, "options.queries", "\"none\"");
  const Json composed = {{"base", "identity"},      {"compose", {{"pre", true}}}, {"low_rank", {{"query", true}}},
                         {"gates", Json::object()}, {"activation", "gelu_erf"},   {"factor_epsilon", 1e-5}};
  Json other = composed;
  other["base"] = "mean";
  refused("dcmha", other, "options.base", "\"mean\"");
}

TEST(Golden, AnUnknownFamilyFailsAndBadFilesDoNotStopTheRest) {
  const OneNumber one;
  one.write(-6.0F, "unheard_of");
  EXPECT_NE(run_cases({one.folder.path()}, {})[0].reason.find("unheard_of"), std::string::npos);
  write_text_file(one.json, "{");
  EXPECT_FALSE(run_cases({one.folder.path()}, {})[0].passed);
  one.write(-6.0F);
  fs::resize_file(one.values, 100);
  EXPECT_FALSE(run_cases({one.folder.path()}, {})[0].passed);
  EXPECT_THROW(run_cases({one.folder / "nowhere"}, {}), UserError);
  fs::remove(one.json);
  EXPECT_THROW(run_cases({one.folder.path()}, {}), UserError);
}

}  // namespace headroom::golden::golden_test
