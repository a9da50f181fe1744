// Shows what is in an object. Its bytes come with a type and a policy that let nothing of them run.

import { escapeXml, rawUrl, s3 } from './api.js';
import { button, h } from './dom.js';
import { bytes, visible } from './format.js';

const TEXT_MAX = 256 * 1024;
const ROWS_MAX = 200;
const KINDS = [
  ['image', /^image\/(png|jpeg|gif|webp|avif|bmp|x-icon|svg\+xml)$/, /\.(png|jpe?g|gif|webp|avif|bmp|ico|svg)$/i],
  ['video', /^video\/(mp4|webm|ogg|quicktime)$/, /\.(mp4|m4v|webm|ogv|mov)$/i],
  ['audio', /^audio\/(mpeg|ogg|wav|mp4)$/, /\.(mp3|ogg|oga|wav|m4a)$/i],
  ['pdf', /^application\/pdf$/, /\.pdf$/i],
  ['csv', /^text\/csv$/, /\.csv$/i],
  ['text', /^(text\/|application\/(json|xml|javascript|x-sh|yaml|toml|sql))/, /\.(txt|md|log|json|xml|html?|css|m?js|ts|py|rs|go|c|h|cpp|java|sh|ya?ml|toml|ini|conf|sql|tsv)$/i],
];
const isVague = (type) => !type || /octet-stream$/.test(type);

export function kindOf(type, key) {
  const clean = (type ?? '').split(';')[0].trim().toLowerCase();
  return KINDS.find(([, types, names]) => types.test(clean) || (isVague(clean) && names.test(key)))?.[0] ?? null;
}

export async function preview(bucket, key, { type, size, version }) {
  const kind = kindOf(type, key);
  const media = rawUrl(bucket, key, 'media', version);
  const failed = () => h('p', { class: 'hint' }, 'This cannot be shown. Download it instead.');
  if (kind === 'image') { const image = h('img', { src: media, alt: `Content of ${visible(key)}`, class: 'shown', onerror: () => image.replaceWith(failed()) }); return image; }
  if (kind === 'video') return h('video', { src: media, controls: true, preload: 'metadata', class: 'shown', 'aria-label': visible(key) });
  if (kind === 'audio') return h('audio', { src: media, controls: true, preload: 'metadata', 'aria-label': visible(key) });
  if (kind === 'pdf') return h('iframe', { src: media, title: `Content of ${visible(key)}`, class: 'shown pdf', referrerPolicy: 'no-referrer' });
  if (kind === null && size > TEXT_MAX) return h('p', { class: 'hint' }, 'There is no preview of this type.');
  if (size === 0) return h('p', { class: 'hint' }, 'The object is empty.');
  const answer = await s3('GET', bucket, key, { versionId: version }, { headers: { range: `bytes=0-${TEXT_MAX - 1}` } });
  const body = new Uint8Array(await answer.arrayBuffer());
  if (kind === null && body.includes(0)) return h('p', { class: 'hint' }, 'There is no preview of this type.');
  const text = new TextDecoder().decode(body);
  const cut = size > TEXT_MAX && h('p', { class: 'hint' }, `The first ${bytes(TEXT_MAX)} of ${bytes(size)}.`);
  if (kind === 'csv') return h('div', {}, table(csv(text, ROWS_MAX)), cut, query(bucket, key));
  return h('div', {}, h('pre', { class: 'shown', tabindex: 0, 'aria-label': `Content of ${visible(key)}` }, text), cut);
}

// Records of comma-separated values, with quotes.
export function csv(text, rowsMax) {
  const rows = [[]];
  let [cell, isQuoted] = ['', false];
  for (let i = 0; i < text.length; i += 1) {
    const mark = text[i];
    if (isQuoted) {
      if (mark === '"' && text[i + 1] === '"') { cell += '"'; i += 1; } else if (mark === '"') isQuoted = false; else cell += mark;
    } else if (mark === '"') isQuoted = true;
    else if (mark === ',') { rows.at(-1).push(cell); cell = ''; } else if (mark === '\n' || mark === '\r') {
      if (mark === '\r' && text[i + 1] === '\n') i += 1;
      rows.at(-1).push(cell);
      cell = '';
      if (rows.length > rowsMax) return rows;
      rows.push([]);
    } else cell += mark;
  }
  rows.at(-1).push(cell);
  if (rows.at(-1).length === 1 && rows.at(-1)[0] === '') rows.pop();
  return rows;
}

function table([head = [], ...rows]) {
  return h('div', { class: 'sheet', tabindex: 0, role: 'region', 'aria-label': 'Table' }, h('table', {},
    h('thead', {}, h('tr', {}, head.map((cell) => (cell ? h('th', { scope: 'col' }, cell) : h('td', {}))))), h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', {}, cell)))))));
}

// A question to the server in the SQL of S3 Select.
function query(bucket, key) {
  const input = h('input', { value: 'SELECT * FROM s3object s LIMIT 20', spellcheck: false, 'aria-label': 'SQL of S3 Select' });
  const out = h('div', { role: 'status' });
  const run = async () => {
    const body = `<SelectObjectContentRequest><Expression>${escapeXml(input.value)}</Expression><ExpressionType>SQL</ExpressionType>`
      + '<InputSerialization><CSV><FileHeaderInfo>USE</FileHeaderInfo></CSV></InputSerialization><OutputSerialization><CSV/></OutputSerialization></SelectObjectContentRequest>';
    out.replaceChildren('…');
    try {
      const answer = await s3('POST', bucket, key, { select: true, 'select-type': 2 }, { body, headers: { 'content-type': 'application/xml' } });
      const text = records(new Uint8Array(await answer.arrayBuffer()));
      out.replaceChildren(text ? table([[], ...csv(text, ROWS_MAX)]) : h('p', { class: 'hint' }, 'No record matches.'));
    } catch (error) { out.replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message)); }
  };
  return h('form', { class: 'query', onsubmit: (event) => { event.preventDefault(); run(); } }, input, button('Ask', run), out);
}

// The records in an event stream: each message is total length, length of headers, checksum, headers, payload, checksum.
export function records(bytesOf) {
  const view = new DataView(bytesOf.buffer, bytesOf.byteOffset, bytesOf.byteLength);
  const decoder = new TextDecoder();
  let [text, at] = ['', 0];
  while (at + 16 <= bytesOf.length) {
    const [total, heads] = [view.getUint32(at), view.getUint32(at + 4)];
    if (total < 16 + heads || at + total > bytesOf.length) break;
    const head = decoder.decode(bytesOf.subarray(at + 12, at + 12 + heads));
    const payload = decoder.decode(bytesOf.subarray(at + 12 + heads, at + total - 4));
    if (head.includes('Records')) text += payload;
    else if (head.includes('error-message')) throw new Error(head.replace(/[^\x20-\x7e]+/g, ' ').trim());
    at += total;
  }
  return text;
}

