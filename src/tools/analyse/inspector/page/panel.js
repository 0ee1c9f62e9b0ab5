// A panel shows one view: thumbnails of all heads, the map of the selected head, and the tables.
class Panel extends LargeMap(Contributions(Predictions(class {}))) {
  constructor(slot) {
    super();
    this.slot = slot;  // 'a' or 'b'
    this.view = null;
    this.hover = null;
    this.open = -1;
    this.root = make('div', {className: 'panel'});
    this.bar = make('div', {className: 'view card'});
    this.parts = make('span', {className: 'parts'});
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
    this.head = Math.min(state.h, view.about.layers[this.layer].heads - 1);
    this.parts.textContent = this.partsOf(this.layer);
    for (const button of this.thumbs.querySelectorAll('button')) {
      const here = Number(button.dataset.l) === this.layer && Number(button.dataset.h) === this.head;
      if ((button.getAttribute('aria-pressed') === 'true') !== here) button.setAttribute('aria-pressed', here);
    }
    await this.drawMap();
    await Promise.all([this.drawSources(), this.drawNext()]);
  }

  // The parts of a layer's attention; of the layer alone if layers differ.
  partsOf(l) {
    const {layers} = this.view.about, parts = Object.entries(layers[l].parts).filter(([, value]) => value !== 'none').map(([key, value]) => `${key} ${value}`);
    if (layers[l].window) parts.push(`window ${layers[l].window}`);
    return (this.differing().length ? `layer ${l}: ` : '') + parts.join(' · ');
  }
  // The parts in which the layers differ.
  differing() {
    const {layers} = this.view.about;
    return Object.keys(layers[0].parts).filter(key => layers.some(layer => layer.parts[key] !== layers[0].parts[key]));
  }
  // A row's title: the layer and what distinguishes it.
  layerName(l) {
    const own = this.view.about.layers[l].parts, names = this.differing().map(key => own[key]).filter(value => value !== 'none');
    return make('th', {title: this.partsOf(l)}, `layer ${l}`, ...names.map(name => make('small', {}, name)));
  }

  // The run, the checkpoint, and the parts of the layer's attention.
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
    children.push(this.parts);
    this.bar.replaceChildren(...children);
  }

  async drawThumbnails() {
    const {about} = this.view, side = about.thumbnail, data = await this.view.thumbnails(), {plus} = colours();
    const most = Math.max(...about.layers.map(layer => layer.heads));
    const table = make('table'), size = clamp(Math.floor(170 / most) - 7, 24, 60);
    this.thumbs.style.setProperty('--thumb', size + 'px');
    const top = make('tr', {}, make('th'));
    for (let h = 0; h < most; ++h) top.append(make('th', {title: columnName(about.layers, h)}, String(h)));
    table.append(top);
    about.layers.forEach((layer, l) => {
      const row = make('tr', {}, this.layerName(l));
      for (let h = 0; h < layer.heads; ++h) {
        const canvas = make('canvas', {width: side, height: side}), image = new ImageData(side, side), to = new Uint32Array(image.data.buffer);
        const from = (layer.first + h) * side * side;
        for (let i = 0; i < side * side; ++i) to[i] = plus[data[from + i]];
        canvas.getContext('2d').putImageData(image, 0, 0);
        const button = make('button', {type: 'button', ariaLabel: `layer ${l}, ${headName(layer, h)}`, title: `layer ${l}, ${headName(layer, h)}`}, canvas);
        button.dataset.l = l;
        button.dataset.h = h;
        button.addEventListener('click', () => change({l, h}));
        row.append(make('td', {}, button));
      }
      table.append(row);
    });
    this.thumbs.replaceChildren(table);
  }
}
