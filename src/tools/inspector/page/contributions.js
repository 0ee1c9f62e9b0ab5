// A panel's table of where a layer's output comes from.
const Contributions = Base => class extends Base {
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
};
