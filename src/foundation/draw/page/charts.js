// Charts and heat maps as SVG. Colours and line styles come from charts.css, so that charts follow the light and dark
// schemes. charts.h describes their data. Numbers that are not finite are null.
const kWidth = 480, kHeight = 330, kLeft = 44, kTop = 12, kBase = kHeight - 40, kNameRoom = 14, kLoneNameRoom = 20, kStyles = 8;

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === 'number' ? Number(value.toFixed(1)) : value);
  }
  element.append(...children.flat());
  return element;
}
// The class of an element in a run's style; negative styles have no colour.
const styled = (name, style) => `${name} s${(style < 0 ? -1 - style : style) % kStyles}${style < 0 ? ' neutral' : ''}`;
const path = (name, d) => svg('path', {class: name, d});
const at = number => number.toFixed(1);
const horizontal = (from, y, to) => `M${at(from)} ${at(y)}H${at(to)}`;
const vertical = (x, from, to) => `M${at(x)} ${at(from)}V${at(to)}`;
const through = points => points.map(([x, y], i) => `${i ? 'L' : 'M'}${at(x)} ${at(y)}`).join('');
const label = (name, x, y, ...content) => svg('text', {class: name, x, y}, content);
const chart = (title, height, parts, width = kWidth) =>
    svg('svg', {class: 'chart', viewBox: `0 0 ${width} ${height.toFixed(0)}`, role: 'img', 'aria-label': title}, parts);
const noMeasurements = title => chart(title, kHeight, [label('x', kWidth / 2, kHeight / 2, 'no measurements')]);
const lineSample = style =>
    svg('svg', {class: 'sample', viewBox: '0 0 30 10', 'aria-hidden': true}, path(styled('line', style), 'M1 5H29'));
const smallBar = (share, style) =>
    svg('svg', {class: 'small-bar', viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': true},
        svg('rect', {class: 'ground', width: 100, height: 6}),
        svg('rect', {class: styled('bar', style), width: 100 * clamp(share ?? 0, 0, 1), height: 6}));

// Removes the middle of a long text, because names often differ at their ends.
function shorten(text, most) {
  const all = [...text], head = Math.floor(most / 2);
  return all.length <= most ? text : [...all.slice(0, head), '…', ...all.slice(all.length + head + 1 - most)].join('');
}
// "763 k", "2.70 M".
function shortNumber(number) {
  let prefix = 0;
  for (; Math.abs(number) >= 999.5 && prefix < 5; ++prefix) number /= 1000;
  const size = Math.abs(number), digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  const whole = prefix === 0 && Number.isInteger(number);
  return number.toFixed(whole ? 0 : digits) + ['', ' k', ' M', ' G', ' T', ' P'][prefix];
}
// "0.9531", "7.37", "120.2", "1,204".
function plainNumber(number) {
  const size = Math.abs(number);
  return size >= 1e15 ? number.toExponential(2) : size >= 999.95 ? Math.round(number).toLocaleString('en')
      : number.toFixed(size < 0.99995 ? 4 : size < 99.995 ? 2 : 1);
}
// The label of a tick: "12 M", "0.5", "5e-4".
function tickText(tick) {
  const size = Math.abs(tick), units = [[1e12, 1e12, ' T'], [1e9, 1e9, ' G'], [1e6, 1e6, ' M'], [1e4, 1e3, ' k']];
  if (size < 0.01 && size > 0) return Number(tick.toPrecision(6)).toExponential();
  const [, unit, name] = units.find(([least]) => size >= least) ?? [0, 1, ''];
  return Number((tick / unit).toPrecision(6)) + name;
}

// About `wanted` round numbers in [low, high].
function linearTicks(low, high, wanted) {
  if (!(high > low) || !Number.isFinite(high - low)) return [low];
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw)), mantissa = raw / power;
  const step = power * (mantissa < 1.5 ? 1 : mantissa < 3.5 ? 2 : mantissa < 7.5 ? 5 : 10), slack = 1e-9 * step;
  const first = Math.ceil((low - slack) / step), n = Math.floor((high + slack) / step) - first + 1;
  return Array.from({length: Math.min(n, 2 * wanted + 1)}, (_, i) => (first + i) * step);
}
// 4 to about 8 round numbers in [low, high] for a logarithmic scale.
function logarithmicTicks(low, high) {
  [low, high] = [Math.max(low, 1e-300), Math.min(high, 1e300)];
  const stride = Math.max(1, Math.ceil((Math.log10(high) - Math.log10(low)) / 8));
  for (const mantissas of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride) {
      ticks.push(...mantissas.map(mantissa => Number(`${mantissa}e${power}`)));
    }
    const inside = ticks.filter(tick => tick >= low && tick <= high);
    if (inside.length >= 4) return inside;
  }
  return linearTicks(low, high, 4);
}
// Draws the value `low` at `from` and `high` at `to`; `widen` is added at both ends, as a share of the range.
function scaleOf(low, high, from, to, logarithmic = false, widen = 0) {
  const value = logarithmic ? Math.log : x => x, room = widen ? Math.max(widen * (value(high) - value(low)), 0.01) : 0;
  const first = value(low) - room, last = value(high) + room;
  const scale = x => from + (value(x) - first) / (last - first) * (to - from);
  scale.ticks = wanted =>
      logarithmic ? logarithmicTicks(Math.exp(first), Math.exp(last)) : linearTicks(first, last, wanted);
  return scale;
}
// A linear scale whose ends stay within the bounds of the values.
function scaleWithin(bounds, low, high, from, to, widen) {
  const room = widen * (high - low || bounds[1] - bounds[0]);
  return scaleOf(Math.max(bounds[0], low - room), Math.min(bounds[1], high + room), from, to);
}
// The axes of a chart with two scales: lines at the ticks of y, marks at [value, text] below x.
function axes(x, y, right, marks, name) {
  const lines = y.ticks(5).flatMap(tick => [path('grid', horizontal(kLeft, y(tick), right)),
                                            label('y', kLeft - 6, y(tick) + 4, tickText(tick))]);
  const below = marks.flatMap(([value, text]) => [path('axis', vertical(x(value), kBase, kBase + 4)),
                                                  label('x', x(value), kBase + 17, text)]);
  return [...lines, path('axis', horizontal(kLeft, kBase, right)), ...below,
          label('x', (kLeft + right) / 2, kHeight - 5, name)];
}
// Moves overlapping labels apart, keeping their order and staying above the axis. Returns their baselines.
function spreadLabels(heights) {
  const kGap = 15, spread = [...heights], order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
  let floor = -Infinity, ceiling = kBase;
  for (const i of order) spread[i] = floor = Math.max(spread[i], floor + kGap);
  for (const i of order.reverse()) ceiling = (spread[i] = Math.min(spread[i], ceiling)) - kGap;
  return spread;
}

// Curves over a shared x axis, labelled at their ends. A pointer shows the values of all lines.
function lineChart(data) {
  const logarithmic = (data.y ?? 'logarithmic') === 'logarithmic' && !data.bounds, named = Boolean(data.x_names);
  const drawable = ([x, ...y]) => x !== null && y.every(one => one !== null && (!logarithmic || one > 0));
  const lines = data.lines
      .map(line => ({name: '', style: 0, dots: true, ...line, points: line.points.filter(drawable),
                     band: (line.band ?? []).filter(drawable)}))
      .filter(line => line.points.length > 0);
  if (lines.length === 0) return noMeasurements(data.title);
  // On a logarithmic scale, the top may cut off the steep start of a curve.
  const kSteep = 0.1;
  let end = 0, low = Infinity, high = 0;
  for (const line of lines) {
    const last = line.points.at(-1)[0];
    end = Math.max(end, last);
    for (const [x, least, most] of [...line.points.map(([x, y]) => [x, y, y]), ...line.band]) {
      low = Math.min(low, least);
      if (named || !logarithmic || x >= kSteep * last) high = Math.max(high, most);
    }
  }
  const valueText = y => data.y !== 'from_zero' || y === 0 ? plainNumber(y) : tickText(Number(y.toPrecision(3)));
  // A name without room is left out, not cut: the page's legend has it.
  const room = data.name_room ?? (data.end_values ? kNameRoom : kLoneNameRoom);
  const whole = lines.every(line => [...line.name].length <= room);
  const labelled = lines.filter(line => !line.faint).map(line => {
    const name = whole || !data.end_values ? shorten(line.name, room) : '', last = line.points.at(-1);
    return {line, last, text: data.end_values ? (name && `${name}: `) + valueText(last[1]) : name};
  });
  const right = kWidth - 14 - 7.8 * Math.max(0, ...labelled.map(one => [...one.text].length));
  const x = named ? scaleOf(-0.35, data.x_names.length - 0.65, kLeft, right) : scaleOf(0, end || 1, kLeft, right);
  const y = logarithmic ? scaleOf(low, high, kBase, kTop, true, 0.06)
      : data.bounds ? scaleWithin(data.bounds, low, high, kBase, kTop, 0.06)
      : scaleOf(0, data.y === 'from_zero' && high > 0 ? 1.06 * high : 1, kBase, kTop);
  const marks = named ? data.x_names.map((name, i) => [i, shorten(name, kNameRoom)])
      : linearTicks(0, end || 1, 5).map(tick => [tick, tickText(tick)]);

  const titleOf = (line, value) => (line.name && `${line.name}: `) + valueText(value), titles = new Map();
  for (const line of lines.filter(one => !one.raw)) {
    for (const [where, value] of line.points) {
      const title = `\n${titleOf(line, value)}${line.faint ? ' (thin line)' : ''}`;
      titles.set(where, (titles.get(where) ?? '') + title);
    }
  }
  const places = [...titles.keys()].sort((a, b) => a - b);
  const strips = places.map((where, i) => {
    const from = i ? x((places[i - 1] + where) / 2) : kLeft;
    const to = i + 1 < places.length ? x((where + places[i + 1]) / 2) : right;
    const title = (named ? data.x_names[where] : `${shortNumber(where)} ${data.x_label}`) + titles.get(where);
    return svg('rect', {class: 'strip', x: from, y: kTop, width: Math.max(0, to - from), height: kBase - kTop},
               svg('title', {}, title));
  });
  const curves = lines.flatMap(line => {
    const drawn = line.points.map(([px, py]) => [x(px), y(py)]);
    const dots = line.dots && drawn.length <= 60;  // more would hide the line
    const parts = [path(styled(line.raw ? 'raw' : line.faint ? 'faint' : 'line', line.style), through(drawn))];
    if (line.band.length > 1) {
      const top = line.band.map(([px, , most]) => [x(px), y(most)]);
      const bottom = line.band.map(([px, least]) => [x(px), y(least)]).reverse();
      parts.unshift(path(styled('band', line.style), through([...top, ...bottom]) + 'Z'));
    }
    if (!line.faint) {
      const circles = drawn.map(([cx, cy], i) => {
        const [where, value] = line.points[i], title = `${titleOf(line, value)} at ${shortNumber(where)}`;
        return svg('circle', {cx, cy, r: dots ? 2.6 : 6}, svg('title', {}, title));
      });
      parts.push(svg('g', {class: styled(dots ? 'end' : 'hover', line.style)}, circles));
    }
    return parts;
  });
  const baselines = spreadLabels(labelled.map(one => y(one.last[1])));
  const labels = labelled.flatMap(({line, last, text}, i) => {
    const from = [x(last[0]), y(last[1])];
    return [path(styled('leader', line.style), through([from, [right, from[1]], [right + 9, baselines[i]]])),
            ...(line.dots ? [svg('circle', {class: styled('end', line.style), cx: from[0], cy: from[1], r: 3.5})] : []),
            label(styled('label', line.style), right + 12, baselines[i] + 4, text)];
  });
  // A nested viewport clips the curves at the top. It extends beyond the frame's sides by half the width of a dot.
  const left = kLeft - 7, width = right - left + 7, height = kBase - kTop;
  const viewBox = `${left} ${kTop} ${width} ${height}`;
  const inside = svg('svg', {x: left, y: kTop, width, height, viewBox}, strips, curves);
  return chart(data.title, kHeight, [...axes(x, y, right, marks, data.x_label), inside, ...labels]);
}

// Labelled points on logarithmic scales, or with a linear y of values within bounds. Points with the same coordinates are drawn side by side.
function scatterChart(data) {
  const kRight = kWidth - 20, kRadius = 5, positive = ([x, y]) => x > 0 && (data.bounds ? y !== null : y > 0);
  const points = data.points.filter(point => positive(point.at))
      .map(point => ({...point, interval: point.interval && positive(point.interval) ? point.interval : null}));
  if (points.length === 0) return noMeasurements(data.title);
  const gaps = (data.gaps ?? []).filter(gap => positive(gap.from) && positive(gap.to));
  const ends = [...points.map(point => point.at), ...gaps.flatMap(gap => [gap.from, gap.to])];
  const heights = [...ends.map(end => end[1]), ...points.flatMap(point => point.interval ?? [])];
  const range = values => [Math.min(...values), Math.max(...values)];
  const x = scaleOf(...range(ends.map(end => end[0])), kLeft, kRight, true, 0.12);
  const y = data.bounds ? scaleWithin(data.bounds, ...range(heights), kBase, kTop, 0.12)
      : scaleOf(...range(heights), kBase, kTop, true, 0.12);
  const parts = axes(x, y, kRight, x.ticks().map(tick => [tick, tickText(tick)]), data.x_label);
  for (const line of (data.lines ?? []).filter(one => positive(one.from) && positive(one.to))) {
    parts.push(path(styled('line', line.style), through([line.from, line.to].map(([px, py]) => [x(px), y(py)]))));
  }
  for (const gap of gaps) {
    const [from, to] = [x(gap.from[0]), x(gap.to[0])], height = y(gap.from[1]);
    const mark = where => vertical(where, height - 4, height + 4);
    parts.push(path(styled('reach', gap.style), horizontal(from, height, to) + mark(from) + mark(to)),
               label('value', Math.max(from, to) + 8, height - 4, gap.text));
  }
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const areaOf = mark => ({left: mark.x - kRadius, right: mark.x + kRadius, top: Math.min(mark.y - kRadius, mark.high),
                           bottom: Math.max(mark.y + kRadius, mark.low)});
  const marks = [];
  for (const point of points) {
    const py = y(point.at[1]), [low, high] = point.interval?.map(y) ?? [py, py];
    const mark = {point, x: x(point.at[0]), y: py, low, high};
    for (const other of marks) {
      if (Math.abs(other.x - mark.x) < 1 && meet(areaOf(mark), areaOf(other))) mark.x += 2 * kRadius;
    }
    marks.push(mark);
  }
  for (const {point, x: px, y: py, low, high} of marks) {
    if (point.interval) {
      const ends = horizontal(px - 4, low, px + 4) + horizontal(px - 4, high, px + 4);
      parts.push(path(styled('reach', point.style), vertical(px, low, high) + ends));
    }
    parts.push(svg('circle', {class: styled('end', point.style), cx: px, cy: py, r: kRadius},
                   svg('title', {}, `${point.name}: ${plainNumber(point.at[1])} at ${shortNumber(point.at[0])}`)));
  }
  // Each label is placed beside, above or below its mark, as near as it can be without meeting anything.
  const taken = marks.map(areaOf);
  for (const mark of marks) {
    const text = shorten(mark.point.label ?? mark.point.name, 2 * kNameRoom), width = 7.5 * [...text].length;
    const area = areaOf(mark), places = [];
    if (!text) continue;
    for (let away = 0; away < kHeight; away += 5) {
      for (const baseline of [mark.y + 4 - away, mark.y + 4 + away]) {
        places.push({kind: 'label', x: area.right + 4, left: area.right + 4, baseline, away},
                    {kind: 'label left', x: area.left - 4, left: area.left - 4 - width, baseline, away});
      }
      for (const baseline of [area.top - 5 - away, area.bottom + 11 + away]) {
        places.push({kind: 'label x', x: mark.x, left: mark.x - width / 2, baseline, away});
      }
    }
    const box = ({left, baseline}) => ({left, right: left + width, top: baseline - 10, bottom: baseline + 4});
    const fits = one => one.left >= kLeft && one.right <= kWidth && one.top >= 0 && one.bottom <= kBase &&
        !taken.some(other => meet(one, other));
    const place = places.find(one => fits(box(one))) ?? places[0], own = box(place);
    taken.push(own);
    if (place.away > 10) {  // a dotted line to the mark
      const from = [mark.x, clamp(own.top, area.top, area.bottom)];
      const to = [clamp(mark.x, own.left, own.right), clamp(mark.y, own.top, own.bottom)];
      parts.push(path(styled('leader', mark.point.style), through([from, to])));
    }
    parts.push(label(styled(place.kind, mark.point.style), place.x, place.baseline, text));
  }
  return chart(data.title, kHeight, parts);
}

// Means with intervals, one in each row, along an axis that includes zero.
function intervalChart(data) {
  const kRow = 44, kSide = 8, height = kRow * data.rows.length;
  const low = Math.min(0, ...data.rows.map(row => row.low)), high = Math.max(0, ...data.rows.map(row => row.high));
  const pad = high > low ? 0.08 * (high - low) : 1, x = scaleOf(low - pad, high + pad, kSide, kWidth - kSide);
  const ticks = x.ticks(4).flatMap(tick => [path(tick === 0 ? 'axis' : 'grid', vertical(x(tick), 0, height)),
                                            label('x', x(tick), height + 16, tickText(tick))]);
  return chart(data.title, height + 24, [...ticks, ...data.rows.flatMap((row, i) => {
    const y = kRow * (i + 0.7), end = value => vertical(x(value), y - 5, y + 5);
    return [label('name', kSide, y - 14, `${row.name}: ${row.text}`),
            path(styled('reach', row.style), horizontal(x(row.low), y, x(row.high)) + end(row.low) + end(row.high)),
            svg('circle', {class: styled('end', row.style), cx: x(row.mean), cy: y, r: 4.5})];
  })]);
}

// A heat map. Shades are a greyscale image that masks a rectangle in the page's colour, one for each sign, so that maps
// follow the schemes and print.
let masks = 0;
function shades(cells, box) {
  const group = svg('g', {}, svg('rect', {class: 'edge', ...box}));
  inflate(cells.shades).then(buffer => {
    const values = new Int8Array(buffer);
    for (const [sign, name] of [[1, 'heat'], [-1, 'heat below']]) {
      if (!values.some(value => sign * value > 0)) continue;
      const canvas = make('canvas', {width: cells.columns, height: cells.rows}), context = canvas.getContext('2d');
      const image = context.createImageData(cells.columns, cells.rows), id = `mask${++masks}`;
      values.forEach((value, i) => image.data.set([255, 255, 255, Math.max(0, 255 * sign * value / 127)], 4 * i));
      context.putImageData(image, 0, 0);
      group.prepend(svg('mask', {id, maskUnits: 'userSpaceOnUse', ...box},
                        svg('image', {...box, preserveAspectRatio: 'none', style: 'image-rendering: pixelated',
                                      href: canvas.toDataURL()})),
                    svg('rect', {class: name, ...box, mask: `url(#${id})`}));
    }
  });
  return group;
}
function heatMap(data) {
  const kName = 13, kNames = 62, {cells, width} = data, beside = n => Math.min(12 * n, width / 4) + 5;
  const left = data.left ? beside(data.left.columns) : 0, below = data.below ? beside(data.below.rows) : 0;
  const rowNames = data.row_names.length > 0 && cells.rows <= 40;
  const box = {x: (rowNames ? kNames : data.row_label ? 16 : 2) + left, y: 2};
  box.width = width - box.x - 2;
  const across = box.width / cells.columns;
  box.height = rowNames ? cells.rows * clamp(across, kName + 1, 44) : clamp(across * cells.rows, 24, 2 * width);
  let foot = box.y + box.height;
  const down = box.height / cells.rows, parts = [shades(cells, box)];
  const turned = (x, y, name, text) =>
      svg('text', {class: name, transform: `translate(${at(x)} ${at(y)}) rotate(-90)`}, text);
  if (data.left) parts.push(shades(data.left, {...box, x: box.x - left, width: left - 5}));
  if (data.below) {
    parts.push(shades(data.below, {...box, y: foot + 5, height: below - 5}));
    foot += below;
  }
  if (rowNames) {
    parts.push(...data.row_names.map((name, i) =>
        label('y', box.x - left - 6, box.y + down * (i + 0.5) + 4, shorten(name, 9))));
  } else if (data.row_label) {
    parts.push(turned(11, box.y + box.height / 2, 'x', data.row_label));
  }
  if (data.column_names.length > 0 && across >= kName) {
    parts.push(...data.column_names.map((name, i) =>
        turned(box.x + across * (i + 0.5) + 4, foot + 5, 'y', shorten(name, 9))));
    foot += kNames;
  }
  // The axis label on the left, the end of the colour scale on the right.
  parts.push(label('', box.x, foot + 14, data.column_label),
             label('left', box.x + box.width, foot + 14, `full: ${shortNumber(data.full)}`));
  return chart(data.title, foot + 18, parts, width);
}

const kCharts = {lines: lineChart, scatter: scatterChart, intervals: intervalChart, heat: heatMap};
