// All together.
const panels = [];
async function draw() {
  const wanted = panelsShown();
  while (panels.length < wanted.length) {
    panels.push(new Panel(panels.length ? 'b' : 'a'));
    $('panels').append(panels[panels.length - 1].root);
  }
  while (panels.length > wanted.length) panels.pop().root.remove();
  $('panels').className = wanted.length > 1 ? 'two' : '';
  $('compare').setAttribute('aria-pressed', wanted.length > 1);
  await Promise.all([...wanted.map((index, i) => panels[i].show(index)), drawText()]);
}
// Moves the maps' window alone.
function look(what) {
  Object.assign(state, what);
  tidy();
  writeAddress();
  requestAnimationFrame(() => panels.forEach(panel => { if (panel.values) { panel.paint(); panel.paintOver(); } }));
}
function zoom(factor) {
  const z = clamp(Math.round(state.z * factor), Math.min(8, T), T);
  // Around the chosen query and source where they are seen, else the middle.
  const seen = (i, from) => i >= from && i < from + state.z ? i : from + state.z / 2;
  const y = seen(state.t, state.y), x = state.s >= 0 ? seen(state.s, state.x) : seen(state.t, state.x);
  look({x: Math.round(x - (x - state.x) * z / state.z), y: Math.round(y - (y - state.y) * z / state.z), z});
}
// The chosen token stays in sight.
function choose(t) {
  t = clamp(t, 0, T - 1);
  const y = t < state.y ? t : t >= state.y + state.z ? t - state.z + 1 : state.y;
  change({t, y, x: state.z < T ? clamp(state.x, Math.max(0, t - state.z + 1) && state.x, T) : 0});
}
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (!T) return;
  const {about} = views[state.a];
  const acts = {ArrowLeft: () => choose(state.t - 1), ArrowRight: () => choose(state.t + 1), ArrowUp: () => change({l: state.l + 1}), ArrowDown: () => change({l: state.l - 1}),
                '[': () => change({h: (state.h + about.heads - 1) % about.heads}), ']': () => change({h: (state.h + 1) % about.heads}), '+': () => zoom(0.5), '=': () => zoom(0.5),
                '-': () => zoom(2), '0': () => look({x: 0, y: 0, z: T}), r: () => change({row: !state.row}), Escape: () => change({s: -1}), '?': () => $('help-button').click()};
  if (acts[event.key]) {
    event.preventDefault();
    acts[event.key]();
  }
});
$('help-button').addEventListener('click', () => {
  $('help').hidden = !$('help').hidden;
  $('help-button').setAttribute('aria-expanded', !$('help').hidden);
});
if (views.length > 1) {
  $('compare').hidden = false;
  $('compare').addEventListener('click', () => change({b: state.b >= 0 ? -1 : (state.a + views.length - 1) % views.length}));
}
window.addEventListener('hashchange', () => {
  if (live) askAsTheAddressSays();
  if (T > 0) {
    readAddress();
    drawing = draw();
  }
});
let resizeTimer = 0;
window.addEventListener('resize', () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(() => T && look({}), 80);
});

if (live) $('live').hidden = false;
if (live && live.models.length) {
  drawLive();
  askAsTheAddressSays();
} else if (live) {
  drawing = listModels().then(() => { drawLive(); askAsTheAddressSays(); });
}
if (T > 0) {
  readAddress();
  drawing = draw();
} else {
  $('text').hidden = true;
}
drawing.then(() => { document.documentElement.dataset.drawn = Math.round(performance.now()); });
// For programs that look on: what is shown, and when it is drawn.
window.inspector = {page, state, views, panels, change, drawn: () => drawing};
