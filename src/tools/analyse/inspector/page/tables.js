// A panel's tables: contributions to the attention output, predictions, and contributions to logits.
const signBar = (size, most) => {
  const half = 50 * Math.min(1, Math.abs(size) / most);
  return make('span', {className: 'sign'}, make('i', {className: size < 0 ? 'minus' : '', style: `left:${size < 0 ? 50 - half : 50}%;width:${half}%`}));
};
const Contributions = Base => class extends Base {
  async drawSources() {
    const {about} = this.view, l = this.layer, layer = about.layers[l], all = await this.view.contributions(l), t = state.t, n = all.n;
    const rows = [], from = t * n;
    const shownEntries = [];
    for (let k = from; k < from + n; ++k) if (all.size[k] !== 0) shownEntries.push(k);
    const hasValue = shownEntries.some(k => all.value[k] !== kNone), hasOutput = shownEntries.some(k => all.output[k] !== kNone);
    const most = Math.max(1e-9, ...shownEntries.map(k => Math.abs(all.size[k])));
    const width = 4 + hasValue + hasOutput;
    const bar = size => signBar(size, most);
    const cell = (content, name = '') => make('td', {className: name}, content);
    let sum = all.bias[t] + all.others[t];
    for (const k of shownEntries) {
      const entry = k - from, j = all.source[k];
      sum += all.size[k];
      const source = make('td', {className: 'source'}, `${j} `, tok(page.tokens[j]));
      const cells = [source, cell(layer.expert_heads > 1 ? headName(layer, all.head[k]) : String(all.head[k]), 'n')];
      if (hasValue) cells.push(cell(expert(all.value[k]), 'n'));
      if (hasOutput) cells.push(cell(expert(all.output[k]), 'n'));
      cells.push(cell(percent(all.size[k]), 'n'), cell(bar(all.size[k])));
      const row = make('tr', {className: 'entry' + (entry === this.open ? ' open' : '')}, ...cells);
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
    const rest = (name, size, kind) => make('tr', {className: kind}, make('td', {colSpan: width - 2}, name), cell(percent(size), 'n'), cell(kind === 'sum' ? '' : bar(size)));
    if (Math.abs(all.others[t]) > 0) rows.push(rest('all others', all.others[t], 'quiet'));
    if (all.bias[t] !== 0) rows.push(rest('output bias', all.bias[t], 'quiet'));
    rows.push(rest('sum', sum, 'sum'));
    const head = make('tr', {}, make('th', {}, 'source token'), make('th', {className: 'n', title: layer.slots ? 'slot of a routed expert' : 'attention head'}, layer.slots ? 'slot' : 'head'),
                      ...(hasValue ? [make('th', {className: 'n', title: 'value expert'}, 'value')] : []),
                      ...(hasOutput ? [make('th', {className: 'n', title: layer.slots ? 'routed expert in this slot' : 'output expert'}, layer.slots ? 'expert' : 'output')] : []),
                      make('th', {className: 'n'}, 'size'), make('th'));
    const error = all.residual[t];
    this.sources.replaceChildren(
        make('h2', {}, `Contributions to the attention output of layer ${l} at `, tok(page.tokens[t])),
        make('p', {className: 'note'}, `Size along the output, as a share of its length (${all.length[t].toPrecision(3)}). The sum of all contributions differs from the output by `,
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
  // Buttons that switch off parts of an entry.
  switchesOf(all, k, j) {
    const layer = this.view.about.layers[this.layer], at = {layer: this.layer, head: all.head[k]}, parts = [];
    if (layer.pairs) parts.push(['this weight', {...at, query: state.t, source: j}]);
    if (layer.slots) {
      parts.push([`expert ${all.output[k]}`, {layer: this.layer, expert: all.output[k]}]);
    } else {
      parts.push([`head ${all.head[k]}`, at]);
      if (all.value[k] !== kNone) parts.push([`value expert ${all.value[k]}`, {...at, value_expert: all.value[k]}]);
      if (all.output[k] !== kNone) parts.push([`output expert ${all.output[k]}`, {...at, output_expert: all.output[k]}]);
    }
    return make('p', {className: 'bar'}, 'switch off ', ...parts.map(([name, off]) => switchButton(name, off)));
  }
  // A table of names and signed sizes; `acts` makes a button for a name, or null.
  bars(pairs, acts = () => null, spell = percent) {
    const most = Math.max(1e-9, ...pairs.map(([, size]) => Math.abs(size)));
    return make('table', {className: 'list'}, ...pairs.map(([name, size]) => {
      const act = acts(name);
      return make('tr', {}, make('td', {}, name, ...(act ? [' ', act] : [])), make('td', {className: 'n'}, spell(size)), make('td', {style: 'width:40%'}, signBar(size, most)));
    }));
  }
  totals(layer, all, t) {
    const parts = [];
    if (layer.heads > 1) {
      parts.push(make('h3', {}, layer.slots ? 'By slot' : 'By head'),
                 this.bars(Array.from({length: layer.heads}, (_, h) => [headName(layer, h), all.heads[t * layer.heads + h]])));
    }
    layer.splits.forEach((split, which) => {
      const n = split.terms.length;
      parts.push(make('h3', {title: kSplitNotes[split.name]}, kSplitNames[split.name] ?? split.name), make('p', {className: 'note'}, kSplitNotes[split.name] ?? ''), this.bars(split.terms.map((name, i) => [name, all.totals[which][t * n + i]]), termSwitch(this.layer, split.name)));
    });
    return parts;
  }
};

const Predictions = Base => class extends Base {
  drawClasses(classes) {
    const order = classes.map((_, c) => c).sort((a, b) => classes[b] - classes[a]);
    const names = this.view.about.class_names ?? [];
    const rows = order.map(c => make('tr', {}, make('td', {className: 'name'}, names[c] ?? `class ${c}`), make('td', {className: 'n'}, small(classes[c])),
        make('td', {style: 'width:60%'}, make('span', {className: 'share', style: `width:${(100 * classes[c] / Math.max(1e-9, classes[order[0]])).toFixed(1)}%`}))));
    this.next.replaceChildren(make('h2', {}, 'Predicted class'), make('p', {className: 'note'}, 'Probability of each class for the whole text.'), make('table', {className: 'list classes'}, ...rows));
  }
  async drawNext() {
    if (this.view.about.classes) return this.drawClasses(this.view.about.classes);
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
        : ['The next token is ', tok(page.tokens[t + 1]), `: ${(-Math.log2(Math.max(p.next[t], 1e-30))).toFixed(2)} bits; `];
    const left = [make('p', {className: 'note'}, ...ends, `entropy ${(p.entropy[t] / Math.LN2).toFixed(2)} bits.`), make('table', {className: 'list'}, ...rows)];
    const right = [];
    const changed = await this.view.changes();
    if (changed) left.push(...this.changesOf(changed));
    if (logits) right.push(...await this.logitTable(logits, p, following));
    else right.push(make('p', {className: 'note'}, 'Logits cannot be attributed to heads: the model has norms after its layers or an adaptive softmax.'));
    this.next.replaceChildren(make('h2', {}, 'Predictions after ', tok(page.tokens[t])), make('div', {className: 'columns'}, make('div', {}, ...left), make('div', {}, ...right)));
  }

  changesOf(changed) {
    const t = state.t, rows = [];
    for (let i = t * changed.k; i < (t + 1) * changed.k; ++i) {
      rows.push(make('tr', {}, make('td', {className: 'source'}, tok(word(changed.token[i]))), make('td', {className: 'n'}, small(changed.before[i])), make('td', {}, '→'),
                     make('td', {className: 'n'}, small(changed.after[i])), make('td', {className: 'n'}, percent(changed.after[i] - changed.before[i]))));
    }
    return [make('h3', {}, 'Effect of switching off'), make('p', {className: 'note'}, `The predictions differ by ${(changed.divergence[t] / Math.LN2).toPrecision(3)} bits (Kullback-Leibler).`),
            make('table', {className: 'list changes'}, ...rows)];
  }

  async logitTable(logits, p, following) {
    const {layers} = this.view.about, t = state.t, H = Math.max(...layers.map(layer => layer.heads)), target = following < 0 ? 1 : state.k;
    const table = logits.tables[target], at = t * logits.width, likeliest = word(p.likeliest[t * p.k]);
    const select = make('select', {ariaLabel: 'Logit'}, ...(following >= 0 ? [make('option', {value: 0, selected: target === 0}, `next: ${shown(page.tokens[t + 1])}`)] : []),
                        make('option', {value: 1, selected: target === 1}, `likeliest: ${shown(likeliest)}`));
    select.addEventListener('change', () => change({k: Number(select.value)}));
    const values = table.subarray(at + 3, at + logits.width), most = Math.max(1e-9, ...values.map(Math.abs));
    // The values of a layer are those of its heads, of the bias and of the MLP.
    const cellOf = (l, c, name) => {
      const x = values[layers[l].first + 2 * l + c];
      const button = make('button', {type: 'button', title: `layer ${l}, ${name}: ${signed(x, 4)}`, style: `background:${tint(x / most)}`}, Math.abs(x) < 0.05 ? '0' : signed(x, Math.abs(x) < 9.95 ? 1 : 0));
      if (c < layers[l].heads) {
        button.addEventListener('click', () => change({l, h: c}));
        if (l === this.layer && c === this.head) button.className = 'here';
      }
      return make('td', {}, button);
    };
    const slots = layers.every(layer => layer.slots);
    const grid = make('table', {}, make('tr', {}, make('th'), ...Array.from({length: H}, (_, h) => make('th', {title: columnName(layers, h)}, `${slots ? 's' : 'h'}${h}`)), make('th', {}, 'bias'), make('th', {}, 'mlp')));
    for (let l = layers.length - 1; l >= 0; --l) {
      const own = layers[l].heads, none = Array.from({length: H - own}, () => make('td'));
      grid.append(make('tr', {}, make('th', {}, `layer ${l}`), ...Array.from({length: own}, (_, h) => cellOf(l, h, headName(layers[l], h))), ...none, cellOf(l, own, 'attention output bias'), cellOf(l, own + 1, 'MLP')));
    }
    const parts = [make('h3', {}, 'Contributions to the logit of ', select),
                   make('p', {className: 'note'}, `${signed(table[at], 3)} = embedding ${signed(table[at + 1], 3)} + constant ${signed(table[at + 2], 3)} + the direct contributions of heads and MLPs:`),
                   make('div', {className: 'grid-logits'}, grid)];
    const experts = await this.view.logitExperts(this.layer);
    if (experts) {
      const layer = layers[this.layer], all = experts.ev + experts.eo, from = (t * layer.heads + this.head) * all, numbers = experts.tables[target].subarray(from, from + all);
      const list = (name, first, n) => n ? [make('h3', {}, name), this.logitBars(numbers.subarray(first, first + n))] : [];
      parts.push(...list(`Layer ${this.layer}, ${headName(layer, this.head)}: by value expert`, 0, experts.ev),
                 ...list(`Layer ${this.layer}, ${headName(layer, this.head)}: by ${layer.slots ? 'expert' : 'output expert'}`, experts.ev, experts.eo));
    }
    return parts;
  }
  logitBars(numbers) {
    const pairs = [...numbers].map((x, e) => [`expert ${e}`, x]).filter(([, x]) => x !== 0);
    return this.bars(pairs, () => null, x => signed(x, Math.abs(x) < 0.01 ? 5 : 3));
  }
};
