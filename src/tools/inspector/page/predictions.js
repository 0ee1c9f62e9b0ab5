// A panel's table of what comes next, and why; of a classifier, of the classes.
const Predictions = Base => class extends Base {
  drawClasses(classes) {
    const order = classes.map((_, c) => c).sort((a, b) => classes[b] - classes[a]);
    const rows = order.map(c => make('tr', {}, make('td', {className: 'n'}, `class ${c}`), make('td', {className: 'n'}, small(classes[c])),
        make('td', {style: 'width:60%'}, make('span', {className: 'share', style: `width:${(100 * classes[c] / Math.max(1e-9, classes[order[0]])).toFixed(1)}%`}))));
    this.next.replaceChildren(make('h2', {}, 'Which class the text has'), make('p', {className: 'note'}, 'Probabilities of the classes, for the whole text.'), make('table', {className: 'list classes'}, ...rows));
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
      return make('tr', {}, make('td', {}, `expert ${e}`), make('td', {className: 'n'}, signed(x, Math.abs(x) < 0.01 ? 5 : 3)),
                  make('td', {style: 'width:40%'}, make('span', {className: 'sign'}, make('i', {className: x < 0 ? 'minus' : '', style: `left:${x < 0 ? 50 - half : 50}%;width:${half}%`}))));
    }));
  }
};
