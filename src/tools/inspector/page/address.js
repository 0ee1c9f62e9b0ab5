// What is chosen, which the address holds.
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
function tidy() {
  state.a = clamp(state.a, 0, views.length - 1);
  state.b = clamp(state.b, -1, views.length - 1);
  const shown = panelsShown().map(i => views[i].about);
  state.t = clamp(state.t, 0, T - 1);
  state.s = clamp(state.s, -1, T - 1);
  state.l = clamp(state.l, 0, Math.max(...shown.map(about => about.layers.length)) - 1);
  state.h = clamp(state.h, 0, Math.max(...shown.map(about => about.heads)) - 1);
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
