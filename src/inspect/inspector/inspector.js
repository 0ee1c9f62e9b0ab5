'use strict';
// The inspector: numbers are packed in script elements, and read when they are first looked at.
(() => {
const page = JSON.parse(document.getElementById('page').textContent);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in element && key !== 'list') element[key] = value; else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
};
const $ = id => document.getElementById(id);
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

// ---------------------------------------------------------------- packed numbers
const kKept = 24;  // blobs that stay unpacked
const unpacked = new Map();

async function element(name) {
  const found = $(name);
  if (found || document.readyState !== 'loading') return found;
  await new Promise(done => document.addEventListener('DOMContentLoaded', done, {once: true}));
  return $(name);
}
async function unpack(name) {
  const holder = await element(name);
  if (!holder) return null;
  const text = atob(holder.textContent), raw = new Uint8Array(text.length);
  for (let i = 0; i < raw.length; ++i) raw[i] = text.charCodeAt(i);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}
// What `read` makes of the blob, the same object as long as it is among those last asked for.
function packed(name, read) {
  let found = unpacked.get(name);
  if (found) {
    unpacked.delete(name);
  } else {
    found = unpack(name).then(buffer => buffer && read(new Reader(buffer)));
    if (unpacked.size >= kKept) unpacked.delete(unpacked.keys().next().value);
  }
  unpacked.set(name, found);
  return found;
}
class Reader {
  constructor(buffer) { this.buffer = buffer; this.at = 0; }
  take(Type, n) {
    const end = this.at + n * Type.BYTES_PER_ELEMENT, all = new Type(this.buffer.slice(this.at, end));
    this.at = end;
    return all;
  }
  halves(n) {
    const bits = this.take(Uint16Array, n), all = new Float32Array(n);
    for (let i = 0; i < n; ++i) {
      const h = bits[i], e = (h >> 10) & 31, f = h & 1023;
      const size = e ? (e === 31 ? (f ? NaN : Infinity) : 2 ** (e - 15) * (1 + f / 1024)) : 2 ** -14 * (f / 1024);
      all[i] = h & 0x8000 ? -size : size;
    }
    return all;
  }
}

// A map's values: rows hold a query's sources up to itself.
const kLevels = 32767;
class AttentionMap {
  constructor(reader, size) {
    this.size = size;
    this.levels = reader.take(Int32Array, 1)[0];
    this.scale = reader.take(Float32Array, size);
    this.numbers = new Int16Array(size * (size + 1) / 2);
    this.least = null;  // of the values that are exact in each row
    this.levels ? this.readAll(reader) : this.readPeaks(reader);
    if (!this.levels) this.levels = kLevels;
  }
  readAll(reader) {
    const n = this.numbers.length;
    if (this.levels > 127) {
      const low = reader.take(Uint8Array, n), high = reader.take(Int8Array, n);
      for (let i = 0; i < n; ++i) this.numbers[i] = high[i] << 8 | low[i];
    } else {
      this.numbers.set(reader.take(Int8Array, n));
    }
  }
  // The largest of each row, and means of squares for the others.
  readPeaks(reader) {
    const T = this.size, k = reader.take(Int32Array, 1)[0], n = Array.from({length: T}, (_, i) => Math.min(k, i + 1)), all = n.reduce((a, b) => a + b, 0);
    const steps = reader.take(Uint16Array, all), peaks = reader.take(Int8Array, all), side = reader.take(Int32Array, 1)[0], most = reader.take(Float32Array, 1)[0];
    const squares = Math.ceil(T / side), means = reader.take(Int8Array, squares * squares);
    this.least = new Float32Array(T);
    for (let i = 0, at = 0; i < T; ++i) {
      const row = i * (i + 1) / 2, scale = this.scale[i] || 1, first = (i / side | 0) * squares;
      for (let square = 0, j = 0; j <= i; ++square) {
        const mean = means[first + square] / 127;
        const filled = Math.sign(mean) * Math.min(kLevels, Math.round(kLevels * Math.abs(mean) * Math.sqrt(most / scale)));
        for (const end = Math.min(i + 1, j + side); j < end; ++j) this.numbers[row + j] = filled;
      }
      let least = k > i ? 0 : Infinity;
      for (let c = 0, j = 0; c < n[i]; ++c, ++at) {
        j += steps[at];
        this.numbers[row + j] = Math.round(peaks[at] / 127 * kLevels);
        least = Math.min(least, (peaks[at] / 127) ** 2 * scale);
      }
      this.least[i] = least;
    }
  }
  number(i, j) { return j > i ? 0 : this.numbers[i * (i + 1) / 2 + j]; }
  value(i, j) {
    const q = this.number(i, j) / this.levels;
    return Math.sign(q) * q * q * this.scale[i];
  }
  // How far it may be from the layer's own value.
  error(i, j) {
    if (this.least && Math.abs(this.value(i, j)) < this.least[i]) return this.least[i];
    const levels = this.least ? 127 : this.levels, q = Math.abs(this.number(i, j)) / this.levels + 0.25 / levels;
    return this.scale[i] * q / levels;
  }
}

const views = page.views.map((about, index) => new View(about, index));
function View(about, index) {
  const T = about.tokens, name = what => `v${index}.${what}`;
  this.about = about;
  this.index = index;
  this.map = (layer, head, before) => packed(name(`${before && about.layers[layer].composed ? 'before' : 'map'}.${layer}.${head}`),
                                             reader => new AttentionMap(reader, T));
  this.thumbnails = () => packed(name('thumbnails'), reader => reader.take(Uint8Array, about.layers.length * about.heads * about.thumbnail ** 2));
  this.predictions = () => packed(name('predictions'), reader => {
    const k = about.likeliest;
    return {k, likeliest: reader.take(Int32Array, T * k), probability: reader.take(Float32Array, T * k),
            next: reader.take(Float32Array, T), rank: reader.take(Int32Array, T), entropy: reader.take(Float32Array, T)};
  });
  this.contributions = layer => packed(name(`contributions.${layer}`), reader => {
    const about_layer = about.layers[layer], n = about_layer.contributions, all = {n};
    for (const field of ['source', 'head', 'value', 'output']) all[field] = reader.take(Uint16Array, T * n);
    all.size = reader.halves(T * n);
    all.terms = about_layer.splits.map(split => reader.halves(T * n * split.terms.length));
    for (const field of ['length', 'residual', 'bias', 'others']) all[field] = reader.take(Float32Array, T);
    all.heads = reader.take(Float32Array, T * about.heads);
    all.totals = about_layer.splits.map(split => reader.take(Float32Array, T * split.terms.length));
    all.scores = reader.halves(T * n * about_layer.score_terms.length);
    return all;
  });
  this.changes = () => about.changes ? packed(name('changes'), reader => {
    const k = about.changes;
    return {k, divergence: reader.take(Float32Array, T), token: reader.take(Int32Array, T * k), before: reader.take(Float32Array, T * k), after: reader.take(Float32Array, T * k)};
  }) : Promise.resolve(null);
  this.logits = () => about.logits ? packed(name('logits'), reader => {
    const width = 3 + about.layers.length * (about.heads + 2);
    return {width, tables: [0, 1].map(() => reader.take(Float32Array, T * width))};
  }) : Promise.resolve(null);
  this.logitExperts = layer => {
    const {value_experts: ev = 0, output_experts: eo = 0} = about.layers[layer];
    if (!about.logits || !(ev + eo)) return Promise.resolve(null);
    return packed(name(`logit_experts.${layer}`), reader => {
      const n = T * about.heads * (ev + eo);
      return {ev, eo, tables: [0, 1].map(() => reader.halves(n))};
    });
  };
  this.choices = (layer, which) => {
    const choice = about.layers[layer].choices.find(one => one.name === which);
    if (!choice) return Promise.resolve(null);
    return packed(name(`${which}.${layer}`), reader => {
      const n = T * choice.heads * choice.chosen;
      return {heads: choice.heads, chosen: choice.chosen, index: reader.take(Uint16Array, n), weight: reader.halves(n)};
    });
  };
}

// ---------------------------------------------------------------- state, which the address holds
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

// ---------------------------------------------------------------- a server that reads what is typed
const live = page.live || null;
const sorted = off => Object.entries(off).sort();
const same = (one, other) => JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
const isOff = off => live && live.switched_off.some(one => same(one, off));
function toggle(off) {
  const others = live.switched_off.filter(one => !same(one, off));
  return ask(live.text, others.length < live.switched_off.length ? others : [...live.switched_off, off], live.model);
}
function switchButton(name, off) {
  const button = make('button', {type: 'button', ariaPressed: String(isOff(off))}, name);
  button.addEventListener('click', event => { event.stopPropagation(); toggle(off); });
  return button;
}
const kSwitchedTerms = ['query, low rank', 'query, gate', 'key, low rank', 'key, gate'];
const termSwitch = (layer, split) => name => live && split !== 'components' && kSwitchedTerms.includes(name)
    ? switchButton('off', {layer, stage: split === 'before the softmax' ? 'before' : 'after', term: name}) : null;
function nameOf(off) {
  const where = `layer ${off.layer}` + (off.head === undefined ? '' : `, head ${off.head}`);
  if (off.stage) return `${where}: ${off.term}, ${off.stage} the softmax`;
  if (off.query !== undefined) return `${where}: ${off.query} ← ${off.source}`;
  if (off.value_expert !== undefined) return `${where}: value expert ${off.value_expert}`;
  if (off.output_expert !== undefined) return `${where}: output expert ${off.output_expert}`;
  return off.expert !== undefined ? `${where}: expert ${off.expert}` : where;
}
// Its answer, with the key that the reader gives where one is asked for. Throws what there is to say.
async function fromServer(path, options = {}) {
  const key = sessionStorage.getItem('headroom-key');
  const headers = {'Content-Type': 'application/json', ...(key ? {Authorization: `Bearer ${key}`} : {})};
  const answer = await fetch(path, {...options, headers}).catch(() => { throw new Error('The server does not answer.'); });
  if (answer.status === 401) {
    const given = prompt('This server asks for a key:');
    if (!given) throw new Error('Without its key the server does not answer.');
    sessionStorage.setItem('headroom-key', given);
    return fromServer(path, options);
  }
  if (!answer.ok) {
    const refusal = await answer.json().catch(() => null);
    throw new Error(refusal && refusal.error ? refusal.error.message : `The server answers with status ${answer.status}.`);
  }
  return answer;
}
let asked = 0;
// The page of another text, or of other parts switched off, takes this one's place; of several the last.
async function ask(text, off, model) {
  const turn = ++asked, say = words => { $('said').textContent = words; };
  if (!text) return say('Type a text.');
  say('The model reads …');
  const answer = await fromServer(live.path, {method: 'POST', body: JSON.stringify({model, text, switched_off: off})}).catch(error => error);
  if (turn !== asked) return;
  if (answer instanceof Error) return say(answer.message);
  const html = await answer.text();
  if (turn !== asked) return;
  clearTimeout(addressTimer);
  const parts = new URLSearchParams(location.hash.slice(1));
  if (text !== live.text) for (const name of ['t', 's', 'x', 'y', 'z']) parts.delete(name);
  if (off.length && !live.switched_off.length) { parts.set('a', 0); parts.set('b', 1); }
  if (!off.length) { parts.set('a', 0); parts.delete('b'); }
  for (const [name, value] of [['text', text], ['off', JSON.stringify(off)], ['model', model]]) parts.set(name, value);
  history.replaceState(null, '', '#' + parts);
  const area = $('typed'), place = document.activeElement === area ? area.selectionStart : -1, scroll = scrollY;
  document.open();
  document.write(html);
  document.close();
  scrollTo(0, scroll);
  if (place >= 0 && $('typed')) { $('typed').focus(); $('typed').setSelectionRange(place, place); }
}
function drawLive() {
  const area = make('textarea', {id: 'typed', value: live.text, spellcheck: false, placeholder: 'Type a text that the model reads.', ariaLabel: 'Text that the model reads'});
  const model = make('select', {ariaLabel: 'Model'}, ...live.models.map(name => make('option', {value: name, selected: name === live.model}, name)));
  let timer = 0;
  area.addEventListener('input', () => {
    clearTimeout(timer);  // edges are those of the text that there was
    timer = setTimeout(() => ask(area.value, live.switched_off.filter(one => one.query === undefined), live.model), 450);
  });
  model.addEventListener('change', () => ask(area.value, [], model.value));
  const off = live.switched_off.map(one => switchButton(`${nameOf(one)} ×`, one));
  const all = make('button', {type: 'button'}, 'all on');
  all.addEventListener('click', () => ask(live.text, [], live.model));
  $('live').prepend(area, make('div', {className: 'bar'}, ...(live.models.length > 1 ? [model] : []), ...(off.length ? ['switched off: ', ...off, all] : [])));
  if (T === 0) area.focus();
}
async function listModels() {
  try {
    const list = await (await fromServer('/v1/models')).json();
    live.models = list.data.map(one => one.id);
    live.model = live.models[0];
  } catch (error) {
    $('said').textContent = error.message;
  }
}
// What the address asks for, where that is something else.
function askAsTheAddressSays() {
  const given = new URLSearchParams(location.hash.slice(1)), text = given.get('text');
  if (!text) return;
  let off = [];
  try { off = JSON.parse(given.get('off') || '[]'); } catch (error) { off = null; }
  if (!Array.isArray(off) || !off.every(one => one && typeof one === 'object')) off = [];
  const model = given.get('model') || live.model;
  $('typed').value = text;
  if (text !== live.text || model !== live.model || JSON.stringify(off.map(sorted)) !== JSON.stringify(live.switched_off.map(sorted))) ask(text, off, model);
}

// ---------------------------------------------------------------- words
const shown = text => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/ /g, '·') || '∅';
const tok = (text, extra = '') => make('span', {className: 'tok', title: text}, shown(text) + extra);
const word = id => page.vocabulary[id] ?? `#${id}`;
const percent = (x, digits = x === 0 || Math.abs(x) >= 0.001 ? 1 : Math.abs(x) >= 0.00001 ? 3 : 5) => (x > 0 ? '+' : x < 0 ? '−' : '') + (100 * Math.abs(x)).toFixed(digits) + ' %';
const signed = (x, digits = 2) => (x > 0 ? '+' : x < 0 ? '−' : '') + Math.abs(x).toFixed(digits);
const small = x => x === 0 ? '0' : Math.abs(x) >= 0.001 ? x.toFixed(4) : x.toExponential(1);
const kNone = 0xffff;
const expert = e => e === kNone ? '–' : String(e);
const kSplitNames = {'before the softmax': 'By term of the composed scores', 'after the softmax': 'By term of the composed weights', 'components': 'By component of the mixture'};
const kSplitNotes = {'before the softmax': 'Terms are added one after the other: what each changes of the weights.', 'after the softmax': 'The map is linear: each term has its part.',
                     'components': 'By the components\' shares of each weight.'};
const headName = (about, h) => about.slots ? `slot ${h}` : `head ${h}`;

// ---------------------------------------------------------------- colours
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
                  tint: rgb('--plus'), untint: rgb('--minus')};
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { ramps = null; drawing = draw(); });
const tint = (share, strength = 0.75) => {
  const [r, g, b] = share < 0 ? colours().untint : colours().tint;
  return `rgba(${r},${g},${b},${(strength * Math.min(1, Math.abs(share))).toFixed(3)})`;
};

// ---------------------------------------------------------------- the text
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
if (views.some(view => view.about.changes)) $('colour').append(make('option', {value: 'changes'}, 'what switching off changes of the predictions'));
$('colour').addEventListener('change', event => change({colour: event.target.value}));
let coloured = '';
async function drawText() {
  const view = views[state.a], layer = Math.min(state.l, view.about.layers.length - 1), head = Math.min(state.h, view.about.heads - 1);
  $('colour').value = state.colour;
  const now = [state.colour, state.a, layer, head, state.t, state.before, Boolean(ramps)].join();
  let share = null;
  if (state.colour === 'surprise') {
    const p = await view.predictions();
    share = i => i === 0 ? 0 : Math.min(1, -Math.log2(Math.max(p.next[i - 1], 1e-9)) / 12);
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
  $('chosen').replaceChildren('token ', String(state.t), ' of ', String(T), ' ', tok(page.tokens[state.t]));
}

// ---------------------------------------------------------------- one model
class Panel {
  constructor(slot) {
    this.slot = slot;  // 'a' or 'b'
    this.view = null;
    this.hover = null;
    this.open = -1;
    this.root = make('div', {className: 'panel'});
    this.bar = make('div', {className: 'view card'});
    this.thumbs = make('div', {className: 'thumbs card', 'aria-label': 'Layers and heads'});
    this.under = make('canvas');
    this.over = make('canvas', {className: 'over'});
    this.map = make('div', {className: 'map', tabIndex: 0, 'aria-label': 'Attention map: rows are queries, columns sources'}, this.under, this.over);
    this.title = make('h2');
    this.readout = make('p', {className: 'readout', 'aria-live': 'off'});
    this.tools = make('div', {className: 'tools'});
    this.mapCard = make('section', {className: 'card large'}, this.title, this.tools, this.map, this.readout);
    this.sources = make('section', {className: 'card sources'});
    this.next = make('section', {className: 'card next'});
    this.root.append(this.bar, this.thumbs, this.mapCard, this.sources, this.next);
    this.makeTools();
    this.listen();
  }

  async show(index) {
    const view = views[index];
    if (this.view !== view) {
      this.view = view;
      this.open = -1;
      this.drawBar();
      await this.drawThumbnails();
    }
    this.layer = Math.min(state.l, view.about.layers.length - 1);
    this.head = Math.min(state.h, view.about.heads - 1);
    for (const button of this.thumbs.querySelectorAll('button')) {
      const here = Number(button.dataset.l) === this.layer && Number(button.dataset.h) === this.head;
      if ((button.getAttribute('aria-pressed') === 'true') !== here) button.setAttribute('aria-pressed', here);
    }
    await this.drawMap();
    await Promise.all([this.drawSources(), this.drawNext()]);
  }

  // Which run and checkpoint.
  drawBar() {
    const view = this.view, runs = [...new Set(views.map(one => one.about.run))];
    const own = views.filter(one => one.about.run === view.about.run);
    const children = [];
    if (runs.length > 1) {
      const select = make('select', {ariaLabel: 'Run'}, ...runs.map(run => make('option', {value: run, selected: run === view.about.run}, run)));
      select.addEventListener('change', () => {
        const others = views.filter(one => one.about.run === select.value);
        change({[this.slot]: others[others.length - 1].index});
      });
      children.push(select);
    } else {
      children.push(make('b', {}, view.about.run));
    }
    if (own.length > 1) {
      const range = make('input', {type: 'range', min: 0, max: own.length - 1, step: 1, value: own.indexOf(view), ariaLabel: 'Checkpoint'});
      range.addEventListener('input', () => change({[this.slot]: own[range.value].index}));
      children.push(make('label', {}, 'step ', range, ' ', make('b', {}, String(view.about.step))));
    } else {
      children.push(make('span', {}, `step ${view.about.step}`));
    }
    const parts = Object.entries(view.about.parts).filter(([, value]) => value !== 'none').map(([key, value]) => key === 'heads' ? `heads ${value}` : value);
    children.push(make('span', {className: 'parts'}, parts.join(' · ')));
    this.bar.replaceChildren(...children);
  }

  async drawThumbnails() {
    const {about} = this.view, side = about.thumbnail, data = await this.view.thumbnails(), {plus} = colours();
    const table = make('table'), size = clamp(Math.floor(170 / about.heads) - 7, 24, 60);
    this.thumbs.style.setProperty('--thumb', size + 'px');
    const top = make('tr', {}, make('th'));
    for (let h = 0; h < about.heads; ++h) top.append(make('th', {title: headName(about, h)}, String(h)));
    table.append(top);
    about.layers.forEach((layer, l) => {
      const row = make('tr', {}, make('th', {}, `layer ${l}`));
      for (let h = 0; h < about.heads; ++h) {
        const canvas = make('canvas', {width: side, height: side}), image = new ImageData(side, side), to = new Uint32Array(image.data.buffer);
        const from = (l * about.heads + h) * side * side;
        for (let i = 0; i < side * side; ++i) to[i] = plus[data[from + i]];
        canvas.getContext('2d').putImageData(image, 0, 0);
        const button = make('button', {type: 'button', ariaLabel: `layer ${l}, ${headName(about, h)}`, title: `layer ${l}, ${headName(about, h)}`}, canvas);
        button.dataset.l = l;
        button.dataset.h = h;
        button.addEventListener('click', () => change({l, h}));
        row.append(make('td', {}, button));
      }
      table.append(row);
    });
    this.thumbs.replaceChildren(table);
    this.ramp = plus;
  }

  // ------------------------------------------------------------ the large map
  makeTools() {
    const button = (text, label, act) => {
      const one = make('button', {type: 'button', ariaLabel: label, title: label}, text);
      one.addEventListener('click', act);
      return one;
    };
    this.rowButton = button('colours by row', 'Colours by the largest weight of each row (r)', () => change({row: !state.row}));
    this.beforeButton = button('before heads compose', 'Weights before the heads compose', () => change({before: !state.before}));
    this.tools.append(button('+', 'Zoom in', () => zoom(0.5)), button('−', 'Zoom out', () => zoom(2)), button('all', 'All of the map (0)', () => change({x: 0, y: 0, z: T})),
                      this.rowButton, this.beforeButton);
    if (live) {
      this.offButton = button('head off', 'Switch this head off, or on again', () => toggle({layer: this.layer, head: this.head}));
      this.tools.append(this.offButton);
    }
  }

  measure() {
    const dots = Math.min(2, devicePixelRatio || 1), width = this.map.clientWidth;
    const cell = width / state.z;
    const g = this.gutters || {rows: 0, columns: 0};
    const labels = cell * 0.86 >= 11;
    const left = (labels ? 78 : 34) + (g.rows ? g.rows * 7 + 6 : 0), top = labels ? 62 : 18;
    const bottom = g.columns ? g.columns * 7 + 6 : 0;
    const size = Math.max(60, width - left);
    return {dots, width, left, top, size, bottom, height: size + top + bottom, cell: size / state.z, labels, g};
  }

  async drawMap() {
    const {about} = this.view, layer = about.layers[this.layer];
    const [map, into, out] = await Promise.all([this.view.map(this.layer, this.head, state.before), this.view.choices(this.layer, 'select_in'),
                                                this.view.choices(this.layer, 'select_out')]);
    this.values = map;
    const here = choice => choice && choice.heads > 1 || choice && about.heads === 1 ? choice : null;
    this.into = here(into);
    this.out = here(out);
    this.gutters = {rows: this.out ? about.experts : 0, columns: this.into ? about.experts : 0};
    this.rowButton.setAttribute('aria-pressed', state.row);
    this.beforeButton.hidden = !layer.composed;
    if (this.offButton) {
      this.offButton.hidden = about.slots;
      this.offButton.setAttribute('aria-pressed', isOff({layer: this.layer, head: this.head}));
    }
    this.beforeButton.setAttribute('aria-pressed', state.before);
    this.title.textContent = `Layer ${this.layer}, ${headName(about, this.head)}` + (layer.window ? `, window of ${layer.window} keys` : '') +
        (layer.composed ? (state.before ? ': weights before heads compose' : ': composed weights') : '');
    this.paint();
    this.paintOver();
  }

  paint() {
    const m = this.m = this.measure(), canvas = this.under, map = this.values;
    canvas.width = Math.round(m.width * m.dots);
    canvas.height = Math.round(m.height * m.dots);
    canvas.style.height = this.over.style.height = m.height + 'px';
    const pen = canvas.getContext('2d');
    pen.scale(m.dots, m.dots);
    const n = state.z, pixels = Math.min(n, Math.round(m.size * m.dots)), image = new ImageData(pixels, pixels), to = new Uint32Array(image.data.buffer);
    const {plus, minus, faint, rule} = colours(), step = n / pixels, levels = map.levels;
    to.fill(plus[0]);
    for (let r = 0; r < pixels; ++r) {
      const i0 = state.y + Math.floor(r * step), i1 = Math.max(i0 + 1, state.y + Math.floor((r + 1) * step));
      for (let i = i0; i < i1; ++i) {
        const row = i * (i + 1) / 2, most = map.scale[i];
        const unit = 255 / levels * (state.row ? 1 : Math.sqrt(Math.min(1, most)));
        const end = Math.min(pixels, Math.ceil((i + 1 - state.x) / step));
        for (let c = 0; c < end; ++c) {
          const j0 = state.x + Math.floor(c * step), j1 = Math.min(i + 1, Math.max(j0 + 1, state.x + Math.floor((c + 1) * step)));
          let best = 0;
          for (let j = j0; j < j1; ++j) {
            const q = map.numbers[row + j];
            if (q > best || -q > best) best = q;
          }
          if (!best) continue;
          const shade = best > 0 ? plus[Math.min(255, best * unit | 0)] : minus[Math.min(255, -best * unit | 0)];
          const place = r * pixels + c;
          if (i === i0 || brighter(shade, to[place], plus[0])) to[place] = shade;
        }
      }
    }
    const sheet = new OffscreenCanvas(pixels, pixels);
    sheet.getContext('2d').putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(sheet, m.left, m.top, m.size, m.size);
    pen.strokeStyle = rule;
    pen.strokeRect(m.left - 0.5, m.top - 0.5, m.size + 1, m.size + 1);
    this.paintLabels(pen, m, faint);
    this.paintGutters(pen, m, plus);
  }

  paintLabels(pen, m, faint) {
    const words = getComputedStyle(strip).fontFamily;
    pen.fillStyle = faint;
    const gutter = this.gutters.rows ? this.gutters.rows * 7 + 6 : 0;
    if (m.labels) {
      pen.font = `${clamp(m.cell * 0.72, 9, 13)}px ${words}`;
      const room = Math.max(4, Math.floor(70 / 6.6));
      for (let k = 0; k < state.z; ++k) {
        pen.textAlign = 'right';
        pen.textBaseline = 'middle';
        pen.fillText(shown(page.tokens[state.y + k]).slice(0, room), m.left - 5 - gutter, m.top + (k + 0.5) * m.cell, 72);
        pen.save();
        pen.translate(m.left + (k + 0.5) * m.cell, m.top - 5);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = 'left';
        pen.fillText(shown(page.tokens[state.x + k]).slice(0, room - 2), 0, 0, 56);
        pen.restore();
      }
      return;
    }
    pen.font = '10.5px system-ui, sans-serif';
    const ticks = Math.pow(2, Math.ceil(Math.log2(state.z / 6)));
    for (let k = 0; k < state.z; ++k) {
      if ((state.x + k) % ticks === 0) {
        pen.textAlign = 'left'; pen.textBaseline = 'bottom';
        pen.fillText(String(state.x + k), m.left + k * m.cell, m.top - 3);
      }
      if ((state.y + k) % ticks === 0) {
        pen.textAlign = 'right'; pen.textBaseline = 'top';
        pen.fillText(String(state.y + k), m.left - 5 - gutter, m.top + k * m.cell);
      }
    }
  }

  // Weights of the experts that made the outputs, left of their queries, and the values, below their sources.
  paintGutters(pen, m, plus) {
    const strips = (choice, first, rows, place) => {
      if (!choice) return;
      const n = this.view.about.experts, image = new ImageData(rows ? n : state.z, rows ? state.z : n), to = new Uint32Array(image.data.buffer);
      to.fill(plus[0]);
      for (let k = 0; k < state.z; ++k) {
        const at = ((first + k) * choice.heads + Math.min(this.head, choice.heads - 1)) * choice.chosen;
        for (let c = 0; c < choice.chosen; ++c) {
          const e = choice.index[at + c], shade = plus[Math.round(255 * Math.min(1, Math.sqrt(Math.abs(choice.weight[at + c]))))];
          to[rows ? k * n + e : e * state.z + k] = shade;
        }
      }
      const sheet = new OffscreenCanvas(image.width, image.height);
      sheet.getContext('2d').putImageData(image, 0, 0);
      pen.drawImage(sheet, ...place);
    };
    pen.strokeStyle = colours().rule;
    if (this.out) {
      const w = this.gutters.rows * 7, at = [m.left - w - 5, m.top, w, m.size];
      strips(this.out, state.y, true, at);
      pen.strokeRect(at[0] - 0.5, at[1] - 0.5, at[2] + 1, at[3] + 1);
    }
    if (this.into) {
      const h = this.gutters.columns * 7, at = [m.left, m.top + m.size + 5, m.size, h];
      strips(this.into, state.x, false, at);
      pen.strokeRect(at[0] - 0.5, at[1] - 0.5, at[2] + 1, at[3] + 1);
    }
  }

  paintOver() {
    const m = this.m, canvas = this.over;
    if (!m || !this.values) return;
    canvas.width = Math.round(m.width * m.dots);
    canvas.height = Math.round(m.height * m.dots);
    const pen = canvas.getContext('2d'), cell = m.cell, {mark, text} = colours();
    pen.scale(m.dots, m.dots);
    const band = (i, along, colour, alpha) => {
      const from = along === 'row' ? state.y : state.x;
      if (i < from || i >= from + state.z) return;
      const thick = Math.max(1, cell), at = (i - from) * cell;
      pen.globalAlpha = alpha;
      pen.fillStyle = colour;
      along === 'row' ? pen.fillRect(m.left, m.top + at, m.size, thick) : pen.fillRect(m.left + at, m.top, thick, m.size);
      pen.globalAlpha = 0.9;
      pen.strokeStyle = colour;
      along === 'row' ? pen.strokeRect(m.left, m.top + at, m.size, thick) : pen.strokeRect(m.left + at, m.top, thick, m.size);
      pen.globalAlpha = 1;
    };
    pen.lineWidth = 1;
    band(state.t, 'row', text, 0.1);
    if (state.s >= 0) band(state.s, 'column', mark, 0.14);
    if (this.hover) {
      band(this.hover.i, 'row', mark, 0.2);
      band(this.hover.j, 'column', mark, 0.2);
    }
    const at = this.hover || (state.s >= 0 ? {i: state.t, j: state.s} : null);
    if (!at) {
      const strongest = this.strongest(state.t);
      this.readout.replaceChildren('query ', String(state.t), ' ', tok(page.tokens[state.t]), ' attends most to ', String(strongest), ' ', tok(page.tokens[strongest]), ': ',
                                   make('b', {}, small(this.values.value(state.t, strongest))));
    } else if (at.j > at.i) {
      this.readout.replaceChildren('query ', String(at.i), ' ', tok(page.tokens[at.i]), ' does not see ', String(at.j), ' ', tok(page.tokens[at.j]), ', which comes later');
    } else {
      const value = this.values.value(at.i, at.j), error = this.values.error(at.i, at.j);
      this.readout.replaceChildren('query ', String(at.i), ' ', tok(page.tokens[at.i]), ', source ', String(at.j), ' ', tok(page.tokens[at.j]), ': ',
                                   make('b', {}, small(value)), error >= 5e-5 ? ` ± ${small(error)}` : '');
    }
    this.markHover();
  }
  strongest(i) {
    let best = 0;
    for (let j = 1; j <= i; ++j) if (Math.abs(this.values.number(i, j)) > Math.abs(this.values.number(i, best))) best = j;
    return best;
  }
  markHover() {
    for (const name of ['hover-query', 'hover-source']) strip.querySelectorAll('.' + name).forEach(span => span.classList.remove(name));
    if (this.hover) {
      spans[this.hover.i].classList.add('hover-query');
      spans[this.hover.j].classList.add('hover-source');
    }
  }

  place(event) {
    const box = this.map.getBoundingClientRect(), m = this.m;
    const c = (event.clientX - box.left - m.left) / m.cell, r = (event.clientY - box.top - m.top) / m.cell;
    return {r, c, inside: r >= 0 && c >= 0 && r < state.z && c < state.z, i: clamp(state.y + Math.floor(r), 0, T - 1), j: clamp(state.x + Math.floor(c), 0, T - 1)};
  }
  listen() {
    let drag = null;
    this.map.addEventListener('pointermove', event => {
      if (!this.m) return;
      const at = this.place(event);
      if (drag) {
        const dx = Math.round((drag.clientX - event.clientX) / this.m.cell), dy = Math.round((drag.clientY - event.clientY) / this.m.cell);
        if (drag.moved || Math.hypot(drag.clientX - event.clientX, drag.clientY - event.clientY) > 6) {
          drag.moved = true;
          look({x: drag.x + dx, y: drag.y + dy, z: state.z});
        }
      }
      const hover = at.inside && !(drag && drag.moved) ? {i: at.i, j: at.j} : null;
      panels.forEach(panel => { panel.hover = hover; panel.paintOver(); });
    });
    this.map.addEventListener('pointerleave', () => panels.forEach(panel => { panel.hover = null; panel.paintOver(); }));
    this.map.addEventListener('pointerdown', event => {
      drag = {clientX: event.clientX, clientY: event.clientY, x: state.x, y: state.y, moved: false};
      this.map.setPointerCapture(event.pointerId);
    });
    this.map.addEventListener('pointerup', event => {
      const at = this.m && this.place(event);
      if (drag && !drag.moved && at && at.inside) change({t: at.i, s: at.j <= at.i ? at.j : -1});
      drag = null;
    });
    this.map.addEventListener('pointercancel', () => { drag = null; });
    this.map.addEventListener('wheel', event => {
      if (!this.m) return;
      const at = this.place(event), z = clamp(Math.round(state.z * Math.exp(event.deltaY * 0.0016)), Math.min(8, T), T);
      if (z === state.z && state.z === T) return;  // the page scrolls
      event.preventDefault();
      look({x: Math.round(state.x + at.c * (1 - z / state.z)), y: Math.round(state.y + at.r * (1 - z / state.z)), z});
    }, {passive: false});
  }

  // ------------------------------------------------------------ where a layer's output comes from
  async drawSources() {
    const {about} = this.view, l = this.layer, layer = about.layers[l], all = await this.view.contributions(l), t = state.t, n = all.n;
    const rows = [], from = t * n;
    const shownEntries = [];
    for (let k = from; k < from + n; ++k) if (all.size[k] !== 0) shownEntries.push(k);
    const hasValue = shownEntries.some(k => all.value[k] !== kNone), hasOutput = shownEntries.some(k => all.output[k] !== kNone);
    const most = Math.max(1e-9, ...shownEntries.map(k => Math.abs(all.size[k])));
    const width = 4 + hasValue + hasOutput;
    const bar = size => {
      const half = 50 * Math.min(1, Math.abs(size) / most);
      return make('span', {className: 'sign'}, make('i', {className: size < 0 ? 'minus' : '', style: `left:${size < 0 ? 50 - half : 50}%;width:${half}%`}));
    };
    const line = (cells, name) => make('tr', {className: name}, ...cells);
    const cell = (content, name = '') => make('td', {className: name}, content);
    let sum = all.bias[t] + all.others[t];
    for (const k of shownEntries) {
      const entry = k - from, j = all.source[k];
      sum += all.size[k];
      const source = make('td', {className: 'source'}, `${j} `, tok(page.tokens[j]));
      const cells = [source, cell(about.slots ? `${all.head[k]}` : String(all.head[k]), 'n')];
      if (hasValue) cells.push(cell(expert(all.value[k]), 'n'));
      if (hasOutput) cells.push(cell(expert(all.output[k]), 'n'));
      cells.push(cell(percent(all.size[k]), 'n'), cell(bar(all.size[k])));
      const row = line(cells, 'entry' + (entry === this.open ? ' open' : ''));
      row.dataset.entry = entry;
      row.addEventListener('click', () => {
        this.open = entry === this.open ? -1 : entry;
        change({s: j, h: all.head[k]});
      });
      rows.push(row);
      if (entry === this.open && (layer.splits.length || live)) {
        rows.push(make('tr', {className: 'detail'}, make('td', {colSpan: width}, ...(live ? [this.switchesOf(all, k, j)] : []), ...this.splitsOf(layer, all, k))));
      }
    }
    const rest = (name, size, kind) => line([make('td', {colSpan: width - 2}, name), cell(percent(size), 'n'), cell(kind === 'sum' ? '' : bar(size))], kind);
    if (Math.abs(all.others[t]) > 0) rows.push(rest('all others together', all.others[t], 'quiet'));
    if (all.bias[t] !== 0) rows.push(rest('bias of the output', all.bias[t], 'quiet'));
    rows.push(rest('sum', sum, 'sum'));
    const head = make('tr', {}, make('th', {}, 'source token'), make('th', {className: 'n', title: about.slots ? 'which of the token\'s chosen heads' : 'attention matrix'}, about.slots ? 'slot' : 'head'),
                      ...(hasValue ? [make('th', {className: 'n', title: 'expert that made the value'}, 'value')] : []),
                      ...(hasOutput ? [make('th', {className: 'n', title: about.slots ? 'head that the slot is' : 'expert that the result goes through'}, about.slots ? 'expert' : 'output')] : []),
                      make('th', {className: 'n'}, 'size'), make('th'));
    const error = all.residual[t];
    this.residual = error;
    this.sources.replaceChildren(
        make('h2', {}, `Where layer ${l}'s attention output at `, tok(page.tokens[t]), ' comes from'),
        make('p', {className: 'note'}, `Sizes along the output, of whose length (${all.length[t].toPrecision(3)}) they are shares. Added up as vectors, all contributions give the output with an error of `,
             make('b', {className: 'residual'}, error.toExponential(1)), ' of its length.'),
        make('table', {className: 'list'}, make('thead', {}, head), make('tbody', {}, ...rows)), ...this.totals(layer, all, t));
  }

  splitsOf(layer, all, k) {
    const n = layer.score_terms.length, scores = layer.score_terms.map((name, i) => [name, all.scores[k * n + i]]);
    const ofScore = n ? [make('h3', {}, `Its score, ${signed(scores.reduce((sum, [, x]) => sum + x, 0), 3)}`), this.bars(scores, () => null, x => signed(x, 3))] : [];
    return ofScore.concat(layer.splits.flatMap((split, which) => {
      const n = split.terms.length, terms = split.terms.map((name, i) => [name, all.terms[which][k * n + i]]);
      return [make('h3', {}, kSplitNames[split.name] ?? split.name), this.bars(terms)];
    }));
  }
  // What of an entry can be switched off.
  switchesOf(all, k, j) {
    const {about} = this.view, at = {layer: this.layer, head: all.head[k]}, parts = [];
    if (about.pairs) parts.push(['this edge', {...at, query: state.t, source: j}]);
    if (about.slots) {
      parts.push([`expert ${all.output[k]}`, {layer: this.layer, expert: all.output[k]}]);
    } else {
      parts.push([`head ${all.head[k]}`, at]);
      if (all.value[k] !== kNone) parts.push([`value expert ${all.value[k]}`, {...at, value_expert: all.value[k]}]);
      if (all.output[k] !== kNone) parts.push([`output expert ${all.output[k]}`, {...at, output_expert: all.output[k]}]);
    }
    return make('p', {className: 'bar'}, 'switch off ', ...parts.map(([name, off]) => switchButton(name, off)));
  }
  // Names with signed shares; `acts`: buttons behind them.
  bars(pairs, acts = () => null, spell = percent) {
    const most = Math.max(1e-9, ...pairs.map(([, size]) => Math.abs(size)));
    return make('table', {className: 'list'}, ...pairs.map(([name, size]) => {
      const half = 50 * Math.abs(size) / most, act = acts(name);
      return make('tr', {}, make('td', {}, name, ...(act ? [' ', act] : [])), make('td', {className: 'n'}, spell(size)),
                  make('td', {style: 'width:40%'}, make('span', {className: 'sign'}, make('i', {className: size < 0 ? 'minus' : '', style: `left:${size < 0 ? 50 - half : 50}%;width:${half}%`}))));
    }));
  }
  totals(layer, all, t) {
    const {about} = this.view, parts = [];
    if (about.heads > 1) {
      parts.push(make('h3', {}, about.slots ? 'By slot' : 'By head'),
                 this.bars(Array.from({length: about.heads}, (_, h) => [headName(about, h), all.heads[t * about.heads + h]])));
    }
    layer.splits.forEach((split, which) => {
      const n = split.terms.length;
      parts.push(make('h3', {title: kSplitNotes[split.name]}, kSplitNames[split.name] ?? split.name), make('p', {className: 'note'}, kSplitNotes[split.name] ?? ''), this.bars(split.terms.map((name, i) => [name, all.totals[which][t * n + i]]), termSwitch(this.layer, split.name)));
    });
    return parts;
  }

  // ------------------------------------------------------------ what comes next, and why
  async drawNext() {
    const {about} = this.view, [p, logits] = await Promise.all([this.view.predictions(), this.view.logits()]), t = state.t, k = p.k;
    const rows = [], following = t + 1 < T ? page.ids[t + 1] : -1;
    let seen = false;
    const row = (name, probability, rank, mine) => make('tr', {className: mine ? 'row-next' : ''}, make('td', {className: 'n'}, String(rank)), make('td', {className: 'source'}, tok(name)),
        make('td', {className: 'n'}, small(probability)), make('td', {style: 'width:45%'}, make('span', {className: 'share', style: `width:${(100 * probability / Math.max(1e-9, p.probability[t * k])).toFixed(1)}%`})));
    for (let i = 0; i < k; ++i) {
      const id = p.likeliest[t * k + i], mine = id === following;
      seen = seen || mine;
      rows.push(row(word(id), p.probability[t * k + i], i + 1, mine));
    }
    if (following >= 0 && !seen) rows.push(row(page.tokens[t + 1], p.next[t], p.rank[t] + 1, true));
    const ends = following < 0 ? ['The text ends here; ']
        : ['The text goes on with ', tok(page.tokens[t + 1]), `: ${(-Math.log2(Math.max(p.next[t], 1e-30))).toFixed(2)} bits; `];
    const left = [make('p', {className: 'note'}, ...ends, `entropy ${(p.entropy[t] / Math.LN2).toFixed(2)} bits.`), make('table', {className: 'list'}, ...rows)];
    const right = [];
    const changed = await this.view.changes();
    if (changed) left.push(...this.changesOf(changed));
    if (logits) right.push(...await this.logitTable(logits, p, following));
    else right.push(make('p', {className: 'note'}, 'This model\'s logits are no sums over its layers (norms after the layers, or an adaptive softmax), so that no head has a share of them.'));
    this.next.replaceChildren(make('h2', {}, 'What comes after ', tok(page.tokens[t])), make('div', {className: 'columns'}, make('div', {}, ...left), make('div', {}, ...right)));
  }

  changesOf(changed) {
    const t = state.t, rows = [];
    for (let i = t * changed.k; i < (t + 1) * changed.k; ++i) {
      rows.push(make('tr', {}, make('td', {className: 'source'}, tok(word(changed.token[i]))), make('td', {className: 'n'}, small(changed.before[i])), make('td', {}, '→'),
                     make('td', {className: 'n'}, small(changed.after[i])), make('td', {className: 'n'}, percent(changed.after[i] - changed.before[i]))));
    }
    return [make('h3', {}, 'What switching off changes here'), make('p', {className: 'note'}, `The predictions differ by ${(changed.divergence[t] / Math.LN2).toPrecision(3)} bits (Kullback-Leibler).`),
            make('table', {className: 'list changes'}, ...rows)];
  }

  async logitTable(logits, p, following) {
    const {about} = this.view, t = state.t, H = about.heads, L = about.layers.length, target = following < 0 ? 1 : state.k;
    const table = logits.tables[target], at = t * logits.width, likeliest = word(p.likeliest[t * p.k]);
    const select = make('select', {ariaLabel: 'Whose logit'}, ...(following >= 0 ? [make('option', {value: 0, selected: target === 0}, `next: ${shown(page.tokens[t + 1])}`)] : []),
                        make('option', {value: 1, selected: target === 1}, `likeliest: ${shown(likeliest)}`));
    select.addEventListener('change', () => change({k: Number(select.value)}));
    const values = table.subarray(at + 3, at + logits.width), most = Math.max(1e-9, ...values.map(Math.abs));
    const cellOf = (l, c, name) => {
      const x = values[l * (H + 2) + c];
      const button = make('button', {type: 'button', title: `layer ${l}, ${name}: ${signed(x, 4)}`, style: `background:${tint(x / most)}`}, Math.abs(x) < 0.05 ? '0' : signed(x, Math.abs(x) < 9.95 ? 1 : 0));
      if (c < H) {
        button.addEventListener('click', () => change({l, h: c}));
        if (l === this.layer && c === this.head) button.className = 'here';
      }
      return make('td', {}, button);
    };
    const grid = make('table', {}, make('tr', {}, make('th'), ...Array.from({length: H}, (_, h) => make('th', {title: headName(about, h)}, `${about.slots ? 's' : 'h'}${h}`)), make('th', {}, 'bias'), make('th', {}, 'mlp')));
    for (let l = L - 1; l >= 0; --l) {
      grid.append(make('tr', {}, make('th', {}, `layer ${l}`), ...Array.from({length: H}, (_, h) => cellOf(l, h, headName(about, h))), cellOf(l, H, 'bias of the attention output'), cellOf(l, H + 1, 'MLP')));
    }
    const parts = [make('h3', {}, 'Where the logit of ', select, ' comes from'),
                   make('p', {className: 'note'}, `${signed(table[at], 3)} = embedding ${signed(table[at + 1], 3)}, constant ${signed(table[at + 2], 3)}, and what each head and MLP adds directly:`),
                   make('div', {className: 'grid-logits'}, grid)];
    const experts = await this.view.logitExperts(this.layer);
    if (experts) {
      const all = experts.ev + experts.eo, from = (t * H + this.head) * all, numbers = experts.tables[target].subarray(from, from + all);
      const list = (name, first, n) => n ? [make('h3', {}, name), this.logitBars(numbers.subarray(first, first + n))] : [];
      parts.push(...list(`Layer ${this.layer}, ${headName(about, this.head)}: by value expert`, 0, experts.ev),
                 ...list(`Layer ${this.layer}, ${headName(about, this.head)}: by ${about.slots ? 'expert' : 'output expert'}`, experts.ev, experts.eo));
    }
    return parts;
  }
  logitBars(numbers) {
    const pairs = [...numbers].map((x, e) => [e, x]).filter(([, x]) => x !== 0), most = Math.max(1e-9, ...pairs.map(([, x]) => Math.abs(x)));
    return make('table', {className: 'list'}, ...pairs.map(([e, x]) => {
      const half = 50 * Math.abs(x) / most;
      return make('tr', {}, make('td', {}, `expert ${e}`), make('td', {className: 'n'}, signed(x, 3)),
                  make('td', {style: 'width:40%'}, make('span', {className: 'sign'}, make('i', {className: x < 0 ? 'minus' : '', style: `left:${x < 0 ? 50 - half : 50}%;width:${half}%`}))));
    }));
  }
}
const brighter = (one, other, ground) => {
  const far = colour => Math.abs((colour & 255) - (ground & 255)) + Math.abs((colour >> 8 & 255) - (ground >> 8 & 255)) + Math.abs((colour >> 16 & 255) - (ground >> 16 & 255));
  return far(one) > far(other);
};

// ---------------------------------------------------------------- all together
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
})();
