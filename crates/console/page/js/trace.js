// Each request to the server as it ends, with filters. The server filters, so a busy one sends only what is wanted.

import { admin } from './api.js';
import { button, h } from './dom.js';
import { check, text, whole } from './fields.js';
import { bytes, number, visible } from './format.js';

const ROWS_MAX = 500;
const OPERATIONS = ['GetObject', 'PutObject', 'DeleteObject', 'HeadObject', 'ListObjectsV2', 'ListBuckets', 'CreateBucket', 'CopyObject', 'UploadPart', 'CompleteMultipartUpload', 'DeleteObjects'];
const took = (us) => (us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`);

function row(event) {
  const place = event.key ? `${event.bucket}/${event.key}` : event.bucket;
  return h('tr', { class: event.status >= 400 ? 'refused' : '' }, h('td', { class: 'mono' }, String(event.time).slice(11, 23)), h('td', { class: 'right' }, event.status), h('td', {}, visible(event.operation), event.code && h('span', { class: 'hint' }, ` ${visible(event.code)}`)),
    h('td', { class: 'long', title: visible(place) }, visible(place)), h('td', { class: 'right' }, took(event.total_us)), h('td', { class: 'right' }, bytes(event.bytes_in + event.bytes_out)),
    h('td', { class: 'hint', title: visible(event.user_agent ?? '') }, visible(`${event.requester || 'nobody'} from ${event.peer}`)));
}

// Calls `take` with each line of JSON of an answer without an end.
async function read(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const line of parts) if (line) take(JSON.parse(line));
  }
}

export function trace() {
  const errors = check('Only what is refused or fails', false);
  const operation = text('Operation', '', { placeholder: 'all' });
  operation.input.setAttribute('list', 'trace-operations');
  const bucket = text('Bucket', '', { placeholder: 'all' });
  const slow = whole('Slower than ms', '', { min: 0, placeholder: '0' });
  const rows = h('tbody');
  const state = h('p', { class: 'hint', role: 'status' }, 'Not watching.');
  const problem = h('p', { class: 'error', role: 'alert' });
  let [stop, seen, lost, waiting, planned] = [null, 0, 0, [], 0];
  // Drawn once a frame, however many requests there are.
  const draw = () => {
    planned = 0;
    rows.prepend(...waiting.slice(-ROWS_MAX).reverse().map(row));
    waiting = [];
    while (rows.children.length > ROWS_MAX) rows.lastChild.remove();
    state.textContent = `${stop ? 'Watching' : 'Not watching'}: ${number(seen)} requests${lost ? `, ${number(lost)} lost because there were too many` : ''}.`;
  };
  const plan = () => { planned ||= requestAnimationFrame(draw); };
  const take = (event) => {
    if (event.lost) lost += event.lost; else { seen += 1; waiting.push(event); if (waiting.length > ROWS_MAX) waiting.shift(); }
    plan();
  };
  const begin = async () => {
    stop?.abort();
    const mine = new AbortController();
    stop = mine;
    problem.textContent = '';
    toggle.lastChild.textContent = 'Stop';
    const wish = { ...(errors.get() ? { errors: true } : {}), ...(operation.get() ? { operation: operation.get() } : {}), ...(bucket.get() ? { bucket: bucket.get() } : {}), ...(slow.get() ? { slower_than_ms: Number(slow.get()) } : {}) };
    try {
      const response = await admin('POST', 'trace', wish, { signal: mine.signal });
      plan();
      await read(response, take);
    } catch (error) { if (error.name !== 'AbortError') problem.textContent = error.message; }
    if (stop === mine) end();
  };
  const end = () => { stop?.abort(); stop = null; toggle.lastChild.textContent = 'Watch'; plan(); };
  const toggle = button('Watch', () => (stop ? end() : begin()), { kind: 'primary' });
  const again = () => { if (stop) begin(); };
  const filters = h('div', { class: 'filters', onchange: again }, operation.node, bucket.node, slow.node, errors.node);
  const heads = ['Time (UTC)', 'Status', 'Operation', 'What', 'Took', 'Bytes', 'Who'];
  const node = [filters, h('div', { class: 'bar' }, toggle, button('Clear', () => { rows.replaceChildren(); [seen, lost] = [0, 0]; plan(); }), state), problem,
    h('div', { class: 'card table trace', tabindex: 0, role: 'region', 'aria-label': 'Requests' }, h('table', {}, h('thead', {}, h('tr', {}, heads.map((head) => h('th', { scope: 'col' }, head)))), rows)),
    h('datalist', { id: 'trace-operations' }, OPERATIONS.map((value) => h('option', { value })))];
  return { node, leave: () => { stop?.abort(); cancelAnimationFrame(planned); } };
}
