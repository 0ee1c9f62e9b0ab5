// The text, a box for each token.
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
if (views.every(view => view.about.classes)) $('colour').querySelector('[value="surprise"]').remove();
$('colour').addEventListener('change', event => change({colour: event.target.value}));
let coloured = '';
async function drawText() {
  const view = views[state.a], layer = Math.min(state.l, view.about.layers.length - 1), head = Math.min(state.h, view.about.heads - 1);
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
  $('chosen').replaceChildren('token ', String(state.t), ' of ', String(T), ' ', tok(page.tokens[state.t]));
}
