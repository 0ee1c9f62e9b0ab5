// A page of a server: typed texts are sent to it, and parts of the model can be ablated ("switched off").
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
// Fetches from the server; asks the reader for the API key if the server wants one. Throws an Error with a message to
// show.
async function fromServer(path, options = {}) {
  const key = sessionStorage.getItem('headroom-key');
  const headers = {'Content-Type': 'application/json', ...(key ? {Authorization: `Bearer ${key}`} : {})};
  const answer = await fetch(path, {...options, headers}).catch(() => { throw new Error('The server does not respond.'); });
  if (answer.status === 401) {
    const given = prompt('API key of this server:');
    if (!given) throw new Error('The server needs an API key.');
    sessionStorage.setItem('headroom-key', given);
    return fromServer(path, options);
  }
  if (!answer.ok) {
    const refusal = await answer.json().catch(() => null);
    throw new Error(refusal && refusal.error ? refusal.error.message : `The server responded with status ${answer.status}.`);
  }
  return answer;
}
let unanswered = new AbortController();
// Replaces this page with that of another text or other ablations. Of several requests, only the last one counts.
async function ask(text, off, model) {
  unanswered.abort();  // the server stops computing an answer that nobody waits for
  const own = unanswered = new AbortController(), say = words => { $('said').textContent = words; };
  if (!text) return say('Type a text.');
  say('Running the model …');
  const answer = await fromServer(live.path, {method: 'POST', body: JSON.stringify({model, text, switched_off: off}), signal: own.signal}).catch(error => error);
  if (own.signal.aborted) return;
  if (answer instanceof Error) return say(answer.message);
  const html = await answer.text();
  if (own.signal.aborted) return;
  clearTimeout(addressTimer);
  const parts = new URLSearchParams(location.hash.slice(1));
  if (text !== live.text) for (const name of ['t', 's', 'x', 'y', 'z']) parts.delete(name);
  if (off.length && !live.switched_off.length) { parts.set('a', 0); parts.set('b', 1); }
  if (!off.length) { parts.set('a', 0); parts.delete('b'); }
  for (const [name, value] of [['text', text], ['off', JSON.stringify(off)], ['model', model]]) parts.set(name, value);
  history.replaceState(null, '', '#' + parts);
  const area = $('typed'), focused = document.activeElement === area, scroll = scrollY;
  const selected = kSamples.includes(text) ? [0, text.length] : [area.selectionStart, area.selectionStart];
  document.open();
  document.write(html);
  document.close();
  scrollTo(0, scroll);
  if (focused && $('typed')) { $('typed').focus(); $('typed').setSelectionRange(...selected); }
}
// The first text of the page, selected so that typing replaces it. The second is for models with a short context.
const kSamples = ['The cat sat on the mat, and the dog sat on the rug.', 'The cat sat.'];
async function showSample() {
  if (!live.models.length) return;
  const post = {method: 'POST', body: JSON.stringify({model: live.model, prompt: kSamples[0]})};
  const long = await fromServer('/tokenize', post).then(answer => answer.json()).catch(() => null);
  if ($('typed').value) return;
  if (long) ask(kSamples[long.count <= live.context ? 0 : 1], [], live.model);
  else $('said').textContent = 'Type a text.';  // the model reads no prose
}
function drawLive() {
  const area = make('textarea', {id: 'typed', value: live.text, spellcheck: false, placeholder: 'Type a text for the model.', ariaLabel: 'Text for the model'});
  const model = make('select', {ariaLabel: 'Model'}, ...live.models.map(name => make('option', {value: name, selected: name === live.model}, name)));
  let timer = 0;
  area.addEventListener('input', () => {
    clearTimeout(timer);  // single weights are switched on again: they belong to the previous text
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
    live.context = list.data[0].context_length;  // of the first model, which shows the sample
    live.model = live.models[0];
  } catch (error) {
    $('said').textContent = error.message;
  }
}
// Requests the text and ablations in the address if they differ from this page's; without a text in either, a sample.
function askForAddress() {
  const given = new URLSearchParams(location.hash.slice(1)), text = given.get('text');
  if (!text) return live.text ? undefined : showSample();
  let off = [];
  try { off = JSON.parse(given.get('off') || '[]'); } catch (error) { off = null; }
  if (!Array.isArray(off) || !off.every(one => one && typeof one === 'object')) off = [];
  const model = given.get('model') || live.model;
  $('typed').value = text;
  if (text !== live.text || model !== live.model || JSON.stringify(off.map(sorted)) !== JSON.stringify(live.switched_off.map(sorted))) ask(text, off, model);
}
