// Turns the report's data into text, tables and plots. Everything is set as text: nothing in it can become markup.
const page = JSON.parse(document.getElementById('data').textContent);
const [header, main] = ['header', 'main'].map(name => document.querySelector(name));

function make(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children.flat(Infinity));
  return node;
}

// `code` and **weight** as in Markdown.
const prose = text => text.split(/(`[^`]*`|\*\*.*?\*\*)/).map(part =>
  part.startsWith('`') ? make('code', {}, part.slice(1, -1))
    : part.startsWith('**') ? make('b', {}, part.slice(2, -2)) : part);

const list = lines => make('ul', { className: 'note' }, lines.map(line => make('li', {}, prose(line))));

// Consumers side by side, a figure a line: a table of the Markdown file, turned, so that it fits a phone and paper.
function table({ head, rows }) {
  const line = (name, index) => make('tr', {}, [name, ...rows.map(cells => cells[index])].map((text, column) =>
    make(column && index ? 'td' : 'th', {}, prose(text))));
  return make('div', { className: 'scroll', tabIndex: 0 }, make('table', {}, head.map(line)));
}

const section = (title, ...content) => main.append(make('section', {}, make('h2', {}, title), content));

// One look a consumer, wherever it is shown: a colour of the style sheet, a shape, and its name.
const shapes = ['circle', 'square', 'triangle', 'diamond', 'star', 'cross', 'wye', 'hexagon'];
const look = (points, of) => {
  const shown = page.names.filter(name => points.some(({ who }) => who === name));
  return { domain: shown, range: shown.map(name => of(page.names.indexOf(name))) };
};
const short = value => new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 }).format(value);

// What each form of plot adds to the frame that all share.
const forms = {
  grows: points => ({
    x: { type: 'log', ticks: [...new Set(points.map(point => point.x))] },
    y: { type: 'log' },
    marks: [
      Plot.ruleX(points.filter(({ y }) => y > 0), { x: 'x', y1: 'least', y2: 'most', stroke: 'who' }),
      Plot.line(points, { x: 'x', y: 'y', z: 'who', stroke: 'who', strokeWidth: 2 }),
      Plot.dot(points, { x: 'x', y: 'y', fill: 'who', symbol: 'who', r: 4 }),
    ],
  }),
  wanted: points => {
    const ends = [Math.min, Math.max].map(end => end(...points.map(point => point.x)));
    const frame = forms.grows(points);
    const name = Plot.text([ends[1]], { x: end => end, y: end => end, text: () => 'as wanted', textAnchor: 'end', dy: -8 });
    return { ...frame, marks: [Plot.line(ends, { x: end => end, y: end => end, strokeDasharray: '5 4' }), name, ...frame.marks] };
  },
  seconds: points => ({
    y: { zero: true },
    marks: [
      Plot.line(points, { x: 'x', y: 'y', z: 'who', stroke: 'who', strokeWidth: 2 }),
      Plot.dot(points, Plot.selectLast({ x: 'x', y: 'y', z: 'who', fill: 'who', symbol: 'who', r: 4 })),
    ],
  }),
  bars: points => rows(points, {}, [Plot.barX(points, { x: 'y', y: 'who', fill: 'who' })]),
  ranges: points => rows(points, { type: 'log' }, [
    Plot.ruleY(points, { x1: 'x', x2: 'y', y: 'who', stroke: 'who', strokeWidth: 2 }),
    Plot.tickX(points, { x: 'y', y: 'who', stroke: 'who', strokeWidth: 2, inset: 6 }),
    Plot.dot(points, { x: 'x', y: 'who', fill: 'who', symbol: 'who', r: 4 }),
  ]),
};

const rows = (points, x, marks) => ({
  height: 70 + 26 * points.length, marginLeft: 100, marginRight: 105,
  x, y: { domain: points.map(point => point.who), label: null },
  marks: [...marks, Plot.text(points, { x: 'y', y: 'who', text: 'label', textAnchor: 'start', dx: 6 })],
});

function draw({ title, take_away, form, x, y, points }, width) {
  const { x: xs, y: ys, ...frame } = forms[form](points.map(point => ({ ...point, y: point.y ?? NaN })));
  return Plot.plot({
    width, height: 280, marginLeft: 48, ariaLabel: `${title}. ${take_away}`, style: { background: 'none' },
    color: look(points, index => `var(--look-${index})`),
    symbol: { ...look(points, index => shapes[index]), legend: !(form in { bars: 1, ranges: 1 }) },
    ...frame,
    x: { label: x, labelAnchor: 'center', labelArrow: false, tickFormat: short, ...xs },
    y: { label: y, labelArrow: false, tickFormat: form in { bars: 1, ranges: 1 } ? undefined : short, grid: true, ...ys },
  });
}

function figure(plot, width) {
  const missing = text => make('p', { className: 'missing' }, text);
  const drawing = !plot.points.length ? missing('Not measured.')
    : typeof Plot === 'undefined' ? missing('No plots: run `npm ci` in lab/bench/peers, then measure again.') : draw(plot, width);
  return make('figure', {}, make('h3', {}, plot.title), drawing,
    make('figcaption', {}, plot.take_away ? make('p', { className: 'take-away' }, plot.take_away) : [],
      list(plot.notes), make('p', { className: 'note' }, make('code', {}, plot.command))));
}

header.append(...page.progress.map(line => make('p', {}, prose(line))));
const plots = make('div', { className: 'plots' });
const chapter = ({ title, text, tables, notes }) => section(title, make('p', {}, prose(text)), tables.map(table), list(notes));
section('Whom to run, and why', list(page.verdict));
chapter(page.chapters[0]);
section('One question, one plot',
  make('p', {}, 'Points are medians over the repetitions, the strokes through them least and most.'), plots);
const width = Math.min(520, (plots.clientWidth || 520) - 24);
plots.append(...page.plots.map(plot => figure(plot, width)));
page.chapters.slice(1).forEach(chapter);
section('More', make('p', {}, 'The same in Markdown, and every second\'s sample in JSON: the files of the same name.'));
