// A folder of a bucket: its names, and what can be done with them.

import { all, own, s3, s3xml } from './api.js';
import { add, button, h, icon } from './dom.js';
import { fail, form } from './dialog.js';
import { field } from './dom.js';
import { bytes, date, number, visible } from './format.js';
import { wanted } from './existing.js';
import { Listing } from './listing.js';
import { Rows } from './rows.js';
import { any, bucketOf, may, objectOf, ofSettings } from './rights.js';
import { go, link } from './main.js';
import { chosen, dropped, upload, whenFinished } from './upload.js';
import { move, removeAll, rename } from './bulk.js';
import { download, panel } from './object.js';

const COLUMNS = [{ label: '', class: 'box' }, { label: 'Name', class: 'wide' }, { label: 'Size', class: 'size' }, { label: 'Changed', class: 'time' }];

class Browser {
  constructor(bucket, prefix, rights) {
    Object.assign(this, { bucket, prefix, rights, marked: new Map(), last: null, kind: 'objects', filter: '' });
    this.state = h('span', { class: 'hint count', role: 'status' });
    this.actions = h('div', { class: 'selection', role: 'toolbar', 'aria-label': 'Selection', hidden: true });
    this.side = h('div', { class: 'sideslot' });
    this.reload();
  }

  reload() {
    this.listing?.close();
    this.listing = new Listing(this.bucket, this.prefix, { kind: this.kind, filter: this.filter, changed: () => this.changed(), failed: fail });
    if (this.rows) { this.rows.at = 0; this.rows.active = 0; this.rows.asking = false; this.rows.draw(); }
    return this.listing.load(0).catch((error) => { if (error.name !== 'AbortError') this.refused(error); });
  }

  refused(error) {
    this.listing.isWhole = true;
    this.state.textContent = error.status === 403 ? 'This key may not list this folder.' : error.message;
    this.rows?.draw();
  }

  changed() {
    const { count, isWhole } = this.listing;
    this.state.textContent = isWhole ? `${number(count)} ${count === 1 ? 'item' : 'items'}` : `${number(count)} items and more`;
    this.rows?.draw();
  }

  id(row) { return `${row.key}\u0000${row.version ?? ''}`; }

  toggle(index, event) {
    const row = this.listing.row(index);
    if (!row) return;
    if (event.shiftKey && this.last !== null) {
      for (let i = Math.min(index, this.last); i <= Math.max(index, this.last); i += 1) {
        const between = this.listing.row(i);
        if (between) this.marked.set(this.id(between), between);
      }
    } else if (this.marked.has(this.id(row))) this.marked.delete(this.id(row));
    else this.marked.set(this.id(row), row);
    this.last = index;
    this.drawActions();
  }

  unmark() { this.marked.clear(); this.last = null; this.drawActions(); this.rows.draw(); }

  open(index) {
    const row = this.listing.row(index);
    if (!row) return;
    if (row.isFolder) go('browse', this.bucket, row.key);
    else this.show(row);
  }

  show(row, tab) {
    this.side.replaceChildren(panel(this.bucket, row, { tab, close: () => { this.side.replaceChildren(); this.rows.node.focus(); }, changed: () => this.reload() }));
    this.side.querySelector('[aria-selected=true]')?.focus();
  }

  cells(index) {
    const row = this.listing.row(index);
    if (!row) return null;
    const label = visible(row.name);
    const name = row.isFolder ? h('a', { class: 'name', href: link('browse', this.bucket, row.key), tabindex: -1 }, label)
      : h('button', { type: 'button', class: 'name', tabindex: -1 }, label);
    return [h('span', { class: `tick${this.marked.has(this.id(row)) ? ' on' : ''}`, 'aria-hidden': 'true' }),
      [icon(row.isFolder ? 'folder' : 'file'), name, row.isMarker && h('span', { class: 'badge' }, 'deleted'), this.kind === 'versions' && !row.isFolder && !row.isLatest && h('span', { class: 'badge' }, 'older')],
      row.isFolder || row.isMarker ? '' : bytes(row.size), row.isFolder ? '' : date(row.time)];
  }

  key(event, index) {
    if (event.key === 'Delete' && this.marked.size > 0 && this.rights.deletes) this.remove();
    else if (event.key === 'a' && (event.ctrlKey || event.metaKey)) this.markAll();
    else if (event.key === 'Escape') this.unmark();
    else if (event.key === 'Backspace' && this.prefix) go('browse', this.bucket, parent(this.prefix));
    else if (event.key === 'F2' && this.mayMove()) { const row = this.listing.row(index); if (row) this.done(rename(this.bucket, row)); } else return false;
    return true;
  }

  // Marks what has been loaded and is still in memory.
  markAll() {
    for (const page of this.listing.pages) for (const row of page.rows ?? []) this.marked.set(this.id(row), row);
    this.drawActions();
    this.rows.draw();
  }

  async done(work) {
    if (!(await work)) return;
    this.unmark();
    this.reload();
  }

  remove(everything = false) {
    const items = [...this.marked.values()];
    const isVersioned = this.isVersioned;
    this.done(removeAll(this.bucket, items, { versions: everything, isVersioned, what: `${this.bucket}/${visible(this.prefix)}` }));
  }

  // A new name is a new object, and the old one goes.
  mayMove() { return this.rights.puts && this.rights.deletes && this.rights.gets; }

  drawActions() {
    const items = [...this.marked.values()];
    this.actions.hidden = items.length === 0;
    if (items.length === 0) return;
    const files = items.filter((item) => !item.isFolder && !item.isMarker);
    const one = items.length === 1 ? items[0] : null;
    this.actions.replaceChildren();
    add(this.actions, [h('span', { class: 'strong' }, `${number(items.length)} selected`),
      this.rights.gets && files.length > 0 && files.length === items.length && files.length <= 50 && button('Download', () => files.forEach((item, index) => setTimeout(() => download(this.bucket, item.key, item.version), index * 300)), { symbol: 'download' }),
      one && !one.version && this.mayMove() && button('Rename', () => this.done(rename(this.bucket, one)), { symbol: 'pencil' }),
      this.rights.gets && !items.some((item) => item.version) && button('Move', async () => this.done(move(this.bucket, items, this.prefix, await bucketNames(this.bucket))), { symbol: 'folder' }),
      this.rights.gets && one && !one.isFolder && button('Share', () => this.show(one, 'Share'), { symbol: 'link' }),
      (items.some((item) => item.version) ? this.rights.deletesVersions : this.rights.deletes) && button('Delete', () => this.remove(), { kind: 'danger', symbol: 'trash' }),
      this.rights.deletesVersions && this.isVersioned && this.kind === 'objects' && button('Delete all versions', () => this.remove(true), { kind: 'danger' }),
      button('Clear selection', () => this.unmark(), { kind: 'quiet', symbol: 'close', only: true })]);
  }

  newFolder() {
    const name = h('input', { required: true, autofocus: true, spellcheck: false });
    return form('New folder', [field('Name', name)], 'Make folder', async () => {
      const clean = name.value.replace(/^\/+|\/+$/g, '');
      if (!clean) throw new Error('A folder needs a name.');
      await s3('PUT', this.bucket, `${this.prefix}${clean}/`, {}, { body: '' });
    });
  }
}

const parent = (prefix) => prefix.replace(/[^/]*\/$/, '');

async function bucketNames(own_) {
  try { return all(await s3xml('GET'), 'Bucket').map((node) => own(node, 'Name')); } catch { return [own_]; }
}

function crumbs(bucket, prefix) {
  const parts = prefix.split('/').slice(0, -1);
  const item = (label, href, isLast) => h('li', {}, isLast ? h('span', { 'aria-current': 'page' }, label) : h('a', { href }, label));
  return h('nav', { class: 'crumbs', 'aria-label': 'Folder' }, h('ol', {}, item('Buckets', '#/'), item(bucket, link('browse', bucket), parts.length === 0),
    parts.map((part, index) => item(visible(part) || '(empty name)', link('browse', bucket, `${parts.slice(0, index + 1).join('/')}/`), index === parts.length - 1))));
}

export async function browse(_, bucket, prefix) {
  const inside = (action) => objectOf(`s3:${action}`, bucket, `${prefix}name`);
  const [rights, settings] = await Promise.all([may({ puts: inside('PutObject'), gets: inside('GetObject'), deletes: inside('DeleteObject'), deletesVersions: inside('DeleteObjectVersion'), versions: bucketOf('s3:ListBucketVersions', bucket) }), ofSettings(bucket)]);
  const view = new Browser(bucket, prefix, rights);
  view.rows = new Rows({
    columns: COLUMNS, count: () => view.listing.count, isWhole: () => view.listing.isWhole, more: () => view.listing.more(), cells: (index) => view.cells(index),
    open: (index) => view.open(index), toggle: (index, event) => view.toggle(index, event), key: (event, index) => view.key(event, index),
    isMarked: (index) => { const row = view.listing.row(index); return row && view.marked.has(view.id(row)); },
  }, `Content of ${bucket}/${visible(prefix)}`);
  const filter = h('input', { type: 'search', placeholder: 'Names that begin with …', 'aria-label': 'Names that begin with', spellcheck: false });
  let timer = 0;
  filter.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(() => { view.filter = filter.value; view.unmark(); view.reload(); }, 250); });
  const deleted = h('label', { class: 'check', hidden: true }, h('input', { type: 'checkbox', onchange: (event) => { view.kind = event.target.checked ? 'versions' : 'objects'; view.unmark(); view.reload(); } }), 'Versions');
  const versioning = s3xml('GET', bucket, undefined, { versioning: true }).then((answer) => own(answer, 'Status')).catch(() => '');
  versioning.then((status) => { view.isVersioned = Boolean(status); deleted.hidden = !view.isVersioned || !rights.versions; });
  // What a bucket whose versions are suspended replaces is lost, too.
  const send = async (files) => {
    try {
      const keepsVersions = await versioning === 'Enabled';
      upload(bucket, await wanted(bucket, files, keepsVersions), { keepsVersions });
    } catch (error) { fail(error); }
  };
  const pick = (options) => { const input = h('input', { type: 'file', multiple: true, hidden: true, onchange: () => send(chosen(input.files, prefix)) }); if (options.folder) input.setAttribute('webkitdirectory', ''); input.click(); };
  const drop = h('div', { class: 'drop', hidden: true }, icon('upload'), `Upload to ${bucket}/${visible(prefix)}`);
  const node = h('div', { class: 'browse' },
    h('div', { class: 'bar' }, h('h1', { class: 'hidden' }, `${bucket}/${visible(prefix)}`), crumbs(bucket, prefix), h('span', { class: 'grow' }), any(settings.read) && h('a', { class: 'button quiet only', href: link('settings', bucket), 'aria-label': 'Settings of the bucket', title: 'Settings' }, icon('gear'))),
    h('div', { class: 'bar' }, filter, deleted, view.state, h('span', { class: 'grow' }),
      button('Refresh', () => view.reload(), { kind: 'quiet', symbol: 'refresh', only: true }),
      rights.puts && button('New folder', () => view.done(view.newFolder()), { symbol: 'folder' }),
      rights.puts && button('Upload folder', () => pick({ folder: true }), { symbol: 'upload' }),
      rights.puts && button('Upload', () => pick({}), { kind: 'primary', symbol: 'upload' })),
    view.actions, h('div', { class: 'split' }, view.rows.node, view.side), drop);
  if (rights.puts) dragging(node, drop, async (transfer) => {
    try { await send(await dropped(transfer, prefix)); } catch (error) { fail(error); }
  });
  let again = 0;
  whenFinished((one) => { if (one.bucket === bucket && one.key.startsWith(prefix)) { clearTimeout(again); again = setTimeout(() => view.reload(), 400); } });
  return { title: bucket, node, ready: () => view.rows.draw(), leave: () => { view.listing.close(); view.rows.close(); clearTimeout(timer); clearTimeout(again); whenFinished(() => {}); } };
}

function dragging(node, drop, run) {
  const hasFiles = (event) => Array.from(event.dataTransfer?.types ?? []).includes('Files');
  node.addEventListener('dragover', (event) => { if (hasFiles(event)) { event.preventDefault(); drop.hidden = false; } });
  node.addEventListener('dragleave', (event) => { if (!node.contains(event.relatedTarget)) drop.hidden = true; });
  node.addEventListener('drop', (event) => { if (hasFiles(event)) { event.preventDefault(); drop.hidden = true; run(event.dataTransfer); } });
}
