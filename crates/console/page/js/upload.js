// Uploads: files and whole folders, in parts if they are large, with progress, pause and resume.

import { HEADERS, all, apiUrl, escapeXml, failure, own, s3, s3xml, target, xml } from './api.js';
import { add, button, h } from './dom.js';
import { bytes, number, visible } from './format.js';

const PART_MIN = 8 * 1024 * 1024;
const PARTS_MAX = 9000;
const FILES_AT_ONCE = 3;
const PARTS_AT_ONCE = 2;
const LINES_MAX = 50;
const TRIES = 3;

// Sends one body with progress. fetch tells none of what it sends.
function send(method, to, body, { headers = {}, onprogress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, apiUrl('s3', to));
    for (const [name, value] of Object.entries({ ...HEADERS, ...headers })) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onprogress?.(event.loaded);
    request.onload = () => (request.status < 300 ? resolve(request) : reject(failure(request.status, request.responseText)));
    request.onerror = () => reject(Object.assign(new Error('the connection broke'), { canRetry: true }));
    request.onabort = () => reject(new DOMException('stopped', 'AbortError'));
    signal?.addEventListener('abort', () => request.abort(), { once: true });
    request.send(body);
  });
}

async function tried(work, signal) {
  for (let count = 1; ; count += 1) {
    try { return await work(); } catch (error) {
      const isWorth = error.canRetry || error.status >= 500;
      if (signal.aborted || !isWorth || count === TRIES) throw error;
      await new Promise((wake) => setTimeout(wake, 500 * 2 ** count));
    }
  }
}

class Upload {
  constructor(bucket, key, file, keepsVersions) {
    Object.assign(this, { bucket, key, file, keepsVersions, sent: 0, status: 'waiting', error: '', id: null, parts: new Map() });
    this.partSize = Math.max(PART_MIN, Math.ceil(file.size / PARTS_MAX / 1048576) * 1048576);
  }

  async run(changed) {
    this.stop = new AbortController();
    this.status = 'running';
    changed();
    try {
      if (this.file.size <= this.partSize) await this.whole(changed);
      else await this.multipart(changed).catch((error) => this.again(error, changed));
      this.sent = this.file.size;
      this.status = 'done';
    } catch (error) {
      if (error.name === 'AbortError') { if (this.status === 'running') this.status = 'paused'; } else { this.status = 'failed'; this.error = error.message; }
    }
    changed();
  }

  // Once from the beginning, if the server has forgotten the upload, because another tab or somebody has ended it.
  async again(error, changed) {
    if (error.code !== 'NoSuchUpload' || this.stop.signal.aborted) throw error;
    this.stop.abort();
    this.stop = new AbortController();
    this.forget();
    await this.multipart(changed);
  }

  forget() {
    localStorage.removeItem(this.memory());
    this.id = null;
    this.parts.clear();
  }

  type() { return { 'content-type': this.file.type || 'application/octet-stream' }; }

  async whole(changed) {
    const onprogress = (loaded) => { this.sent = loaded; changed(); };
    await tried(() => send('PUT', target(this.bucket, this.key), this.file, { headers: this.type(), onprogress, signal: this.stop.signal }), this.stop.signal);
  }

  async multipart(changed) {
    const { signal } = this.stop;
    if (!this.id) await this.findOrBegin(signal);
    const count = Math.ceil(this.file.size / this.partSize);
    const left = Array.from({ length: count }, (_, index) => index + 1).filter((part) => !this.parts.has(part));
    const running = new Map();
    const tell = () => {
      const whole = [...this.parts.keys()].reduce((sum, part) => sum + this.sizeOf(part), 0);
      this.sent = whole + [...running.values()].reduce((sum, loaded) => sum + loaded, 0);
      changed();
    };
    const worker = async () => {
      for (let part = left.shift(); part !== undefined; part = left.shift()) {
        const body = this.file.slice((part - 1) * this.partSize, part * this.partSize);
        const to = target(this.bucket, this.key, { partNumber: part, uploadId: this.id });
        const request = await tried(() => send('PUT', to, body, { onprogress: (loaded) => { running.set(part, loaded); tell(); }, signal }), signal);
        running.delete(part);
        this.parts.set(part, request.getResponseHeader('etag'));
        tell();
      }
    };
    await Promise.all(Array.from({ length: PARTS_AT_ONCE }, worker));
    const list = [...this.parts].sort(([left], [right]) => left - right)
      .map(([part, etag]) => `<Part><PartNumber>${part}</PartNumber><ETag>${escapeXml(etag)}</ETag></Part>`).join('');
    const answer = await s3('POST', this.bucket, this.key, { uploadId: this.id },
      { body: `<CompleteMultipartUpload>${list}</CompleteMultipartUpload>`, headers: { 'content-type': 'application/xml' }, signal });
    const document = xml(await answer.text());
    if (document.documentElement.localName === 'Error') throw new Error(own(document, 'Message'));
  }

  sizeOf(part) { return Math.min(this.partSize, this.file.size - (part - 1) * this.partSize); }

  // Goes on with an upload that was interrupted, also before the page was closed, if all its parts fit this file.
  async findOrBegin(signal) {
    const known = localStorage.getItem(this.memory());
    if (known && await this.listParts(known, signal)) { this.id = known; return; }
    const begun = await s3xml('POST', this.bucket, this.key, { uploads: true }, { headers: this.type(), signal });
    this.id = own(begun, 'UploadId');
    try { localStorage.setItem(this.memory(), this.id); } catch { /* only for going on later */ }
  }

  // The parts that the server has; false if it knows no such upload any more.
  async listParts(id, signal) {
    let marker;
    do {
      let listed;
      try { listed = await s3xml('GET', this.bucket, this.key, { uploadId: id, 'part-number-marker': marker }, { signal }); } catch (error) {
        if (error.code === 'NoSuchUpload' && marker === undefined) return false;
        throw error;
      }
      for (const part of all(listed, 'Part')) {
        const partNumber = Number(own(part, 'PartNumber'));
        if (Number(own(part, 'Size')) === this.sizeOf(partNumber)) this.parts.set(partNumber, own(part, 'ETag'));
      }
      marker = own(listed, 'IsTruncated') === 'true' ? own(listed, 'NextPartNumberMarker') : '';
    } while (marker);
    return true;
  }

  // A file is known again by its place, size and time.
  memory() { return `upload:${this.bucket}/${this.key}:${this.file.size}:${this.file.lastModified}`; }

  pause() { if (this.status === 'running') { this.status = 'paused'; this.stop.abort(); } else if (this.status === 'waiting') this.status = 'paused'; }

  async cancel() {
    const was = this.status;
    this.status = 'cancelled';
    if (was === 'running') this.stop.abort();
    localStorage.removeItem(this.memory());
    if (this.id && was !== 'done') await s3('DELETE', this.bucket, this.key, { uploadId: this.id }).catch(() => {});
  }
}

// All uploads of this page; they go on while other pages are shown.
const uploads = [];
let panel = null;
let planned = 0;
let finished = () => {};
export const whenFinished = (run) => { finished = run; };

export function upload(bucket, files, { keepsVersions = false } = {}) {
  for (const { key, file } of files) uploads.push(new Upload(bucket, key, file, keepsVersions));
  next();
}

// Also before somebody signs out: the names of files are nothing for who signs in next.
export function cancelAll() {
  const gone = uploads.splice(0);
  draw();
  return Promise.all(gone.map((one) => one.cancel()));
}

function next() {
  const running = uploads.filter((one) => one.status === 'running').length;
  for (const one of uploads.filter((other) => other.status === 'waiting').slice(0, FILES_AT_ONCE - running)) {
    one.run(draw).then(() => {
      if (one.status === 'done') { localStorage.removeItem(one.memory()); finished(one); }
      next();
    });
  }
  draw();
}

function draw() {
  if (!planned) planned = requestAnimationFrame(() => { planned = 0; drawNow(); });
}

// What the panel shows is built again only when an upload begins or ends; progress changes it in place, so that its buttons stay.
let built = '';
let moving = () => {};

function drawNow() {
  if (!panel) {
    panel = h('section', { class: 'uploads', 'aria-label': 'Uploads' });
    document.body.append(panel);
  }
  const shown = uploads.filter((one) => one.status !== 'cancelled');
  panel.hidden = shown.length === 0;
  const order = { running: 0, failed: 1, paused: 2, waiting: 3, done: 4 };
  const lines = [...shown].sort((left, right) => order[left.status] - order[right.status]).slice(0, LINES_MAX);
  const shape = `${shown.length} ${lines.map((one) => `${one.key}:${one.status}`).join('|')}`;
  if (shape !== built) { built = shape; build(shown, lines); }
  moving();
}

function build(shown, lines) {
  const of = (...names) => shown.filter((one) => names.includes(one.status));
  const isActive = of('running', 'waiting').length > 0;
  const again = (one) => { one.status = 'waiting'; one.error = ''; };
  const total = h('span', { class: 'hint', role: 'status' });
  const head = h('header', {}, h('h2', {}, isActive ? 'Uploading' : 'Uploads'), total, h('span', { class: 'grow' }),
    isActive && button('Pause all', () => { uploads.forEach((one) => one.pause()); draw(); }, { kind: 'quiet', symbol: 'pause', only: true }),
    of('paused', 'failed').length > 0 && button('Resume all', () => { of('paused', 'failed').forEach(again); next(); }, { kind: 'quiet', symbol: 'play', only: true }),
    button(isActive ? 'Cancel all' : 'Close', cancelAll, { kind: 'quiet', symbol: 'close', only: true }));
  const items = lines.map((one) => {
    const share = () => (one.file.size ? one.sent / one.file.size : 1);
    const note = h('span', { class: 'hint' }, one.status === 'failed' ? one.error : one.status);
    const bar = h('progress', { max: 1, 'aria-label': `Progress of ${visible(one.key)}` });
    const node = h('li', { class: one.status }, h('span', { class: 'name', title: visible(one.key) }, visible(one.key.split('/').pop())), note,
      one.status === 'running' ? button(`Pause ${one.file.name}`, () => { one.pause(); draw(); }, { kind: 'quiet', symbol: 'pause', only: true }) : null,
      ['paused', 'failed'].includes(one.status) ? button(`Resume ${one.file.name}`, () => { again(one); next(); }, { kind: 'quiet', symbol: 'play', only: true }) : null,
      one.status !== 'done' && button(`Cancel ${one.file.name}`, () => { one.cancel(); next(); }, { kind: 'quiet', symbol: 'close', only: true }), bar);
    return { node, move: () => { bar.value = share(); if (one.status === 'running') note.textContent = `${Math.floor(share() * 100)} %`; } };
  });
  moving = () => {
    const [done, all] = [shown.reduce((sum, one) => sum + one.sent, 0), shown.reduce((sum, one) => sum + one.file.size, 0)];
    total.textContent = `${number(of('done').length)} of ${number(shown.length)} · ${bytes(done)} of ${bytes(all)}`;
    items.forEach((item) => item.move());
  };
  panel.replaceChildren();
  const note = shown.some((one) => one.keepsVersions) && h('p', { class: 'hint note' }, 'The bucket keeps versions: what is replaced can be restored.');
  add(panel, [head, note, h('ul', {}, items.map((item) => item.node))]);
}

addEventListener('beforeunload', (event) => { if (uploads.some((one) => ['running', 'waiting'].includes(one.status))) event.preventDefault(); });
document.addEventListener('signed-out', () => { uploads.forEach((one) => one.pause()); });

// The files of a drop, folders with all that is in them.
export async function dropped(transfer, prefix) {
  const entries = Array.from(transfer.items).map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (entries.length === 0) return Array.from(transfer.files, (file) => ({ key: prefix + file.name, file }));
  const files = [];
  const walk = async (entry, at) => {
    if (entry.isFile) {
      files.push({ key: at + entry.name, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const page = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (page.length === 0) return;
      for (const inner of page) await walk(inner, `${at}${entry.name}/`);
    }
  };
  for (const entry of entries) await walk(entry, prefix);
  return files;
}

export const chosen = (list, prefix) => Array.from(list, (file) => ({ key: prefix + (file.webkitRelativePath || file.name), file }));
