// The models published with DCMHA: DCFormer (RMS norms, gated MLPs, rotary positions) and DCPythia (layer norms,
// biases, attention and MLP in parallel, rotary positions of a part of the channels). Both have composed heads, and
// windows in some layers.
#include <array>

#include "architecture.h"
#include "foundation/core/ceil_div.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

constexpr std::int64_t kUsualWindow = 256;  // of the named patterns, and if window_size is missing

// A window_type and the pattern of windows that it stands for. Without one, every even layer has window_size.
struct WindowType {
  const char *name, *pattern;
};
constexpr std::array kWindowTypes = {WindowType{"LG", "1:1"}, WindowType{"LGLL", "3:1"}, WindowType{"LGL6", "7:1"}};

// The maps of a layer, in the files' order.
constexpr std::array kMaps = {"pre.q.", "pre.k.", "post.q.", "post.k."};

class DcFormer : public Architecture {
 public:
  DcFormer()
      : Architecture({.kinds = {{"dcformer"}, {"dcpythia"}},
                      .prefix = "",
                      .embedding = "tok_embeddings",
                      .layers = "layers.",
                      .last_norm = "norm",
                      .head = "output"}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& kind) const override {
    const bool pythia = k.given() != nullptr ? kind == "dcpythia" : o.norm == config::Norm::layer;
    k.model_type(pythia ? "dcpythia" : "dcformer", pythia ? "DCPythia" : "DCFormer");
    k.only("use_dcmha", true);
    k.only("query_wise", false);
    k.only("tie_word_embeddings", false);
    k.size("vocab_size", o.vocabulary_size, 32000);
    k.size("n_layer", o.n_layers, 32);
    k.size("dim", o.d_model, 2560);
    k.size("block_size", o.context_length, 2048);
    k.always(o.norm, pythia ? config::Norm::layer : config::Norm::rms);
    k.epsilon("norm_eps", o.norm_epsilon, 1e-5);
    k.always(o.head_bias, false);
    if (pythia) {
      describe_parallel(k, o);
    }
    describe_attention(k, pythia, o);
    k.given() != nullptr ? read_windows(*k.given(), o.attention) : k.only_written(window_settings(o));
    describe_mlp(k, pythia, o);
  }

  static void describe_attention(Keys& k, bool pythia, config::ModelOptions& o) {
    config::AttentionOptions& a = o.attention;
    const Settings* const s = k.given();
    k.size("n_head", a.n_heads, 32);
    if (s != nullptr) {
      a.d_head = s->quotient({"n_head", a.n_heads}, {"dim", o.d_model});
      // The files' rank is n_head / (n_head / 2) in integer division: 2 except for 1 and 3 heads.
      if (a.n_heads == 1 || a.n_heads == 3) {
        s->refuse("n_head", "has no equivalent");
      }
      s->require("rope_scaling", false);
      s->require("rope_parameters", false);
    }
    k.only("head_dim", a.d_head);
    if (s == nullptr || s->number("n_local_heads", -1.0) != -1.0) {
      k.only("n_local_heads", a.n_heads);
    }
    k.always(a.composition, "dynamic");
    k.flag("use_qk_norm", a.qk_norm, false);
    k.always(a.position, "rope");
    auto& position = a.of<config::PositionOptions>();
    k.number("rope_base", position.rope_base, pythia ? 10000.0 : 500000.0);
    if (s != nullptr && !(position.rope_base > 1.0)) {
      s->refuse("rope_base", "must be above 1");
    }
    if (pythia) {
      k.number("rotary_pct", position.rope_fraction, 0.25);
      k.flag("use_linear_bias", a.bias, true);
    } else {
      k.always(position.rope_fraction, 1.0);
      k.always(a.bias, false);
    }
    if (s != nullptr && !(position.rope_fraction > 0.0 && position.rope_fraction <= 1.0)) {
      s->refuse("rotary_pct", "must be above 0 and at most 1");
    }
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

  static void describe_mlp(Keys& k, bool pythia, config::ModelOptions& o) {
    constexpr std::int64_t kMultiple = 256;
    k.always(o.mlp.kind, pythia ? config::MlpKind::dense : config::MlpKind::gated);
    k.size("intermediate_size", o.mlp.d_hidden, pythia ? 4 * o.d_model : round_up(8 * o.d_model / 3, kMultiple));
    k.always(o.mlp.activation, pythia ? config::Activation::gelu : config::Activation::silu);
    k.always(o.mlp.bias, o.attention.bias);
    if (pythia) {
      return;
    }
    bool groups = o.mlp.hidden_groups > 0;
    k.flag("mgate", groups, false);
    if (!groups) {
      return;
    }
    k.size("mgate_dim", o.mlp.hidden_groups, 44);
    if (k.given() != nullptr && o.mlp.d_hidden % o.mlp.hidden_groups != 0) {
      k.given()->refuse("mgate_dim", fmt::format("must divide intermediate_size = {}", o.mlp.d_hidden));
    }
  }

  // Returns window_size and window_type, or neither if the layers' windows match no known pattern.
  static Json window_settings(const config::ModelOptions& o) {
    const std::vector<std::int64_t> windows = windows_of(o);
    const auto follows = [&](std::int64_t window, const char* pattern) {
      config::ModelOptions other = o;
      other.layers.clear();
      other.attention.window = window;
      other.attention.window_pattern = pattern;
      return windows == windows_of(other);
    };
    if (windows == std::vector<std::int64_t>(windows.size(), 0)) {
      return {{"window_size", nullptr}, {"window_type", nullptr}};
    }
    if (follows(windows[0], "1:1")) {
      return {{"window_size", windows[0]}, {"window_type", nullptr}};
    }
    for (const WindowType& known : kWindowTypes) {
      if (follows(kUsualWindow, known.pattern)) {
        return {{"window_size", kUsualWindow}, {"window_type", known.name}};
      }
    }
    return Json::object();
  }

  void map_layer(MappingList& layer, const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    layer.norm("norm_1", "attention_norm");
    layer.norm("norm_2", "ffn_norm");
    for (std::int64_t i = 0; i < 3; ++i) {
      layer.linear(fmt::format("attention.{{}}_{}", "qkv"[i]), "attention.wqkv",
                   fmt::format("(3:{} h e) d -> d h e", i), a.bias ? fmt::format("(3:{} h e)", i).c_str() : nullptr);
    }
    layer.linear("attention.{}_o", "attention.wo", "d (h e) -> h e d", a.bias ? "d" : nullptr);
    if (a.qk_norm) {
      layer.add("attention.q_norm", "attention.q_norm.scale", "e");
      layer.add("attention.k_norm", "attention.k_norm.scale", "e");
    }
    set_map_sizes(layer, o);
    for (std::size_t i = 0; i < kMaps.size(); ++i) {  // the maps of the stages and sides are joined
      const std::string ours = std::string("attention.") + kMaps[i], theirs = "attention.dyn_w_proj.";
      layer.add(ours + "w1", theirs + "dw1", fmt::format("d 1 4:{} m -> 1 d m", i));
      layer.add(ours + "w2", theirs + "qkw", fmt::format("1 4:{} m (2 r) h", i));
      layer.add(ours + "wg", theirs + "dd", fmt::format("d 1:0 (4:{} h)", i));
    }
    const bool gated = o.mlp.kind == config::MlpKind::gated;
    layer.linear(gated ? "ffn.{}_gate" : "ffn.{}_up", "feed_forward.w1", "g d -> d g", o.mlp.bias ? "g" : nullptr);
    if (gated) {
      layer.linear("ffn.{}_up", "feed_forward.w3", "g d -> d g", o.mlp.bias ? "g" : nullptr);
    }
    layer.linear("ffn.{}_down", "feed_forward.w2", "d g -> g d", o.mlp.bias ? "d" : nullptr);
    if (o.mlp.hidden_groups > 0) {
      layer.set('x', o.mlp.hidden_groups);
      layer.add("ffn.w_groups", "feed_forward.mg.weight", "x d -> d x");
    }
  }

  // dw_m is dw1 next to dd, and qkw_m is qkw, both as matrices; pre_proj and post_proj are fixed maps between heads.
  void map_redundant(MappingList& layer, const config::ModelOptions& o) const override {
    const std::string theirs = "attention.dyn_w_proj.";
    const std::int64_t h = o.attention.n_heads, hidden = set_map_sizes(layer, o);
    for (std::int64_t i = 0; i < std::ssize(kMaps); ++i) {
      const std::string ours = std::string("attention.") + kMaps[static_cast<std::size_t>(i)];
      layer.add(ours + "w1", theirs + "dw_m", "(1 d) y").range = {2, i * hidden, hidden};
      layer.add(ours + "wg", theirs + "dw_m", "d y").range = {1, 4 * hidden + i * h, h};
      layer.add(ours + "w2", theirs + "qkw_m", fmt::format("(1 4:{}) m (2 r h)", i));
    }
    layer.add("", theirs + "pre_proj.w", "1 h h");
    layer.add("", theirs + "post_proj.w", "1 h h");
  }

  // Returns the hidden units of a map, the size of axis m. y: the columns of dw_m.
  static std::int64_t set_map_sizes(MappingList& layer, const config::ModelOptions& o) {
    const std::int64_t rank = config::CompositionOptions().compose_rank, h = o.attention.n_heads, hidden = 2 * rank * h;
    layer.set('r', rank);
    layer.set('m', hidden);
    layer.set('y', 4 * hidden + 4 * h);
    return hidden;
  }
};

}  // namespace

const Architecture& dcformer() {
  static const DcFormer kDcFormer;
  return kDcFormer;
}

}  // namespace headroom::store
