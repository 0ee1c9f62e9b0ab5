// The vocabulary of the generated composition tasks. No word is in two lists.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace headroom::data {

inline constexpr std::array<std::string_view, 24> kPersons = {
    "Ada",  "Boris", "Clara", "Dmitri", "Elena", "Felix",  "Greta", "Hugo",   "Ida",  "Jonas",  "Karin", "Leo",
    "Mona", "Nils",  "Olga",  "Pablo",  "Rosa",  "Stefan", "Tilda", "Ulrich", "Vera", "Walter", "Yara",  "Zeno"};

// A noun with its article: "an" (otter), "" (socks: plural), "-" (tea: singular, no article).
struct Thing {
  std::string_view article, name;
};
// Things that share an answer: a superclass, a country or a capability.
struct ThingClass {
  std::string_view name;
  std::vector<Thing> things;
};

inline const std::vector<ThingClass>& superclasses() {
  static const std::vector<ThingClass> kAll = {
      {"animal", {{"a", "badger"}, {"an", "otter"}, {"a", "camel"}, {"a", "hedgehog"}, {"an", "owl"}, {"a", "lynx"}}},
      {"fruit", {{"an", "apricot"}, {"a", "cherry"}, {"a", "fig"}, {"a", "pear"}, {"a", "melon"}, {"", "grapes"}}},
      {"vehicle", {{"a", "tram"}, {"a", "van"}, {"a", "ferry"}, {"a", "tractor"}, {"a", "canoe"}, {"an", "ambulance"}}},
      {"clothing", {{"a", "scarf"}, {"a", "coat"}, {"", "mittens"}, {"", "socks"}, {"an", "apron"}, {"a", "vest"}}},
      {"drink", {{"-", "tea"}, {"-", "cider"}, {"-", "milk"}, {"-", "lemonade"}, {"-", "cocoa"}, {"-", "coffee"}}},
      {"instrument", {{"a", "flute"}, {"a", "cello"}, {"a", "harp"}, {"a", "drum"}, {"a", "trumpet"}, {"an", "oboe"}}},
      {"furniture", {{"a", "table"}, {"a", "sofa"}, {"a", "bench"}, {"a", "cupboard"}, {"a", "stool"}, {"a", "desk"}}},
      {"vegetable", {{"a", "carrot"}, {"a", "leek"}, {"a", "turnip"}, {"an", "onion"}, {"", "peas"}, {"-", "spinach"}}},
      {"flower", {{"a", "tulip"}, {"a", "daisy"}, {"an", "orchid"}, {"a", "lily"}, {"a", "poppy"}, {"a", "violet"}}},
      {"insect", {{"an", "ant"}, {"a", "moth"}, {"a", "cricket"}, {"a", "wasp"}, {"a", "ladybird"}, {"a", "midge"}}}};
  return kAll;
}

// Cities, by country.
inline const std::vector<ThingClass>& countries() {
  static const std::vector<ThingClass> kAll = {{"France", {{"-", "Nantes"}, {"-", "Lille"}, {"-", "Dijon"}}},
                                               {"Germany", {{"-", "Bremen"}, {"-", "Leipzig"}, {"-", "Dresden"}}},
                                               {"Italy", {{"-", "Turin"}, {"-", "Bologna"}, {"-", "Genoa"}}},
                                               {"Spain", {{"-", "Bilbao"}, {"-", "Granada"}, {"-", "Malaga"}}},
                                               {"Japan", {{"-", "Nagoya"}, {"-", "Sapporo"}, {"-", "Fukuoka"}}},
                                               {"Poland", {{"-", "Krakow"}, {"-", "Gdansk"}, {"-", "Lublin"}}},
                                               {"Canada", {{"-", "Calgary"}, {"-", "Halifax"}, {"-", "Winnipeg"}}},
                                               {"Brazil", {{"-", "Recife"}, {"-", "Manaus"}, {"-", "Curitiba"}}},
                                               {"Norway", {{"-", "Bergen"}, {"-", "Trondheim"}, {"-", "Stavanger"}}},
                                               {"Egypt", {{"-", "Cairo"}, {"-", "Luxor"}, {"-", "Aswan"}}}};
  return kAll;
}

// Tools by capability: "the thing that can ...".
inline const std::vector<ThingClass>& capabilities() {
  static const std::vector<ThingClass> kAll = {{"write", {{"a", "pen"}, {"a", "crayon"}, {"a", "typewriter"}}},
                                               {"cut", {{"a", "knife"}, {"", "scissors"}, {"a", "saw"}}},
                                               {"sweep", {{"a", "broom"}, {"a", "besom"}}},
                                               {"bake", {{"an", "oven"}, {"a", "stove"}}},
                                               {"dig", {{"a", "shovel"}, {"a", "spade"}}},
                                               {"paint", {{"a", "brush"}, {"a", "roller"}}},
                                               {"call", {{"a", "telephone"}, {"an", "intercom"}}},
                                               {"count", {{"an", "abacus"}, {"a", "calculator"}}},
                                               {"sew", {{"a", "needle"}, {"a", "thimble"}}},
                                               {"shine", {{"a", "lamp"}, {"a", "torch"}, {"a", "candle"}}}};
  return kAll;
}

struct Opposites {
  std::string_view one, other;
};
inline constexpr std::array<Opposites, 16> kOpposites = {{{"hot", "cold"},
                                                          {"early", "late"},
                                                          {"loud", "quiet"},
                                                          {"heavy", "light"},
                                                          {"young", "old"},
                                                          {"tall", "small"},
                                                          {"wet", "dry"},
                                                          {"full", "empty"},
                                                          {"kind", "cruel"},
                                                          {"wide", "narrow"},
                                                          {"sharp", "blunt"},
                                                          {"polite", "rude"},
                                                          {"calm", "nervous"},
                                                          {"generous", "stingy"},
                                                          {"awake", "asleep"},
                                                          {"guilty", "innocent"}}};

// An ordered list, for facts "arrived <preposition> <value>" and questions about "the <unit> just before <value>".
struct Order {
  std::string_view unit, preposition;
  bool circular;  // the first value follows the last
  std::vector<std::string_view> values;
};
inline const std::vector<Order>& orders() {
  static const std::vector<Order> kAll = {
      {"day", "on", true, {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}},
      {"month",
       "in",
       true,
       {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
        "December"}},
      {"year",
       "in",
       false,
       {"1990", "1991", "1992", "1993", "1994", "1995", "1996", "1997", "1998", "1999", "2000", "2001"}},
      {"hour",
       "at",
       true,
       {"1 o'clock", "2 o'clock", "3 o'clock", "4 o'clock", "5 o'clock", "6 o'clock", "7 o'clock", "8 o'clock",
        "9 o'clock", "10 o'clock", "11 o'clock", "12 o'clock"}},
      {"season", "in", true, {"spring", "summer", "autumn", "winter"}}};
  return kAll;
}

}  // namespace headroom::data
