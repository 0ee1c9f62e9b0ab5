// The packed arrays, in script elements, decoded on first use. Their layout is in inspector.h and packing.h.
const kKept = 24;  // arrays kept in memory
const unpacked = new Map();

async function element(name) {
  const found = $(name);
  if (found || document.readyState !== 'loading') return found;
  await new Promise(done => document.addEventListener('DOMContentLoaded', done, {once: true}));
  return $(name);
}
async function unpack(name) {
  const holder = await element(name);
  return holder && inflate(holder.textContent);
}
// Decodes an array with `read`; cached, least recently used first out. A promise for null if there is none.
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

// An attention map. Row i holds the weights of its visible sources: up to itself if causal, else all.
const kLevels = 32767;
class AttentionMap {
  constructor(reader, size, causal) {
    this.size = size;
    this.causal = causal;
    this.levels = reader.take(Int32Array, 1)[0];
    this.end = reader.take(Float32Array, 1)[0];  // where shades end
    this.scale = reader.take(Float32Array, size);
    this.numbers = new Int16Array(this.start(size));
    this.least = null;  // the smallest value of each row that is stored individually
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
  // The largest values of each row, and means over squares for the others.
  readPeaks(reader) {
    const T = this.size, k = reader.take(Int32Array, 1)[0], n = Array.from({length: T}, (_, i) => Math.min(k, this.seen(i))), all = n.reduce((a, b) => a + b, 0);
    const steps = reader.take(Uint16Array, all), peaks = reader.take(Int8Array, all), side = reader.take(Int32Array, 1)[0], most = reader.take(Float32Array, 1)[0];
    const squares = Math.ceil(T / side), means = reader.take(Int8Array, squares * squares);
    this.least = new Float32Array(T);
    for (let i = 0, at = 0; i < T; ++i) {
      const row = this.start(i), seen = this.seen(i), scale = this.scale[i] || 1, first = (i / side | 0) * squares;
      for (let square = 0, j = 0; j < seen; ++square) {
        const mean = means[first + square] / 127;
        const filled = Math.sign(mean) * Math.min(kLevels, Math.round(kLevels * Math.abs(mean) * Math.sqrt(most / scale)));
        for (const end = Math.min(seen, j + side); j < end; ++j) this.numbers[row + j] = filled;
      }
      let least = k >= seen ? 0 : Infinity;
      for (let c = 0, j = 0; c < n[i]; ++c, ++at) {
        j += steps[at];
        this.numbers[row + j] = Math.round(peaks[at] / 127 * kLevels);
        least = Math.min(least, (peaks[at] / 127) ** 2 * scale);
      }
      this.least[i] = least;
    }
  }
  seen(i) { return this.causal ? i + 1 : this.size; }
  start(i) { return this.causal ? i * (i + 1) / 2 : i * this.size; }
  number(i, j) { return j < this.seen(i) ? this.numbers[this.start(i) + j] : 0; }
  value(i, j) {
    const q = this.number(i, j) / this.levels;
    return Math.sign(q) * q * q * this.scale[i];
  }
  // An upper bound of the error of value(i, j).
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
  let first = 0;  // the layer's first head among those of all layers
  about.layers.forEach(layer => { layer.first = first; first += layer.heads; });
  about.all_heads = first;
  this.map = (layer, head, before) => packed(name(`${before && about.layers[layer].composed ? 'before' : 'map'}.${layer}.${head}`),
                                             reader => new AttentionMap(reader, T, about.causal));
  this.thumbnails = () => packed(name('thumbnails'), reader => reader.take(Uint8Array, about.all_heads * about.thumbnail ** 2));
  this.predictions = () => about.classes ? Promise.resolve(null) : packed(name('predictions'), reader => {
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
    all.heads = reader.take(Float32Array, T * about_layer.heads);
    all.totals = about_layer.splits.map(split => reader.take(Float32Array, T * split.terms.length));
    all.scores = reader.halves(T * n * about_layer.score_terms.length);
    return all;
  });
  this.changes = () => about.changes ? packed(name('changes'), reader => {
    const k = about.changes;
    return {k, divergence: reader.take(Float32Array, T), token: reader.take(Int32Array, T * k), before: reader.take(Float32Array, T * k), after: reader.take(Float32Array, T * k)};
  }) : Promise.resolve(null);
  this.logits = () => about.logits ? packed(name('logits'), reader => {
    const width = 3 + about.all_heads + 2 * about.layers.length;
    return {width, tables: [0, 1].map(() => reader.take(Float32Array, T * width))};
  }) : Promise.resolve(null);
  this.logitExperts = layer => {
    const {value_experts: ev = 0, output_experts: eo = 0} = about.layers[layer];
    if (!about.logits || !(ev + eo)) return Promise.resolve(null);
    return packed(name(`logit_experts.${layer}`), reader => {
      const n = T * about.layers[layer].heads * (ev + eo);
      return {ev, eo, tables: [0, 1].map(() => reader.halves(n))};
    });
  };
  this.routers = (layer, which) => {
    const router = about.layers[layer].routers.find(one => one.name === which);
    if (!router) return Promise.resolve(null);
    return packed(name(`${which}.${layer}`), reader => {
      const n = T * router.heads * router.top_k;
      return {heads: router.heads, top_k: router.top_k, index: reader.take(Uint16Array, n), weight: reader.halves(n)};
    });
  };
}
