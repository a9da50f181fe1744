// What the server does: charts from its page of metrics, live requests, mounts and upkeep. Each part for those who may see it.

import { call, json } from './api.js';
import { button, h, svg } from './dom.js';
import { bytes, duration, number } from './format.js';
import { link } from './main.js';

const EVERY = 2000;
const POINTS = 90;
const WIDTH = 300;
const HEIGHT = 72;

// Samples of a page of metrics: [{name, labels, value}].
export function parse(text) {
  const samples = [];
  for (const line of text.split('\n')) {
    if (!line || line.startsWith('#')) continue;
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return samples;
}

const sum = (samples, name, fits = () => true) => samples.filter((one) => one.name === name && fits(one.labels)).reduce((total, one) => total + one.value, 0);

// The upper bound of the bucket in which a share of the new requests lie, in seconds.
function quantile(samples, before, share) {
  const name = 'margay_request_seconds_bucket';
  const bounds = new Map();
  const take = (from, sign) => { for (const one of from) if (one.name === name) bounds.set(one.labels.le, (bounds.get(one.labels.le) ?? 0) + sign * one.value); };
  take(samples, 1);
  take(before, -1);
  const order = [...bounds].map(([le, count]) => [le === '+Inf' ? Infinity : Number(le), count]).sort(([left], [right]) => left - right);
  const total = order.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const bound = order.find(([, count]) => count >= total * share)?.[0] ?? Infinity;
  return Number.isFinite(bound) ? bound : order.at(-2)?.[0] ?? null;
}

class Chart {
  constructor(title, show, lines) {
    Object.assign(this, { show, lines: lines.map((line) => ({ ...line, points: [] })) });
    this.now = h('div', { class: 'value' });
    this.top = h('span', { class: 'hint' });
    this.paths = lines.map((line, index) => svg('path', { class: `line line-${index}` }));
    this.fill = svg('path', { class: 'fill' });
    this.image = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title} of the last minutes` },
      svg('path', { d: `M0 ${HEIGHT}H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}`, class: 'grid' }), this.fill, ...this.paths);
    const legend = lines.length > 1 && h('div', { class: 'legend' }, lines.map((line, index) => h('span', { class: `line-${index}` }, line.label)));
    this.node = h('section', { class: 'card chart', 'aria-label': title }, h('header', {}, h('h2', {}, title), this.top), this.now, this.image, legend);
  }

  add(values) {
    this.lines.forEach((line, index) => { line.points.push(values[index]); if (line.points.length > POINTS) line.points.shift(); });
    const known = this.lines.flatMap((line) => line.points).filter((value) => value !== null);
    const top = Math.max(...known, 1e-9);
    this.top.textContent = known.length ? `max ${this.show(Math.max(...known))}` : '';
    this.now.textContent = values.map((value) => (value === null ? '–' : this.show(value))).join(' · ');
    this.lines.forEach((line, index) => {
      const path = this.path(line.points, top);
      this.paths[index].setAttribute('d', path);
      if (index === 0) this.fill.setAttribute('d', path ? `${path}V${HEIGHT}H${this.x(line.points, line.points.findIndex((value) => value !== null))}Z` : '');
    });
  }

  x(points, index) { return ((POINTS - points.length + index) / (POINTS - 1)) * WIDTH; }

  path(points, top) {
    let path = '';
    points.forEach((value, index) => { if (value !== null) path += `${path ? 'L' : 'M'}${this.x(points, index).toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 6)).toFixed(1)}`; });
    return path;
  }
}

const rate = (now, before, seconds) => Math.max(0, (now - before) / seconds);
const time = (seconds) => (seconds < 0.001 ? `${Math.round(seconds * 1e6)} µs` : seconds < 1 ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`);

async function now() {
  const charts = {
    requests: new Chart('Requests', (value) => `${value < 10 ? value.toFixed(1) : number(Math.round(value))} /s`, [{ label: 'all' }]),
    latency: new Chart('Latency', time, [{ label: 'half below' }, { label: '99 % below' }]),
    errors: new Chart('Errors', (value) => `${value.toFixed(1)} /s`, [{ label: 'client (4xx)' }, { label: 'server (5xx)' }]),
    traffic: new Chart('Traffic', (value) => `${bytes(value)}/s`, [{ label: 'received' }, { label: 'sent' }]),
  };
  const facts = h('dl', { class: 'facts' });
  const space = h('div', {});
  const operations = h('tbody');
  const problem = h('p', { class: 'error', role: 'alert' });
  let [before, timer, isPaused, last] = [null, 0, false, 0];

  function draw(samples) {
    const now = performance.now();
    const seconds = (now - last) / 1000;
    last = now;
    if (before) {
      const answers = (code) => sum(samples, 'margay_requests_total', (labels) => !code || String(labels.status ?? labels.code ?? '').startsWith(code));
      const old = (code) => sum(before, 'margay_requests_total', (labels) => !code || String(labels.status ?? labels.code ?? '').startsWith(code));
      const traffic = (name) => rate(sum(samples, name), sum(before, name), seconds);
      charts.requests.add([rate(answers(), old(), seconds)]);
      charts.latency.add([quantile(samples, before, 0.5), quantile(samples, before, 0.99)]);
      charts.errors.add([rate(answers('4'), old('4'), seconds), rate(answers('5'), old('5'), seconds)]);
      charts.traffic.add([traffic('margay_received_bytes_total'), traffic('margay_sent_bytes_total')]);
    }
    before = samples;
    const one = (name) => sum(samples, name);
    const rows = [['Health', one('margay_healthy') ? 'ok' : 'not well'], ['Up for', duration(one('margay_uptime_seconds'))], ['Connections', number(one('margay_connections'))], ['Running requests', number(one('margay_requests_running'))],
      ['Memory', bytes(one('process_resident_memory_bytes'))], ['Free on the disk', bytes(one('margay_data_free_bytes'))], ['Metadata log', bytes(one('margay_log_bytes'))], ['Tree', bytes(one('margay_tree_file_bytes'))],
      ['Reclaimed', bytes(one('margay_reclaim_removed_bytes_total'))], ['Mounts', number(one('margay_mounts'))], ['Events waiting', number(one('margay_events_waiting'))]];
    facts.replaceChildren(...rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
    const kinds = ['pack', 'raw', 'log'].map((kind) => [kind, sum(samples, 'margay_segment_used_bytes', (labels) => labels.kind === kind), sum(samples, 'margay_segment_live_bytes', (labels) => labels.kind === kind)]);
    const total = Math.max(1, kinds.reduce((all, [, used]) => all + used, 0));
    space.replaceChildren(...kinds.map(([kind, used, alive]) => h('div', { class: 'meter' }, h('span', {}, { pack: 'Small objects', raw: 'Large objects', log: 'Log' }[kind]),
      h('progress', { max: total, value: used, 'aria-label': `Space of ${kind} segments` }), h('span', { class: 'hint' }, `${bytes(used)}${kind === 'log' ? '' : `, ${bytes(alive)} of it alive`}`))));
    const byName = new Map();
    for (const sample of samples) if (sample.name === 'margay_requests_total') byName.set(sample.labels.operation, (byName.get(sample.labels.operation) ?? 0) + sample.value);
    operations.replaceChildren(...[...byName].filter(([, count]) => count > 0).sort((left, right) => right[1] - left[1]).slice(0, 12).map(([name, count]) => h('tr', {}, h('td', {}, name), h('td', { class: 'right' }, number(count)))));
  }

  async function tick() {
    try {
      draw(parse(await (await call('api/metrics')).text()));
      problem.textContent = '';
    } catch (error) {
      problem.textContent = error.message;
      if (error.status === 403 || error.status === 401) return;
    }
    clearTimeout(timer);
    if (!isPaused) timer = setTimeout(tick, EVERY);
  }
  const status = await json('api/status').catch(() => ({}));
  await tick();
  const pause = button('Pause', () => { isPaused = !isPaused; pause.lastChild.textContent = isPaused ? 'Go on' : 'Pause'; clearTimeout(timer); if (!isPaused) tick(); });
  const node = [h('div', { class: 'bar' }, h('span', { class: 'hint' }, status.data ?? ''), h('span', { class: 'grow' }), pause), problem,
    h('div', { class: 'charts' }, Object.values(charts).map((chart) => chart.node)),
    h('div', { class: 'charts two' }, h('section', { class: 'card', 'aria-label': 'Server' }, h('header', {}, h('h2', {}, 'Server')), facts),
      h('section', { class: 'card', 'aria-label': 'Space' }, h('header', {}, h('h2', {}, 'Space')), h('div', { class: 'body' }, space)),
      h('section', { class: 'card', 'aria-label': 'Operations' }, h('header', {}, h('h2', {}, 'Operations since the start')), h('table', {}, operations)))];
  return { node, leave: () => { isPaused = true; clearTimeout(timer); } };
}

// Each part with the rights of which one is enough to see it.
const PARTS = {
  now: ['Now', ['status'], now],
  trace: ['Requests', ['trace'], async () => (await import('./trace.js')).trace()],
  upkeep: ['Mounts and upkeep', ['mounts', 'scrub', 'compact', 'fsck'], async (rights) => (await import('./upkeep.js')).upkeep(rights)],
};

export async function live({ rights }, wanted) {
  const seen = Object.entries(PARTS).filter(([, [, needs]]) => needs.some((need) => rights[need]));
  const [name, part] = seen.find(([one]) => one === wanted) ?? seen[0] ?? [];
  if (!part) return { title: 'Live', node: h('div', { class: 'page' }, h('h1', {}, 'Live'), h('p', { class: 'hint' }, 'This key may not see the server.')) };
  const { node, leave } = await part[2](rights);
  const tabs = seen.length > 1 && h('nav', { class: 'tabs', 'aria-label': 'Parts' }, seen.map(([one, [label]]) => h('a', { href: link('live', one), 'aria-current': one === name ? 'page' : null }, label)));
  return { title: 'Live', node: h('div', { class: 'page' }, h('div', { class: 'bar' }, h('h1', {}, 'Live')), tabs, node), leave };
}
