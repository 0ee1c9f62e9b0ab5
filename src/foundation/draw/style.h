// The style sheet of charts and of the pages that hold them: one set of names for colours, two values each (light and
// dark), and line styles for those who do not tell the colours apart.
#pragma once

namespace headroom::draw {

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
.faint { fill: none; stroke: currentColor; stroke-width: 1.1; opacity: .55; }
.band { fill: currentColor; opacity: .16; }
.reach { fill: none; stroke: currentColor; stroke-width: 2; }
.chart text.label { fill: currentColor; font-weight: 600; } .chart text.left { text-anchor: end; }
.heat { fill: var(--s0); } .heat.below { fill: var(--s1); } .edge { fill: none; stroke: var(--rule); stroke-width: 1; }
.hover circle { fill: transparent; } .hover circle:hover { fill: currentColor; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
.line.s1 { stroke-dasharray: 7 4; } .line.s2 { stroke-dasharray: 2.5 3; } .line.s3 { stroke-dasharray: 10 3 2.5 3; }
.line.s4 { stroke-dasharray: 14 4; } .line.s5 { stroke-dasharray: 5 2; } .line.s6 { stroke-dasharray: 10 3 2.5 3 2.5 3; }
.line.s7 { stroke-dasharray: 1.5 5; }
)css";

}  // namespace headroom::draw
