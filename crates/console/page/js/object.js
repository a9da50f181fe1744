// One object: what is in it, what is known of it, its tags, versions and links.

import { accessList } from './acl.js';
import { all, escapeXml, own, post, putDocument, rawUrl, s3, s3xml, target, keyPath, strict } from './api.js';
import { add, button, field, h } from './dom.js';
import { ask, copy, fail, toast } from './dialog.js';
import { bytes, date, visible } from './format.js';
import { preview } from './preview.js';
import { bucketOf, may, objectOf } from './rights.js';
import { state } from './main.js';

export const download = (bucket, key, version) => {
  const anchor = h('a', { href: rawUrl(bucket, key, 'save', version), download: '' });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
};

const TABS = { Preview: showPreview, Details: showDetails, Tags: showTags, Versions: showVersions, Access: showAccess, Share: showShare };
const NEEDS = { Preview: 'gets', Details: 'gets', Tags: 'tags', Versions: 'versions', Access: 'access', Share: 'gets' };

// A panel for an object; `changed` is called when its listing must be read again.
export function panel(bucket, item, { close, changed, tab = 'Preview' }) {
  const body = h('div', { class: 'body', role: 'tabpanel', id: 'object-panel', tabindex: 0 });
  const tabs = Object.keys(TABS).map((name) => h('button', { type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': 'object-panel', onclick: () => open(name) }, name));
  const list = h('div', { role: 'tablist', class: 'tabs', 'aria-label': 'About the object', onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const seen = tabs.filter((one) => !one.hidden);
    const next = seen[(seen.indexOf(document.activeElement) + step + seen.length) % seen.length];
    next.focus();
    next.click();
  } }, tabs);
  let asked = 0;
  async function open(name) {
    asked += 1;
    const mine = asked;
    for (const one of tabs) { one.setAttribute('aria-selected', String(one.textContent === name)); one.tabIndex = one.textContent === name ? 0 : -1; }
    body.setAttribute('aria-labelledby', `tab-${name}`);
    body.replaceChildren(h('p', { class: 'hint' }, 'Loading …'));
    let shown;
    try { shown = await TABS[name](bucket, item, { changed, rights: await rights, again: () => open(name) }); } catch (error) { shown = h('p', { class: 'error', role: 'alert' }, error.status === 403 ? 'This key may not read this.' : error.message); }
    if (mine === asked) { body.replaceChildren(); add(body, [shown]); }
  }
  const of = (action) => objectOf(`s3:${action}`, bucket, item.key);
  const rights = may({ gets: of(item.version ? 'GetObjectVersion' : 'GetObject'), tags: of('GetObjectTagging'), putsTags: of('PutObjectTagging'), puts: of('PutObject'), getsVersions: of('GetObjectVersion'), deletesVersions: of('DeleteObjectVersion'), versions: bucketOf('s3:ListBucketVersions', bucket),
    access: of(item.version ? 'GetObjectVersionAcl' : 'GetObjectAcl'), putsAccess: of(item.version ? 'PutObjectVersionAcl' : 'PutObjectAcl') });
  const save = button('Download', () => download(bucket, item.key, item.version), { kind: 'quiet', symbol: 'download', only: true, hidden: true });
  rights.then((known) => {
    save.hidden = !known.gets;
    for (const one of tabs) one.hidden = !known[NEEDS[one.textContent]];
    const first = tabs.find((one) => !one.hidden);
    if (!first) body.replaceChildren(h('p', { class: 'hint' }, 'This key may not read this object.'));
    else if (asked === 0) open(known[NEEDS[tab]] ? tab : first.textContent);
  });
  const name = item.key.split('/').pop();
  return h('aside', { class: 'panel', 'aria-label': `Object ${visible(name)}`, onkeydown: (event) => { if (event.key === 'Escape') { event.stopPropagation(); close(); } } },
    h('header', {}, h('h2', { title: visible(item.key) }, visible(name)),
      save, button('Close', close, { kind: 'quiet', symbol: 'close', only: true })), list, body);
}

const head = async (bucket, item) => (await s3('HEAD', bucket, item.key, { versionId: item.version })).headers;

async function showPreview(bucket, item) {
  if (item.isMarker) return h('p', { class: 'hint' }, 'A delete marker: the object was deleted here.');
  const headers = await head(bucket, item);
  const size = Number(headers.get('content-length'));
  return preview(bucket, item.key, { type: headers.get('content-type'), size: Number.isFinite(size) && size > 0 ? size : item.size, version: item.version });
}

async function showDetails(bucket, item) {
  const headers = await head(bucket, item);
  const rows = [['Key', visible(item.key)], ['Size', `${bytes(item.size)} (${item.size} bytes)`], ['Changed', date(item.time)], ['ETag', item.etag]];
  for (const [name, value] of [...headers].sort()) {
    if (name === 'content-type' || name.startsWith('x-amz-') && !['x-amz-request-id', 'x-amz-id-2'].includes(name)) rows.push([name, visible(value)]);
  }
  const uri = `s3://${bucket}/${item.key}`;
  return [h('dl', {}, rows.map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])), button('Copy S3 URI', () => copy(uri))];
}

export function pairs(found, label) {
  const line = (name = '', value = '') => {
    const node = h('div', { class: 'pair' }, h('input', { value: name, 'aria-label': 'Name', placeholder: 'name' }), h('input', { value, 'aria-label': 'Value', placeholder: 'value' }),
      button('Remove', () => node.remove(), { kind: 'quiet', symbol: 'close', only: true }));
    return node;
  };
  const list = h('div', { class: 'pairs' }, found.map(([name, value]) => line(name, value)));
  const node = h('div', { role: 'group', 'aria-label': label }, list, button('Add a tag', () => { const next = line(); list.append(next); next.firstChild.focus(); }, { symbol: 'plus' }));
  const values = () => Array.from(list.children, (row) => Array.from(row.querySelectorAll('input'), (input) => input.value)).filter(([name]) => name);
  return { node, values };
}

export const tagging = (values) => `<Tagging><TagSet>${values.map(([name, value]) => `<Tag><Key>${escapeXml(name)}</Key><Value>${escapeXml(value)}</Value></Tag>`).join('')}</TagSet></Tagging>`;

async function showTags(bucket, item, { rights }) {
  const answer = await s3xml('GET', bucket, item.key, { tagging: true, versionId: item.version });
  const edit = pairs(all(answer, 'Tag').map((tag) => [own(tag, 'Key'), own(tag, 'Value')]), 'Tags');
  const save = async () => {
    try { await putDocument(bucket, item.key, { tagging: true, versionId: item.version }, tagging(edit.values())); toast('Tags are saved'); } catch (error) { fail(error); }
  };
  return [edit.node, rights.putsTags && h('p', {}, button('Save tags', save, { kind: 'primary' }))];
}

async function showVersions(bucket, item, { changed, rights, again }) {
  const answer = await s3xml('GET', bucket, undefined, { versions: true, prefix: item.key, 'max-keys': 200 });
  const found = Array.from(answer.documentElement.children).filter((node) => ['Version', 'DeleteMarker'].includes(node.localName) && own(node, 'Key') === item.key);
  const restore = async (version) => {
    try {
      const source = `/${strict(bucket)}/${keyPath(item.key)}?versionId=${strict(version)}`;
      await (await s3('PUT', bucket, item.key, {}, { headers: { 'x-amz-copy-source': source } })).text();
      toast('The version is the newest again');
      changed();
      again();
    } catch (error) { fail(error); }
  };
  const remove = async (version, what) => {
    if (!(await ask(`Delete this ${what}?`, what === 'delete marker' ? 'The version before it is the newest again.' : 'It cannot be restored.', 'Delete', 'danger'))) return;
    try { await s3('DELETE', bucket, item.key, { versionId: version }); changed(); again(); } catch (error) { fail(error); }
  };
  return h('ol', { class: 'versions' }, found.map((node, index) => {
    const [version, isMarker] = [own(node, 'VersionId'), node.localName === 'DeleteMarker'];
    const label = `${isMarker ? 'Deleted' : bytes(Number(own(node, 'Size')))}`;
    return h('li', {}, h('div', {}, h('span', { class: 'strong' }, label), own(node, 'IsLatest') === 'true' && h('span', { class: 'badge' }, 'newest'),
      h('div', { class: 'hint' }, date(own(node, 'LastModified'))), h('div', { class: 'hint mono' }, version)), h('span', { class: 'grow' }),
    !isMarker && rights.getsVersions && button(`Download version ${index + 1}`, () => download(bucket, item.key, version), { kind: 'quiet', symbol: 'download', only: true }),
    !isMarker && rights.puts && rights.getsVersions && own(node, 'IsLatest') !== 'true' && button('Restore', () => restore(version), { kind: 'small', 'aria-label': `Restore version ${index + 1}` }),
    rights.deletesVersions && button(`Delete version ${index + 1}`, () => remove(version, isMarker ? 'delete marker' : 'version'), { kind: 'quiet', symbol: 'trash', only: true }));
  }));
}

function showAccess(bucket, item, { rights, again }) {
  if (item.isMarker) return h('p', { class: 'hint' }, 'A delete marker has no access list.');
  return accessList(bucket, { key: item.key, version: item.version, isWritable: rights.putsAccess }, again);
}

// Where others reach the S3 door: as this page does, unless told otherwise.
function defaultOrigin() {
  const { s3Scheme, s3Port } = state.session;
  const known = localStorage.getItem('share-origin');
  return known ?? `${s3Scheme}://${location.hostname}${s3Port ? `:${s3Port}` : ''}`;
}

async function showShare(bucket, item) {
  const time = h('select', {}, [[3600, '1 hour'], [14400, '4 hours'], [86400, '1 day'], [604800, '7 days']].map(([seconds, text]) => h('option', { value: seconds }, text)));
  const origin = h('input', { value: defaultOrigin(), spellcheck: false, inputMode: 'url' });
  const out = h('input', { readOnly: true, class: 'mono', 'aria-label': 'Link', onclick: () => out.select() });
  const result = h('div', { hidden: true }, field('Link', out), button('Copy link', () => copy(out.value, out), { symbol: 'link' }));
  const make = async () => {
    try {
      const { url } = await post('api/share', { origin: origin.value.trim().replace(/\/$/, ''), target: target(bucket, item.key, { versionId: item.version }), seconds: Number(time.value) });
      if (origin.value === defaultOrigin()) localStorage.removeItem('share-origin'); else localStorage.setItem('share-origin', origin.value.trim());
      out.value = url;
      result.hidden = false;
    } catch (error) { fail(error); }
  };
  return [h('p', { class: 'hint' }, 'Whoever has the link can download this object with the rights of your key, until it expires or the key is disabled.'),
    field('Valid for', time), field('Address of the server for the receiver', origin), h('p', {}, button('Make link', make, { kind: 'primary' })), result];
}
