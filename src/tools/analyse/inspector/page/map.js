// A panel's large attention map, with the weights of experts along its edges.
const LargeMap = Base => class extends Base {
  makeTools() {
    const button = (text, label, act) => {
      const one = make('button', {type: 'button', ariaLabel: label, title: label}, text);
      one.addEventListener('click', act);
      return one;
    };
    this.rowButton = button('scale by row', 'Scale colours by the largest weight of each row (r)', () => change({row: !state.row}));
    this.beforeButton = button('before composition', 'Weights before the heads compose', () => change({before: !state.before}));
    this.tools.append(button('+', 'Zoom in', () => zoom(0.5)), button('−', 'Zoom out', () => zoom(2)), button('all', 'Whole map (0)', () => change({x: 0, y: 0, z: T})),
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
    const [map, into, out] = await Promise.all([this.view.map(this.layer, this.head, state.before), this.view.routers(this.layer, 'select_in'),
                                                this.view.routers(this.layer, 'select_out')]);
    this.values = map;
    const here = router => router && router.heads > 1 || router && layer.heads === 1 ? router : null;
    this.into = here(into);
    this.out = here(out);
    this.gutters = {rows: this.out ? layer.experts : 0, columns: this.into ? layer.experts : 0};
    this.rowButton.setAttribute('aria-pressed', state.row);
    this.beforeButton.hidden = !layer.composed;
    if (this.offButton) {
      this.offButton.hidden = layer.slots;
      this.offButton.setAttribute('aria-pressed', isOff({layer: this.layer, head: this.head}));
    }
    this.beforeButton.setAttribute('aria-pressed', state.before);
    this.title.textContent = `Layer ${this.layer}, ${headName(layer, this.head)}` + (layer.window ? `, window of ${layer.window} keys` : '') +
        (layer.composed ? (state.before ? ': weights before composition' : ': composed weights') : '');
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
        const row = map.start(i), seen = map.seen(i), most = map.scale[i];
        const unit = 255 / levels * (state.row ? 1 : Math.sqrt(most / map.end));
        const end = Math.min(pixels, Math.ceil((seen - state.x) / step));
        for (let c = 0; c < end; ++c) {
          const j0 = state.x + Math.floor(c * step), j1 = Math.min(seen, Math.max(j0 + 1, state.x + Math.floor((c + 1) * step)));
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

  // Weights of output experts left of their queries, of value experts below their sources.
  paintGutters(pen, m, plus) {
    const strips = (router, first, rows, place) => {
      if (!router) return;
      const n = this.view.about.layers[this.layer].experts, image = new ImageData(rows ? n : state.z, rows ? state.z : n), to = new Uint32Array(image.data.buffer);
      to.fill(plus[0]);
      for (let k = 0; k < state.z; ++k) {
        const at = ((first + k) * router.heads + Math.min(this.head, router.heads - 1)) * router.top_k;
        for (let c = 0; c < router.top_k; ++c) {
          const e = router.index[at + c], shade = plus[Math.round(255 * Math.min(1, Math.sqrt(Math.abs(router.weight[at + c]))))];
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
    } else if (at.j >= this.values.seen(at.i)) {
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
    for (let j = 1; j < this.values.seen(i); ++j) if (Math.abs(this.values.number(i, j)) > Math.abs(this.values.number(i, best))) best = j;
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
      if (drag && !drag.moved && at && at.inside) change({t: at.i, s: at.j < this.values.seen(at.i) ? at.j : -1});
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
};
