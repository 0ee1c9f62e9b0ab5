// The state of the page, which the address holds; drawing; keys. Views a and b (-1: none), query t, source s (-1: none),
// layer l, head h, the map's window of z x z values from column x and row y, attributed logit k.
const T = page.tokens.length;
const state = {a: views.length - 1, b: -1, t: T - 1, s: -1, l: 0, h: 0, x: 0, y: 0, z: T, before: false, row: false, colour: 'from', k: 0};
const numbers = ['a', 'b', 't', 's', 'l', 'h', 'x', 'y', 'z', 'k'];
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of numbers) {
    const value = parseInt(given.get(key), 10);
    if (Number.isFinite(value)) state[key] = value;
  }
  state.before = given.get('before') === '1';
  state.row = given.get('row') === '1';
  if (['from', 'to', 'surprise', 'changes', 'none'].includes(given.get('colour'))) state.colour = given.get('colour');
  tidy();
}
// The heads of the selected layer, or of the last one of a shorter model.
const headsOf = about => about.layers[Math.min(state.l, about.layers.length - 1)].heads;
function tidy() {
  state.a = clamp(state.a, 0, views.length - 1);
  state.b = clamp(state.b, -1, views.length - 1);
  const shown = panelsShown().map(i => views[i].about);
  state.t = clamp(state.t, 0, T - 1);
  state.s = clamp(state.s, -1, T - 1);
  state.l = clamp(state.l, 0, Math.max(...shown.map(about => about.layers.length)) - 1);
  state.h = clamp(state.h, 0, Math.max(...shown.map(headsOf)) - 1);
  state.z = clamp(state.z, Math.min(8, T), T);
  state.x = clamp(state.x, 0, T - state.z);
  state.y = clamp(state.y, 0, T - state.z);
  state.k = clamp(state.k, 0, 1);
}
const panelsShown = () => state.b >= 0 ? [state.a, state.b] : [state.a];
let addressTimer = 0;
function writeAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    const parts = new URLSearchParams();
    for (const key of numbers) if (!(key === 'b' && state.b < 0) && !(key === 's' && state.s < 0)) parts.set(key, state[key]);
    if (state.before) parts.set('before', 1);
    if (state.row) parts.set('row', 1);
    parts.set('colour', state.colour);
    if (live && live.text) for (const [name, value] of [['text', live.text], ['off', JSON.stringify(live.switched_off)], ['model', live.model]]) parts.set(name, value);
    history.replaceState(null, '', '#' + parts);
  }, 120);
}
let drawing = Promise.resolve();
function change(what) {
  Object.assign(state, what);
  tidy();
  writeAddress();
  drawing = draw();
  return drawing;
}
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
// Changes only the window of the maps.
function look(what) {
  Object.assign(state, what);
  tidy();
  writeAddress();
  requestAnimationFrame(() => panels.forEach(panel => { if (panel.values) { panel.paint(); panel.paintOver(); } }));
}
function zoom(factor) {
  const z = clamp(Math.round(state.z * factor), Math.min(8, T), T);
  // Around the selected query and source if they are visible, else the centre.
  const seen = (i, from) => i >= from && i < from + state.z ? i : from + state.z / 2;
  const y = seen(state.t, state.y), x = state.s >= 0 ? seen(state.s, state.x) : seen(state.t, state.x);
  look({x: Math.round(x - (x - state.x) * z / state.z), y: Math.round(y - (y - state.y) * z / state.z), z});
}
// Selects a token and scrolls the map so that its row is visible.
function choose(t) {
  t = clamp(t, 0, T - 1);
  const y = t < state.y ? t : t >= state.y + state.z ? t - state.z + 1 : state.y;
  change({t, y, x: state.z < T ? clamp(state.x, Math.max(0, t - state.z + 1) && state.x, T) : 0});
}
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (!T) return;
  const heads = headsOf(views[state.a].about);
  const acts = {ArrowLeft: () => choose(state.t - 1), ArrowRight: () => choose(state.t + 1), ArrowUp: () => change({l: state.l + 1}), ArrowDown: () => change({l: state.l - 1}),
                '[': () => change({h: (state.h + heads - 1) % heads}), ']': () => change({h: (state.h + 1) % heads}), '+': () => zoom(0.5), '=': () => zoom(0.5),
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
  if (live) askForAddress();
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

$('title').textContent = page.title;
if (live) $('live').hidden = false;
if (live && live.models.length) {
  drawLive();
  askForAddress();
} else if (live) {
  drawing = listModels().then(() => { drawLive(); askForAddress(); });
}
if (T > 0) {
  readAddress();
  drawing = draw();
} else {
  $('text').hidden = true;
}
drawing.then(() => { document.documentElement.dataset.drawn = Math.round(performance.now()); });
// For tests: the state, and a promise for when it is drawn.
window.inspector = {page, state, views, panels, change, drawn: () => drawing};
