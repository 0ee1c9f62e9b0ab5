// Numbers, tokens and names in words; colours.
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
