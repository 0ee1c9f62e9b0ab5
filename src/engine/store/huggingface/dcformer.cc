// The models published with DCMHA: DCFormer (RMS norms, gated MLPs, rotary positions) and DCPythia (layer norms,
// biases, attention and MLP in parallel, rotary positions of a part of the channels). Both have composed heads, and
// windows in some layers.
#include <array>

#include "architecture.h"
#include "foundation/core/ceil_div.h"
#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::store {
namespace {

constexpr std::int64_t kUsualWindow = 256;  // of the named patterns, and of a config.json that lacks window_size

// window_type and the pattern of windows that it means. null has window_size in every even layer.
struct WindowType {
  const char *name, *pattern;
};
constexpr std::array kWindowTypes = {WindowType{"LG", "1:1"}, WindowType{"LGLL", "3:1"}, WindowType{"LGL6", "7:1"}};

// The maps of a layer in the order of the files.
constexpr std::array kMaps = {"pre.q.", "pre.k.", "post.q.", "post.k."};

std::int64_t rank_of_maps() {
  return config::CompositionOptions().compose_rank;
}

class DcFormer : public Architecture {
 public:
  DcFormer()
      : Architecture({.kinds = {"dcformer", "dcpythia"},
                      .prefix = "",
                      .embedding = "tok_embeddings",
                      .layers = "layers.",
                      .last_norm = "norm",
                      .head = "output"}) {}

  config::ModelOptions read(const Settings& s) const override {
    const bool pythia = s.text("model_type", "dcformer") == "dcpythia";
    s.require("use_dcmha", s.flag("use_dcmha", true));
    s.require("query_wise", !s.flag("query_wise", false));
    s.require("tie_word_embeddings", !s.flag("tie_word_embeddings", false));
    config::ModelOptions o;
    o.vocabulary_size = s.size("vocab_size", 32000);
    o.n_layers = s.size("n_layer", 32);
    o.d_model = s.size("dim", 2560);
    o.context_length = s.size("block_size", 2048);
    o.norm = pythia ? config::Norm::layer : config::Norm::rms;
    o.norm_epsilon = s.epsilon("norm_eps", 1e-5);
    o.head_bias = false;
    o.arrangement = pythia && s.flag("use_parallel_residual", true) ? config::Arrangement::parallel
                                                                    : config::Arrangement::sequential;
    read_attention(s, pythia, o);
    read_windows(s, o.attention);
    read_mlp(s, pythia, o);
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    const bool pythia = o.norm == config::Norm::layer;
    const std::string differs =
        first_difference(o, usual({{"model_type", pythia ? "dcpythia" : "dcformer"}}),
                         {"norm_position", "output_norms", "scaled_embeddings", "tied_embeddings",
                          "attention.projection", "attention.score", "attention.composition", "attention.position",
                          "mlp.kind", pythia ? "" : "mlp.bias", pythia ? "" : "attention.bias"});
    return !differs.empty() ? differs
                            : first_of({{a.kv_heads() != a.n_heads, "attention.n_kv_heads"},
                                        {a.n_heads * a.d_head != o.d_model, "attention.d_head"},
                                        {!window_settings(o), "attention.window_pattern"}});
  }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::AttentionOptions& a = o.attention;
    const auto& position = a.of<config::PositionOptions>();
    const bool pythia = o.norm == config::Norm::layer;
    Json json = {{"model_type", pythia ? "dcpythia" : "dcformer"},
                 {"architectures", {pythia ? "DCPythia" : "DCFormer"}},
                 {"n_layer", o.n_layers},
                 {"dim", o.d_model},
                 {"block_size", o.context_length},
                 {"n_head", a.n_heads},
                 {"n_local_heads", a.n_heads},
                 {"head_dim", a.d_head},
                 {"intermediate_size", o.mlp.d_hidden},
                 {"norm_eps", o.norm_epsilon},
                 {"rope_base", position.rope_base},
                 {"use_dcmha", true},
                 {"use_qk_norm", a.qk_norm},
                 {"query_wise", false}};
    json.update(*window_settings(o));
    if (pythia) {
      json["rotary_pct"] = position.rope_fraction;
      json["use_linear_bias"] = a.bias;
      json["use_parallel_residual"] = o.arrangement == config::Arrangement::parallel;
    } else {
      json["mgate"] = o.mlp.hidden_groups > 0;
      if (o.mlp.hidden_groups > 0) {
        json["mgate_dim"] = o.mlp.hidden_groups;
      }
    }
    return json;
  }

 private:
  static void read_attention(const Settings& s, bool pythia, config::ModelOptions& o) {
    config::AttentionOptions& a = o.attention;
    a.n_heads = s.size("n_head", 32);
    a.d_head = s.quotient({"n_head", a.n_heads}, {"dim", o.d_model});
    // The files' rank is n_head / (n_head / 2), rounded down both times: 2 for all numbers but 1 and 3.
    if (a.n_heads == 1 || a.n_heads == 3) {
      s.refuse("n_head", "has no equivalent");
    }
    for (const auto& [key, value] : {std::pair("head_dim", a.d_head), std::pair("n_local_heads", a.n_heads)}) {
      const bool unset = key == std::string_view("n_local_heads") && s.number(key, -1.0) == -1.0;
      s.require(key, unset || s.number(key, 0.0) == static_cast<double>(value));
    }
    a.bias = pythia && s.flag("use_linear_bias", true);
    a.composition = "dynamic";
    a.qk_norm = s.flag("use_qk_norm", false);
    a.position = "rope";
    auto& position = a.of<config::PositionOptions>();
    position.rope_base = s.number("rope_base", pythia ? 10000.0 : 500000.0);
    if (!(position.rope_base > 1.0)) {
      s.refuse("rope_base", "must be above 1");
    }
    position.rope_fraction = pythia ? s.number("rotary_pct", 0.25) : 1.0;
    if (!(position.rope_fraction > 0.0 && position.rope_fraction <= 1.0)) {
      s.refuse("rotary_pct", "must be above 0 and at most 1");
    }
    s.require("rope_scaling", false);
    s.require("rope_parameters", false);
  }

  static void read_windows(const Settings& s, config::AttentionOptions& a) {
    const std::string type = s.text("window_type", "");
    const std::int64_t size = s.size_or_none("window_size", kUsualWindow);
    if (type.empty()) {
      a.window = size;
      a.window_pattern = size > 0 ? "1:1" : a.window_pattern;
      return;
    }
    for (const WindowType& known : kWindowTypes) {
      if (type == known.name) {
        if (size != kUsualWindow) {
          s.refuse("window_size", fmt::format("must be {} with window_type {}", kUsualWindow, type));
        }
        a.window = kUsualWindow;
        a.window_pattern = known.pattern;
        return;
      }
    }
    s.refuse("window_type", "must be null, LG, LGLL or LGL6");
  }

  static void read_mlp(const Settings& s, bool pythia, config::ModelOptions& o) {
    constexpr std::int64_t kMultiple = 256;
    const std::int64_t usual = pythia ? 4 * o.d_model : round_up(8 * o.d_model / 3, kMultiple);
    o.mlp.kind = pythia ? config::MlpKind::dense : config::MlpKind::gated;
    o.mlp.d_hidden = s.size("intermediate_size", usual);
    o.mlp.activation = pythia ? config::Activation::gelu : config::Activation::silu;
    o.mlp.bias = pythia && s.flag("use_linear_bias", true);
    o.mlp.hidden_groups = !pythia && s.flag("mgate", false) ? s.size("mgate_dim", 44) : 0;
    if (o.mlp.hidden_groups > 0 && o.mlp.d_hidden % o.mlp.hidden_groups != 0) {
      s.refuse("mgate_dim", fmt::format("must divide intermediate_size = {}", o.mlp.d_hidden));
    }
  }

  // Returns window_size and window_type, or nullopt if the layers' windows match no known pattern.
  static std::optional<Json> window_settings(const config::ModelOptions& o) {
    const std::vector<std::int64_t> windows = windows_of(o);
    const auto follows = [&](std::int64_t window, const char* pattern) {
      config::ModelOptions other = o;
      other.layers.clear();
      other.attention.window = window;
      other.attention.window_pattern = pattern;
      return windows == windows_of(other);
    };
    if (windows == std::vector<std::int64_t>(windows.size(), 0)) {
      return Json{{"window_size", nullptr}, {"window_type", nullptr}};
    }
    if (follows(windows[0], "1:1")) {
      return Json{{"window_size", windows[0]}, {"window_type", nullptr}};
    }
    for (const WindowType& known : kWindowTypes) {
      if (follows(kUsualWindow, known.pattern)) {
        return Json{{"window_size", kUsualWindow}, {"window_type", known.name}};
      }
    }
    return std::nullopt;
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t d = o.d_model, h = a.n_heads, e = a.d_head, g = o.mlp.d_hidden;
    const std::string attention = ours + "attention.", joint = theirs + "attention.wqkv.";
    map_norm(mappings, o, ours + "norm_1", theirs + "attention_norm");
    map_norm(mappings, o, ours + "norm_2", theirs + "ffn_norm");
    for (std::int64_t i = 0; i < 3; ++i) {
      const char which = "qkv"[i];
      mappings.push_back({.parameter = fmt::format("{}w_{}", attention, which),
                          .tensor = joint + "weight",
                          .stored = {3 * d, d},
                          .view = {3, h, e, d},
                          .part = {{0, i}},
                          .order = {2, 0, 1}});
      if (a.bias) {
        mappings.push_back({.parameter = fmt::format("{}b_{}", attention, which),
                            .tensor = joint + "bias",
                            .stored = {3 * d},
                            .view = {3, h, e},
                            .part = {{0, i}}});
      }
    }
    map_output(mappings, d, h, e, attention, theirs + "attention.wo.weight");
    if (a.bias) {
      mappings.push_back(same(attention + "b_o", theirs + "attention.wo.bias", {d}));
    }
    if (a.qk_norm) {
      mappings.push_back(same(attention + "q_norm", theirs + "attention.q_norm.scale", {e}));
      mappings.push_back(same(attention + "k_norm", theirs + "attention.k_norm.scale", {e}));
    }
    map_composition(mappings, o, attention, theirs + "attention.dyn_w_proj.");
    const bool gated = o.mlp.kind == config::MlpKind::gated;
    map_linear(mappings, {ours + "ffn.", gated ? "_gate" : "_up"},
               {theirs + "feed_forward.w1", d, g, o.mlp.bias, Stored::out_in});
    if (gated) {
      map_linear(mappings, {ours + "ffn.", "_up"}, {theirs + "feed_forward.w3", d, g, o.mlp.bias, Stored::out_in});
    }
    map_linear(mappings, {ours + "ffn.", "_down"}, {theirs + "feed_forward.w2", g, d, o.mlp.bias, Stored::out_in});
    if (o.mlp.hidden_groups > 0) {
      mappings.push_back(transposed(ours + "ffn.w_groups", theirs + "feed_forward.mg.weight", d, o.mlp.hidden_groups));
    }
  }

  // dw_m is dw1 beside dd, and qkw_m is qkw, both as matrices; pre_proj and post_proj are fixed maps between heads.
  void map_redundant(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                     const std::string& theirs) const override {
    const std::int64_t d = o.d_model, h = o.attention.n_heads, rank = rank_of_maps(), hidden = 2 * rank * h;
    const std::string composition = theirs + "attention.dyn_w_proj.";
    const std::vector<std::int64_t> joint = {d, 4 * hidden + 4 * h};
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::string name = ours + "attention." + kMaps[i];
      mappings.push_back({.parameter = name + "w1",
                          .tensor = composition + "dw_m",
                          .stored = joint,
                          .view = {1, joint[0], joint[1]},
                          .range = {{2, i * hidden, hidden}}});
      mappings.push_back({.parameter = name + "wg",
                          .tensor = composition + "dw_m",
                          .stored = joint,
                          .range = {{1, 4 * hidden + i * h, h}}});
      mappings.push_back({.parameter = name + "w2",
                          .tensor = composition + "qkw_m",
                          .stored = {4, hidden, hidden},
                          .view = {1, 4, hidden, 2, rank, h},
                          .part = {{1, i}}});
    }
    for (const char* fixed : {"pre_proj.w", "post_proj.w"}) {
      mappings.push_back(same("", composition + fixed, {1, h, h}));
    }
  }

  // The maps of the stages and sides are joined, in the order of kMaps.
  static void map_composition(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                              const std::string& theirs) {
    const std::int64_t d = o.d_model, h = o.attention.n_heads, rank = rank_of_maps(), hidden = 2 * rank * h;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::string name = ours + kMaps[i];
      mappings.push_back({.parameter = name + "w1",
                          .tensor = theirs + "dw1",
                          .stored = {d, 1, 4, hidden},
                          .part = {{2, i}},
                          .order = {1, 0, 2}});
      mappings.push_back({.parameter = name + "w2",
                          .tensor = theirs + "qkw",
                          .stored = {1, 4, hidden, 2 * rank, h},
                          .view = {1, 4, hidden, 2, rank, h},
                          .part = {{1, i}}});
      mappings.push_back({.parameter = name + "wg",
                          .tensor = theirs + "dd",
                          .stored = {d, 1, 4 * h},
                          .view = {d, 4, h},
                          .part = {{1, i}}});
    }
  }
};

}  // namespace

const Architecture& dcformer() {
  static const DcFormer kDcFormer;
  return kDcFormer;
}

}  // namespace headroom::store
