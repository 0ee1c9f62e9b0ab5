// The start of HTML pages, and their style sheets.
#pragma once

#include <string>
#include <string_view>

namespace headroom::draw {

// Returns the start of a page, up to the content of <main>. `style` is appended to the style sheets below. `head` is
// markup for <head>.
std::string page_beginning(std::string_view title, std::string_view style = "", std::string_view head = "");

// The style sheet of charts: colour names with values for the light and dark schemes, and line styles that distinguish
// runs without colour.
inline constexpr const char* kStyleSheet = R"css(
:root {
  color-scheme: light dark;
  --ground: #f6f7f8; --card: #ffffff; --text: #1b1f24; --faint: #59626d; --rule: #dfe3e8; --accent: #0a5c9e;
  --s0: #0067ad; --s1: #c24e00; --s2: #007a55; --s3: #a1408a; --s4: #8a6d00; --s5: #2f86b5; --s6: #8c4a3c; --s7: #555d66;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #121417; --card: #1b1e23; --text: #e7eaee; --faint: #a0a9b4; --rule: #333942; --accent: #7cc0f4;
    --s0: #5db3f2; --s1: #f5924e; --s2: #3fcf9f; --s3: #e695cf; --s4: #e5c04a; --s5: #a5daf7; --s6: #d9a294; --s7: #b5bdc7;
  }
}
.sample { width: 30px; height: 10px; vertical-align: middle; }
.small-bar { display: block; width: 100%; height: 6px; }
.small-bar .ground { fill: var(--rule); opacity: .6; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.chart text { font-size: 12px; fill: var(--faint); }
.chart text.y, .chart text.left { text-anchor: end; } .chart text.x { text-anchor: middle; }
.chart text.value { fill: var(--text); }
.chart text.title { fill: var(--text); font-size: 14px; font-weight: 600; }
.grid .axis, .axis { stroke: var(--faint); stroke-width: 1; fill: none; }
path.grid { stroke: var(--rule); stroke-width: 1; fill: none; }
.line { fill: none; stroke: currentColor; stroke-width: 2.2; stroke-linejoin: round; }
.leader { fill: none; stroke: currentColor; stroke-width: 1; stroke-dasharray: 1 3; opacity: .8; }
.end, .bar { fill: currentColor; }
.faint { fill: none; stroke: currentColor; stroke-width: 1.1; opacity: .7; }
.raw { fill: none; stroke: currentColor; stroke-width: .8; opacity: .25; }
.band { fill: currentColor; opacity: .16; }
.reach { fill: none; stroke: currentColor; stroke-width: 2; }
.chart text.label { fill: currentColor; font-weight: 600; } .chart text.left { text-anchor: end; }
.heat { fill: var(--s0); } .heat.below { fill: var(--s1); } .edge { fill: none; stroke: var(--rule); stroke-width: 1; }
.strip { fill: transparent; } .strip:hover { fill: var(--rule); opacity: .5; }
.hover circle { fill: transparent; } .hover circle:hover { fill: currentColor; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
.neutral { color: var(--faint); }
.line.s1 { stroke-dasharray: 7 4; } .line.s2 { stroke-dasharray: 2.5 3; } .line.s3 { stroke-dasharray: 10 3 2.5 3; }
.line.s4 { stroke-dasharray: 14 4; } .line.s5 { stroke-dasharray: 5 2; } .line.s6 { stroke-dasharray: 10 3 2.5 3 2.5 3; }
.line.s7 { stroke-dasharray: 1.5 5; }
)css";

// The style sheet of pages, with rules for phones and print. It uses the colours of kStyleSheet.
inline constexpr const char* kPageStyle = R"css(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.2; text-wrap: balance; }
h1 { font-size: clamp(1.6rem, 4vw, 2.2rem); margin: 0 0 .9rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .8rem; }
h3 { font-size: 1rem; margin: 0 0 .6rem; }
h4 { font-size: .875rem; font-weight: 400; color: var(--faint); margin: .8rem 0 .2rem; }
p { margin: 0 0 .8rem; max-width: 75ch; }
.brand { color: var(--faint); font-size: .85rem; letter-spacing: .06em; text-transform: uppercase; margin: 0 0 .3rem; }
.lead, .warn { list-style: none; margin: 0 0 .9rem; padding: 0 0 0 .9rem; border-left: 4px solid var(--accent);
  max-width: 80ch; overflow-wrap: anywhere; }
p.lead { font-size: 1.15rem; } .lead li + li, .warn li + li { margin-top: .35rem; }
.lead li:first-child { font-size: 1.2rem; font-weight: 600; line-height: 1.35; }
.warn { border-left-color: var(--faint); font-size: .92rem; }
.note { color: var(--faint); font-size: .875rem; max-width: 90ch; }
.card + .note, .grid + .note { margin-top: .7rem; } .card + .card.whole, .grid + .card { margin-top: 1rem; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem 1.1rem; margin: 0;
  min-width: 0; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 1rem; }
.note + .grid { margin-top: 1.2rem; }
.grid.overview { align-items: start; } .grid.overview > :last-child:nth-child(odd) { grid-column: 1 / -1; }
.grid > figure { display: flex; flex-direction: column; }
.grid .chart { max-width: 540px; margin: auto auto 0; }
.grid.samples { grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); margin-bottom: 1rem; }
dl.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem 1.2rem; }
.facts dt { font-size: .8rem; line-height: 1.3; } .facts dd { font-size: 1.15rem; font-weight: 600; }
/* A shade at the right edge, which the end of the table covers. */
.card.scroll { overflow-x: auto; padding: .3rem 0; background:
  linear-gradient(var(--card), var(--card)) right / 26px 100% no-repeat local,
  linear-gradient(to left, var(--rule), transparent) right / 18px 100% no-repeat scroll, var(--card); }
.card.narrow { width: fit-content; max-width: 100%; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .5rem .6rem; text-align: right; white-space: nowrap; position: relative; }
th { font-weight: 600; color: var(--faint); font-size: .8rem; line-height: 1.3; vertical-align: bottom; }
tbody td { border-top: 1px solid var(--rule); }
th:first-child, td:first-child, th.text, td.text { text-align: left; }
th.text, td.text { padding-left: 1.4rem; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--card); padding-left: 1.1rem; }
th:last-child, td:last-child { padding-right: 1.1rem; }
td.name { font-weight: 600; }
td.best { font-weight: 700; }
td.best::after { content: "\2605"; color: var(--accent); font-size: .6em; position: absolute; right: 0; }
td.best:last-child::after { right: .5rem; }
td .sample { margin-right: .5rem; }
td.cost { min-width: 6.5rem; } td.cost.least { font-weight: 700; }
td small { color: var(--faint); font-weight: 400; margin-left: .3rem; }
td .small-bar { margin-top: .25rem; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; margin: 0 0 .8rem; padding: 0; list-style: none;
  font-size: .9rem; }
.legend li { overflow-wrap: anywhere; }
figure figcaption { font-weight: 600; margin: 0 0 .5rem; }
figcaption small { display: block; font-weight: 400; color: var(--faint); }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; tab-size: 4; }
code { font: .88em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
button.copy { margin-left: .6rem; font: inherit; font-size: .8rem; color: var(--accent); background: none;
  border: 1px solid var(--rule); border-radius: 5px; padding: 0 .5rem; cursor: pointer; }
@media (scripting: none) { button.copy { display: none; } }
pre .prompt { color: var(--faint); }
details { border-top: 1px solid var(--rule); padding: .6rem 0; }
details:first-of-type { border-top: 0; }
summary { cursor: pointer; font-weight: 600; }
details pre { margin: .6rem 0 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.2rem; margin: 0; font-size: .92rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 560px) {
  main { padding: 1.2rem .8rem 3rem; }
  .card { padding: .8rem; } .card.scroll { padding: .3rem 0; }
  th:first-child, td:first-child { padding-left: .8rem; }
  td.name { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; max-width: 9rem; line-height: 1.3; }
  .chart text { font-size: 14px; } .chart text.label { font-size: 12px; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } dl.facts { grid-template-columns: 1fr 1fr; }
}
@media print {
  :root { --ground: #fff; --card: #fff; --text: #000; --faint: #444; --rule: #bbb;
    --s0: #0067ad; --s1: #c24e00; --s2: #007a55; --s3: #a1408a; --s4: #8a6d00; --s5: #2f86b5; --s6: #8c4a3c; --s7: #555d66; }
  body { font-size: 11pt; } main { max-width: none; padding: 0; }
  .grid { grid-template-columns: repeat(auto-fill, minmax(45%, 1fr)); } .card.scroll { overflow: visible; background: none; }
  table { font-size: 7pt; } th { font-size: 6.5pt; } th, td { padding: .3rem .22rem; }
  .card, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .bar, .ground, .line, .end { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace headroom::draw
