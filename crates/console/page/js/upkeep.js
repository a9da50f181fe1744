// Mounts, checks and the work that keeps the storage in order.

import { adminJson, call } from './api.js';
import { add, button, h } from './dom.js';
import { ask, fail, toast } from './dialog.js';
import { bytes, date, duration, number, visible } from './format.js';
import { parse } from './live.js';

const EVERY = 2000;

function mounts(rows, rights, again) {
  if (rows.length === 0) return h('p', { class: 'hint' }, 'Nothing is mounted on the server’s machine. There, margay mount BUCKET DIR does it.');
  const unmount = async (path) => {
    if (!(await ask(`Unmount ${visible(path)}?`, 'Programs that have files open there keep them until they close them; names are gone at once.', 'Unmount', 'danger'))) return;
    try {
      const { calm, users } = await adminJson('POST', 'unmount', { path, seconds: 5 });
      toast(calm ? `${visible(path)} is unmounted` : `${visible(path)} is still in use: ${visible(String(users ?? ''))}`, calm ? '' : 'bad');
    } catch (error) { fail(error); }
    again();
  };
  return h('table', {}, h('thead', {}, h('tr', {}, ['Directory', 'Bucket', 'Open files', ''].map((text) => (text ? h('th', { scope: 'col' }, text) : h('td', {}))))),
    h('tbody', {}, rows.map((one) => h('tr', {}, h('td', { class: 'mono' }, visible(one.path)), h('td', {}, visible(`${one.bucket}${one.prefix ? `/${one.prefix}` : ''}`), one.read_only && h('span', { class: 'badge' }, 'read-only'), one.taken_over && h('span', { class: 'badge' }, 'taken over')),
      h('td', {}, number(one.open_files)), h('td', { class: 'actions' }, rights.unmount && button(`Unmount ${visible(one.path)}`, () => unmount(one.path), { kind: 'quiet', symbol: 'close', only: true }))))));
}

const WORKS = {
  scrub: { label: 'Scrub', title: 'Reads all data and compares checksums.', begin: 'Scrub now' },
  compact: { label: 'Compact', title: 'Gives back the space of what was deleted.', begin: 'Compact now' },
  fsck: { label: 'Check', title: 'Compares all rows with each other, while requests go on.', begin: 'Check now' },
};

// What a work answered, as a line.
function told(name, answer) {
  if (name === 'scrub') return `${answer.damaged ? `${number(answer.damaged)} damaged` : 'No damage'} in ${bytes(answer.bytes + answer.row_bytes)}${answer.complete ? '' : ', not complete'}`;
  if (name === 'compact') return `${bytes(answer.removed_bytes + answer.punched_bytes)} given back, ${bytes(answer.moved_bytes)} moved`;
  const found = Object.values(answer.findings ?? {}).reduce((sum, count) => sum + Number(count), 0);
  return found ? `${number(found)} findings: ask margay fsck` : 'No findings';
}

export async function upkeep(rights) {
  const place = { mounts: h('div', { class: 'body' }), facts: h('dl', { class: 'facts' }) };
  const lines = Object.fromEntries(Object.keys(WORKS).map((name) => [name, h('p', { class: 'hint', role: 'status' })]));
  const running = new Set();
  let [timer, isLeft] = [0, false];
  const begin = (name) => async () => {
    if (running.has(name)) return;
    running.add(name);
    lines[name].textContent = 'Running …';
    lines[name].className = 'hint';
    try { lines[name].textContent = `${told(name, await adminJson('POST', name))} (now)`; } catch (error) { lines[name].textContent = error.message; lines[name].className = 'error'; }
    running.delete(name);
  };
  const when = (one, name) => one(`margay_${name}_timestamp_seconds`);
  const lasts = (one) => {
    const ago = (seconds) => date(seconds * 1000);
    for (const [name, result] of [['scrub', () => `${number(one('margay_scrub_damaged'))} damaged${one('margay_scrub_complete') ? '' : ', not complete'}`], ['fsck', () => `${number(one('margay_fsck_findings'))} findings`]]) {
      if (!running.has(name) && !lines[name].textContent) lines[name].textContent = when(one, name) ? `${ago(when(one, name))}: ${result()}` : 'Not since the server began.';
    }
    if (!lines.compact.textContent) lines.compact.textContent = 'It also runs by itself.';
  };
  async function tick() {
    try {
      if (rights.status) {
        const [status, page] = await Promise.all([adminJson('GET', 'status'), call('api/metrics').then((answer) => answer.text())]);
        const samples = parse(page);
        const one = (name) => samples.filter((sample) => sample.name === name).reduce((sum, sample) => sum + sample.value, 0);
        lasts(one);
        for (const name of ['scrub', 'compact']) {
          const now = status.storage[name];
          if (now) lines[name].textContent = now.total_bytes ? `Running: ${Math.floor((100 * now.done_bytes) / now.total_bytes)} %` : 'Running …';
          else if (!running.has(name) && lines[name].textContent.startsWith('Running')) { lines[name].textContent = ''; lasts(one); }
        }
        const rows = [['Health', status.health], ['Log on the disk', bytes(status.storage.segments?.log?.bytes ?? one('margay_log_bytes'))], ['Rows not folded yet', number(status.storage.rows_in_memory)], ['Tree', bytes(status.storage.tree_bytes)],
          ['Waiting to be removed', bytes(status.quarantine.bytes)], ['Given back so far', bytes(one('margay_reclaim_removed_bytes_total') + one('margay_reclaim_punched_bytes_total'))], ['Events waiting', number(one('margay_events_waiting'))],
          ['Daily check', status.check.last ? `${number(one('margay_check_findings'))} findings, ${date(one('margay_check_timestamp_seconds') * 1000)}` : 'not yet'], ['Clock', status.clock.believed ? 'believed' : `ahead by ${duration(status.clock.ahead_seconds)}: nothing expires`],
          ['Certificate ends', status.certificate_ends_seconds ? date(status.certificate_ends_seconds * 1000) : 'no TLS here']];
        place.facts.replaceChildren(...rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
      }
      if (rights.mounts) { const rows = await adminJson('GET', 'mounts'); const shape = JSON.stringify(rows); if (shape !== place.shape) { place.shape = shape; place.mounts.replaceChildren(); add(place.mounts, [mounts(rows, rights, tick)]); } }
    } catch (error) { if (!isLeft) fail(error); }
    clearTimeout(timer);
    if (!isLeft) timer = setTimeout(tick, EVERY);
  }
  await tick();
  const card = (title, ...inside) => h('section', { class: 'card', 'aria-label': title }, h('header', {}, h('h2', {}, title)), inside);
  const works = Object.entries(WORKS).filter(([name]) => rights[name]);
  const node = [rights.mounts && card('Mounts', place.mounts),
    h('div', { class: 'charts two' }, rights.status && card('Storage', place.facts),
      works.map(([name, work]) => card(work.label, h('div', { class: 'body' }, h('p', { class: 'hint' }, work.title), lines[name], button(work.begin, begin(name))))))];
  return { node, leave: () => { isLeft = true; clearTimeout(timer); } };
}
