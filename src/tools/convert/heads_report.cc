#include <fmt/format.h>

#include <algorithm>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "heads.h"

namespace headroom::convert {
namespace {

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100.0 * share);
}

Json heads_json(const Heads& heads) {
  return {{"heads", heads.heads}, {"kv_heads", heads.kv_heads}, {"experts", heads.experts}};
}

// Returns, for each layer, the owner of the keys that it uses.
std::vector<std::int64_t> owners_of(const HeadsResult& result) {
  return result.config.model.key_owners(result.config.model.n_layers);
}

Json costs_json(const HeadsResult& result, const std::vector<double>& shares) {
  Json json = Json::object();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    json[result.costs[i]] = shares[i];
  }
  return json;
}

// Returns "macs 50.0%, kv_cache 43.8%".
std::string costs_text(const HeadsResult& result, const std::vector<double>& shares) {
  std::string text;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", result.costs[i], percent(shares[i]));
  }
  return text;
}

// Returns each choice's first cost in percent and its predicted loss.
Json points_of(const std::vector<HeadsChoice>& choices) {
  Json points = Json::array();
  for (const HeadsChoice& choice : choices) {
    points.push_back(draw::numbers({100.0 * choice.shares.front(), choice.predicted}));
  }
  return points;
}

// Returns the predicted and measured losses of the choice and the losses of the best equal layers.
std::string losses_text(const HeadsResult& result) {
  std::string text = fmt::format("added after a short fit: {} predicted, {} measured{}\n",
                                 format_decimal(result.chosen.predicted, 4), format_decimal(result.measured, 4),
                                 result.corrected ? ", chosen by what each layer adds to the others" : "");
  const auto line = [&](const std::string& name, double loss, const std::vector<double>& shares) {
    text += fmt::format("{}: loss {} on held-out tokens, {} above the source; {}\n", name, format_decimal(loss, 4),
                        format_decimal(loss - result.conversion.loss_before, 4), costs_text(result, shares));
  };
  line("by layer", result.conversion.loss_after, result.chosen.shares);
  if (result.uniform) {
    line(fmt::format("equal layers, {}", name_of(result.uniform->layers.front().heads)), result.uniform_loss,
         result.uniform->shares);
  }
  return text;
}

}  // namespace

Json to_json(const HeadsResult& result) {
  Json json = {{"loss_before", result.conversion.loss_before},
               {"loss_after", result.conversion.loss_after},
               {"heads", Json::array()},
               {"kv_heads", Json::array()},
               {"predicted", result.chosen.predicted},
               {"measured", result.measured},
               {"corrected", result.corrected},
               {"costs", costs_json(result, result.chosen.shares)},
               {"layers", Json::array()},
               {"uniform", nullptr},
               {"parameters", result.conversion.parameters}};
  for (std::size_t i = 0; i < result.chosen.layers.size(); ++i) {
    const LayerChoice& layer = result.chosen.layers[i];
    Json of = heads_json(layer.heads);
    json["heads"].push_back(of["heads"]);
    json["kv_heads"].push_back(of["kv_heads"]);
    of.update({{"layer", i},
               {"shared_with", layer.heads.shares ? Json(owners_of(result)[i]) : Json()},
               {"loss", layer.loss},
               {"costs", costs_json(result, layer.shares)}});
    json["layers"].push_back(std::move(of));
  }
  if (result.uniform) {
    json["uniform"] = heads_json(result.uniform->layers.front().heads);
    json["uniform"].update(
        {{"loss_after", result.uniform_loss}, {"costs", costs_json(result, result.uniform->shares)}});
  }
  return json;
}

std::string to_text(const HeadsResult& result) {
  std::vector<std::vector<std::string>> rows = {{"layer", "heads", "key heads", "added alone"}};
  rows.front().insert(rows.front().end(), result.costs.begin(), result.costs.end());
  for (std::size_t i = 0; i < result.chosen.layers.size(); ++i) {
    const auto& [heads, loss, shares] = result.chosen.layers[i];
    rows.push_back({fmt::format("{}", i), heads.experts > 0 ? name_of(heads) : fmt::format("{}", heads.heads),
                    heads.shares ? fmt::format("of layer {}", owners_of(result)[i]) : fmt::format("{}", heads.kv_heads),
                    format_decimal(loss, 4)});
    std::ranges::transform(shares, std::back_inserter(rows.back()), percent);
  }
  return text_table(rows, {}) + losses_text(result);
}

std::string to_page(const HeadsResult& result, const HeadsRequest& request) {
  Json rows = Json::array();
  std::int64_t most = 1;
  for (const LayerChoice& layer : result.chosen.layers) {
    most = std::max(most, layer.heads.heads);
  }
  const auto bar = [&](std::int64_t heads, int style) -> Json {
    return {{"text", fmt::format("{}", heads)},
            {"bar", {static_cast<double>(heads) / static_cast<double>(most), style}}};
  };
  for (std::size_t i = 0; i < result.chosen.layers.size(); ++i) {
    const LayerChoice& layer = result.chosen.layers[i];
    rows.push_back({fmt::format("{}", i), bar(layer.heads.heads, 0), bar(layer.heads.kv_heads, 1),
                    format_decimal(layer.loss, 4), percent(layer.shares.front())});
  }
  const Json lines = {{{"name", "by layer"}, {"points", points_of(result.curve)}, {"style", 0}, {"dots", false}},
                      {{"name", "all layers alike"}, {"points", points_of(result.uniforms)}, {"style", 1}}};
  const std::string& cost = result.costs.front();
  Json chart = {{"chart", "lines"},
                {"title", "Loss against budget"},
                {"x_label", cost + ", % of the source"},
                {"lines", lines},
                {"y", "from_zero"},
                {"name_room", 18}};
  Json figure = {{"figure", "Loss against budget"},
                 {"remark", "the loss that fewer heads add, as the sum over layers converted alone with a short fit"},
                 {"blocks", Json::array({std::move(chart)})}};
  Json table = {{"table", {{"columns", {"layer", "heads", "key heads", "loss added alone", cost}}, {"rows", rows}}}};
  return draw::block_page({{"title", "Heads by layer: " + request.convert.source},
                           {"header", {{{"code", request.convert.command}}}},
                           {"blocks",
                            {{{"card", Json::array({std::move(table)})}},
                             {{"code", losses_text(result)}},
                             {{"grid", Json::array({std::move(figure)})}}}}});
}

}  // namespace headroom::convert
