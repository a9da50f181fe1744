// The names of a folder, loaded page by page as they are looked at. Memory is bounded: of old pages only the place in the listing
// is kept, and they are loaded again when somebody scrolls back.

import { children, own, s3xml, unescape, value } from './api.js';

const PAGE = 1000;
const PAGES_HELD = 24;

export class Listing {
  // `kind` is objects, or versions, which shows what was deleted too.
  constructor(bucket, prefix, { kind = 'objects', filter = '', changed = () => {}, failed = () => {} } = {}) {
    Object.assign(this, { bucket, prefix, kind, filter, changed, failed });
    this.pages = [{ at: {}, first: 0, rows: null, used: 0 }];
    this.count = 0;
    this.isWhole = false;
    this.clock = 0;
    this.loading = new Map();
    this.stop = new AbortController();
  }

  close() { this.stop.abort(); }

  // The row at an index, or undefined while it is being loaded.
  row(index) {
    const number = this.pageOf(index);
    const page = this.pages[number];
    if (!page || index >= this.count) return undefined;
    if (!page.rows) { this.load(number).catch(this.failed); return undefined; }
    this.clock += 1;
    page.used = this.clock;
    return page.rows[index - page.first];
  }

  pageOf(index) {
    let [low, high] = [0, this.pages.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pages[middle].first <= index) low = middle; else high = middle - 1;
    }
    return low;
  }

  // Loads the next page of names that were not seen yet.
  async more() {
    if (this.isWhole) return false;
    await this.load(this.pages.length - 1);
    return !this.isWhole;
  }

  load(number) {
    const running = this.loading.get(number);
    if (running) return running;
    const work = this.fetch(number).finally(() => this.loading.delete(number));
    this.loading.set(number, work);
    return work;
  }

  async fetch(number) {
    const page = this.pages[number];
    const { rows, next } = await (this.kind === 'versions' ? this.versions(page.at) : this.objects(page.at));
    const isLast = number === this.pages.length - 1;
    page.rows = rows;
    this.clock += 1;
    page.used = this.clock;
    if (isLast) {
      this.count = page.first + rows.length;
      if (next) this.pages.push({ at: next, first: this.count, rows: null, used: 0 });
      else this.isWhole = true;
    }
    const held = this.pages.filter((other) => other.rows);
    if (held.length > PAGES_HELD) held.reduce((oldest, other) => (other.used < oldest.used ? other : oldest)).rows = null;
    this.changed();
  }

  async objects(at) {
    const query = { 'list-type': 2, delimiter: '/', prefix: this.prefix + this.filter, 'max-keys': PAGE, 'encoding-type': 'url', 'continuation-token': at.token };
    const answer = await s3xml('GET', this.bucket, undefined, query, { signal: this.stop.signal });
    const token = own(answer, 'NextContinuationToken');
    return { rows: this.merge(answer, 'Contents'), next: token ? { token } : null };
  }

  async versions(at) {
    const query = { versions: true, delimiter: '/', prefix: this.prefix + this.filter, 'max-keys': PAGE, 'encoding-type': 'url', 'key-marker': at.key, 'version-id-marker': at.version };
    const answer = await s3xml('GET', this.bucket, undefined, query, { signal: this.stop.signal });
    const key = unescape(own(answer, 'NextKeyMarker'));
    return { rows: this.merge(answer, 'Version', 'DeleteMarker'), next: own(answer, 'IsTruncated') === 'true' ? { key, version: own(answer, 'NextVersionIdMarker') || undefined } : null };
  }

  merge(answer, ...names) {
    const rows = [];
    for (const node of answer.documentElement.children) {
      if (names.includes(node.localName)) {
        const key = unescape(own(node, 'Key'));
        // The marker of this folder itself is not shown in it, nor that of a folder whose whole name is searched.
        if (key === this.prefix || (key === this.prefix + this.filter && key.endsWith('/'))) continue;
        rows.push({ key, name: key.slice(this.prefix.length), size: Number(own(node, 'Size')), time: own(node, 'LastModified'), etag: own(node, 'ETag'),
          version: own(node, 'VersionId') || undefined, isMarker: node.localName === 'DeleteMarker', isLatest: own(node, 'IsLatest') !== 'false' });
      } else if (node.localName === 'CommonPrefixes') {
        const key = unescape(value(node, 'Prefix'));
        rows.push({ key, name: key.slice(this.prefix.length), isFolder: true });
      }
    }
    return rows.sort((left, right) => (left.key < right.key ? -1 : left.key > right.key ? 1 : 0));
  }
}

// Every key below a prefix, in pages: [{key, size, version}].
export async function* below(bucket, prefix, { versions = false, signal } = {}) {
  let at = {};
  do {
    const query = versions
      ? { versions: true, prefix, 'max-keys': PAGE, 'encoding-type': 'url', 'key-marker': at.key, 'version-id-marker': at.version }
      : { 'list-type': 2, prefix, 'max-keys': PAGE, 'encoding-type': 'url', 'continuation-token': at.token };
    const answer = await s3xml('GET', bucket, undefined, query, { signal });
    const found = versions ? [...children(answer, 'Version'), ...children(answer, 'DeleteMarker')] : children(answer, 'Contents');
    yield found.map((node) => ({ key: unescape(own(node, 'Key')), size: Number(own(node, 'Size') || 0), version: own(node, 'VersionId') || undefined }));
    const token = own(answer, 'NextContinuationToken');
    at = versions
      ? (own(answer, 'IsTruncated') === 'true' ? { key: unescape(own(answer, 'NextKeyMarker')), version: own(answer, 'NextVersionIdMarker') || undefined } : null)
      : (token ? { token } : null);
  } while (at);
}

