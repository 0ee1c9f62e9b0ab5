// Formatting of numbers, tokens and names; colours; and the strip of tokens at the top.
const shown = text => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/ /g, '·') || '∅';
const tok = text => make('span', {className: 'tok', title: text}, shown(text));
const word = id => page.vocabulary[id] ?? `#${id}`;
const percent = (x, digits = x === 0 || Math.abs(x) >= 0.001 ? 1 : Math.abs(x) >= 0.00001 ? 3 : 5) => (x > 0 ? '+' : x < 0 ? '−' : '') + (100 * Math.abs(x)).toFixed(digits) + ' %';
const signed = (x, digits = 2) => (x > 0 ? '+' : x < 0 ? '−' : '') + Math.abs(x).toFixed(digits);
const small = x => x === 0 ? '0' : Math.abs(x) >= 0.001 ? x.toFixed(4) : x.toExponential(1);
const kNone = 0xffff;
const expert = e => e === kNone ? '–' : String(e);
const kSplitNames = {'before the softmax': 'By term of the composed scores', 'after the softmax': 'By term of the composed weights', 'components': 'By component of the mixture'};
const kSplitNotes = {'before the softmax': 'The change of the weights when the terms are added to the scores one after the other.', 'after the softmax': 'The composed weights are the sum of these terms.',
                     'components': 'Each weight is divided by the responsibilities of the components.'};
// Each slot has the heads of one routed expert.
function headName(layer, h) {
  if (!layer.slots) return `head ${h}`;
  const slots = layer.heads / layer.expert_heads;
  return layer.expert_heads > 1 ? `slot ${h % slots}, head ${Math.floor(h / slots)}` : `slot ${h}`;
}
// The name of a column of heads, whose layers may differ.
function columnName(layers, h) {
  const names = new Set(layers.filter(layer => h < layer.heads).map(layer => headName(layer, h)));
  return names.size === 1 ? [...names][0] : `head ${h}`;
}

let ramps = null;
function colours() {
  if (ramps) return ramps;
  const style = getComputedStyle(document.documentElement);
  const rgb = name => {
    const hex = style.getPropertyValue(name).trim();
    return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  };
  const ground = rgb('--card'), ramp = to => {
    const table = new Uint32Array(256);
    for (let i = 0; i < 256; ++i) {
      const [r, g, b] = ground.map((from, c) => Math.round(from + (to[c] - from) * i / 255));
      table[i] = 0xff000000 | b << 16 | g << 8 | r;
    }
    return table;
  };
  const dark = ground[0] < 128, plus = dark ? [150, 214, 255] : [0, 50, 120], minus = dark ? [255, 170, 100] : [170, 60, 0];
  return ramps = {plus: ramp(plus), minus: ramp(minus), text: style.getPropertyValue('--text').trim(), faint: style.getPropertyValue('--faint').trim(),
                  rule: style.getPropertyValue('--rule').trim(), mark: style.getPropertyValue('--mark').trim(),
                  tint: rgb('--plus'), untint: rgb('--minus'),
                  deepest: Number(style.getPropertyValue('--deepest'))};
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { ramps = null; drawing = draw(); });
const tint = share => {
  const [r, g, b] = share < 0 ? colours().untint : colours().tint;
  return `rgba(${r},${g},${b},${(colours().deepest * Math.min(1, Math.abs(share))).toFixed(3)})`;
};
const brighter = (one, other, ground) => {
  const far = colour => Math.abs((colour & 255) - (ground & 255)) + Math.abs((colour >> 8 & 255) - (ground >> 8 & 255)) + Math.abs((colour >> 16 & 255) - (ground >> 16 & 255));
  return far(one) > far(other);
};

const strip = $('strip');
strip.append(...page.tokens.map((text, i) => make('span', {role: 'option', 'data-i': i}, text.replace(/\n/g, '⏎\n'))));
const spans = strip.children;
strip.addEventListener('click', event => {
  const i = event.target.dataset && event.target.dataset.i;
  if (i !== undefined) change({t: Number(i)});
});
strip.addEventListener('pointerover', event => {
  const i = event.target.dataset && event.target.dataset.i;
  if (i !== undefined) event.target.title = `token ${i}`;
});
if (views.some(view => view.about.changes)) $('colour').append(make('option', {value: 'changes'}, 'change of the predictions by switching off'));
if (views.every(view => view.about.classes)) $('colour').querySelector('[value="surprise"]').remove();
$('colour').addEventListener('change', event => change({colour: event.target.value}));
let coloured = '';
async function drawText() {
  const view = views[state.a], layer = Math.min(state.l, view.about.layers.length - 1), head = Math.min(state.h, view.about.layers[layer].heads - 1);
  $('colour').value = state.colour;
  const now = [state.colour, state.a, layer, head, state.t, state.before, Boolean(ramps)].join();
  let share = null;
  if (state.colour === 'surprise') {
    const p = await view.predictions();
    share = p && (i => i === 0 ? 0 : Math.min(1, -Math.log2(Math.max(p.next[i - 1], 1e-9)) / 12));
  } else if (state.colour === 'changes') {
    const changed = await (views.find(one => one.about.changes) || view).changes();
    const most = changed ? Math.max(1e-9, ...changed.divergence) : 1;
    share = changed && (i => Math.sqrt(changed.divergence[i] / most));
  } else if (state.colour !== 'none') {
    const map = await view.map(layer, head, state.before), t = state.t;
    const at = state.colour === 'from' ? i => map.value(t, i) : i => map.value(i, t);
    let most = 1e-9;
    for (let i = 0; i < T; ++i) most = Math.max(most, Math.abs(at(i)));
    share = i => Math.sign(at(i)) * Math.sqrt(Math.abs(at(i)) / most);
  }
  if (now !== coloured) {
    for (let i = 0; i < T; ++i) {
      const of = share ? share(i) : 0;
      spans[i].style.backgroundColor = of ? tint(of) : '';
    }
    coloured = now;
  }
  for (const [name, i] of [['query', state.t], ['source', state.s]]) {
    strip.querySelectorAll('.' + name).forEach(span => { span.classList.remove(name); span.removeAttribute('aria-selected'); });
    if (i >= 0) { spans[i].classList.add(name); spans[i].setAttribute('aria-selected', 'true'); }
  }
  const box = strip.getBoundingClientRect(), own = spans[state.t].getBoundingClientRect();
  if (own.top < box.top || own.bottom > box.bottom) strip.scrollTop += own.top - box.top - box.height / 2;
  $('chosen').replaceChildren('token ', String(state.t + 1), ' of ', String(T), ' ', tok(page.tokens[state.t]));
}
