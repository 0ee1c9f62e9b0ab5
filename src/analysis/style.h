// The page's style sheet: one set of names for colours, two values each (light and dark), line styles for those who
// do not tell the colours apart, one column on a phone, plain on paper.
#pragma once

namespace headroom::analysis {

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
.lead { font-size: 1.15rem; border-left: 4px solid var(--accent); padding-left: .9rem; max-width: 70ch; }
.note { color: var(--faint); font-size: .875rem; max-width: 90ch; }
.card + .note { margin-top: .7rem; }
.warn { border-left: 4px solid var(--s1); padding-left: .9rem; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem 1.1rem; margin: 0;
  min-width: 0; }
.grid { display: flex; flex-wrap: wrap; gap: 1rem; }
.grid > * { flex: 1 1 min(100%, 480px); }
.grid > .wide { flex-basis: 100%; }
.grid .chart { max-width: 540px; margin: 0 auto; }
.samples { margin-bottom: 1rem; } .samples > * { flex-basis: min(100%, 320px); }
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
th:first-child, td:first-child { position: sticky; left: 0; background: var(--card); padding-left: 1.1rem; }
th:last-child, td:last-child { padding-right: 1.1rem; }
td.name { font-weight: 600; }
td.best { font-weight: 700; }
td.best::after { content: "\2605"; color: var(--accent); font-size: .6em; position: absolute; right: 0; }
td.best:last-child::after { right: .5rem; }
td .sample { margin-right: .5rem; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; margin: 0 0 .8rem; padding: 0; list-style: none;
  font-size: .9rem; }
.legend li { overflow-wrap: anywhere; }
figure figcaption { font-weight: 600; margin: 0 0 .5rem; }
figcaption small { display: block; font-weight: 400; color: var(--faint); }
.sample { width: 30px; height: 10px; vertical-align: middle; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.chart text { font-size: 12px; fill: var(--faint); }
.chart text.y { text-anchor: end; } .chart text.x { text-anchor: middle; }
.chart text.value { fill: var(--text); }
.grid .axis, .axis { stroke: var(--faint); stroke-width: 1; fill: none; }
path.grid { stroke: var(--rule); stroke-width: 1; fill: none; }
.line { fill: none; stroke: currentColor; stroke-width: 2.2; stroke-linejoin: round; }
.leader { fill: none; stroke: currentColor; stroke-width: 1; stroke-dasharray: 1 3; opacity: .8; }
.end, .bar { fill: currentColor; }
.faint { fill: none; stroke: currentColor; stroke-width: 1.1; opacity: .55; }
.band { fill: currentColor; opacity: .16; }
.reach { fill: none; stroke: currentColor; stroke-width: 2; }
.chart text.label { fill: currentColor; font-weight: 600; } .chart text.left { text-anchor: end; }
.hover circle { fill: transparent; } .hover circle:hover { fill: currentColor; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
.line.s1 { stroke-dasharray: 7 4; } .line.s2 { stroke-dasharray: 2.5 3; } .line.s3 { stroke-dasharray: 10 3 2.5 3; }
.line.s4 { stroke-dasharray: 14 4; } .line.s5 { stroke-dasharray: 5 2; } .line.s6 { stroke-dasharray: 10 3 2.5 3 2.5 3; }
.line.s7 { stroke-dasharray: 1.5 5; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; tab-size: 4; }
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
  .chart text { font-size: 14px; } .chart text.label { font-size: 12px; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; }
}
@media print {
  :root { --ground: #fff; --card: #fff; --text: #000; --faint: #444; --rule: #bbb;
    --s0: #0067ad; --s1: #c24e00; --s2: #007a55; --s3: #a1408a; --s4: #8a6d00; --s5: #2f86b5; --s6: #8c4a3c; --s7: #555d66; }
  body { font-size: 11pt; } main { max-width: none; padding: 0; }
  .grid > * { flex-basis: 45%; } .card.scroll { overflow: visible; background: none; }
  table { font-size: 7pt; } th { font-size: 6.5pt; } th, td { padding: .3rem .22rem; }
  .card, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .bar, .line, .end { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace headroom::analysis
