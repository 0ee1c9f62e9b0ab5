// Draws a page of blocks, which page.h describes. All texts are plain.
const sample = run => [lineSample(run.style), ' ', run.name];
const link = one => make('a', {href: `#${one.id}`}, one.name);
const term = (name, ...content) => [make('dt', {}, name), make('dd', {}, ...content)];
function copyButton(text) {
  const button = make('button', {className: 'copy', type: 'button'}, 'Copy');
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  });
  return button;
}
function tableOf(table) {
  const columns = table.columns.map(column => column.name === undefined ? {name: column} : column);
  const rows = table.rows.map(row => row.map(cell => cell.text === undefined ? {text: cell} : cell));
  const number = /^[-+.%0-9\u2013]*$/;
  const isText = columns.map((column, c) => column.text ?? !rows.every(row => number.test(row[c].text)));
  const head = columns.map((column, c) => {
    const above = column.style === undefined ? column.above : lineSample(column.style);
    return make('th', {scope: 'col', className: isText[c] ? 'text' : ''}, ...(above ? [above, make('br')] : []),
                column.name);
  });
  const kind = (cell, c) => c === 0 ? 'name' : columns[c].cost ? (cell.best ? 'cost least' : 'cost')
      : cell.best ? 'best' : isText[c] ? 'text' : '';
  const body = rows.map(row => make('tr', {}, ...row.map((cell, c) => make('td', {className: kind(cell, c)},
      ...(cell.style === undefined ? [] : [lineSample(cell.style)]), cell.text,
      ...(cell.small ? [' ', make('small', {}, cell.small)] : []), ...(cell.bar ? [smallBar(...cell.bar)] : [])))));
  return make('table', {}, make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...body));
}
const kBlocks = {
  heading: b => make('h2', {id: b.id ?? ''}, b.heading, ...(b.small ? [' ', make('small', {}, b.small)] : [])),
  subheading: b => make('h4', {}, b.subheading),
  note: b => make('p', {className: 'note'}, b.note),
  sentences: b => make('ul', {className: b.kind}, ...b.sentences.map(one =>
      make('li', {}, one.replaceAll(' \u00b1 ', '\u00a0\u00b1\u00a0')))),  // a deviation stays beside its mean
  chart: b => kCharts[b.chart](b),
  table: b => make('div', {className: `scroll ${b.card ?? ''}`}, tableOf(b.table)),
  grid: b => make('div', {className: `grid ${b.kind ?? ''}`}, ...b.grid.map(block)),
  figure: b => make('figure', {className: b.whole ? 'card whole' : 'card'},
                    make('figcaption', {}, b.figure, ' ', make('small', {}, b.remark)), ...b.blocks.map(block)),
  maps: b => make('div', {className: 'maps'}, ...b.maps.map(map =>
      make('div', {className: map.large ? 'large' : ''}, make('p', {className: 'name'}, map.name ?? map.title),
           heatMap(map)))),
  details: b => make('details', {open: Boolean(b.open)}, make('summary', {}, b.details), ...b.blocks.map(block)),
  card: b => make('div', {className: 'card whole'}, ...b.card.map(block)),
  code: b => make('pre', {}, b.code),
  facts: b => make('dl', {className: 'card facts'}, ...b.facts.map(one => make('div', {}, ...term(...one)))),
  entries: b => make('div', {className: 'card'}, make('dl', {}, ...b.entries.filter(([, text]) => text).flatMap(
      ([name, text, code]) => code ? term(name, make('code', {}, text), copyButton(text)) : term(name, text)))),
  legend: b => make('ul', {className: 'legend'},
                    ...b.legend.map(run => make('li', {}, ...sample(run), ': ', run.text))),
  samples: b => make('div', {className: 'grid samples'}, ...b.samples.map(run =>
      make('section', {className: 'card'}, make('h3', {}, ...sample(run)), ...run.texts.flatMap(one => [
        ...(one.step === undefined ? [] : [make('h4', {}, `step ${one.step}`)]),
        make('pre', {}, make('span', {className: 'prompt'}, one.prompt), one.text)])))),
  section: b => make('section', {}, make('h3', {id: b.id}, b.section), ...b.blocks.map(block)),
  contents: b => make('ul', {className: 'contents'}, ...b.contents.map(model =>
      make('li', {}, link(model), model.about, make('ul', {}, ...model.items.map(one =>
          make('li', {}, link(one), ' ', one.about)))))),
};
// The kind of a block is its first key.
const block = b => kBlocks[Object.keys(b)[0]](b);

document.querySelector('main').append(
    make('header', {},
         make('p', {className: 'brand'}, page.refresh ? 'Headroom \u00b7 updated during training' : 'Headroom'),
         make('h1', {}, page.title), ...page.header.map(block)), ...page.blocks.map(block));
if (page.refresh) setTimeout(() => location.reload(), 1000 * page.refresh);
if (location.hash) $(location.hash.slice(1))?.scrollIntoView();
