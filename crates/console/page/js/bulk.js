// Work on many objects: counting and deleting them, renaming, moving and copying.

import { all, escapeXml, keyPath, own, putDocument, s3, strict, xml } from './api.js';
import { button, field, h } from './dom.js';
import { dialog, form, toast } from './dialog.js';
import { bytes, number, visible } from './format.js';
import { below } from './listing.js';

const BATCH = 1000;
const AT_ONCE = 4;

// Deletes a batch; returns what was not deleted.
async function deleteBatch(bucket, objects) {
  // XML has no control characters: such keys are deleted one by one.
  const isPlain = ({ key }) => !/[\u0000-\u0008\u000b-\u001f\ufffe\uffff]/.test(key);
  const failures = [];
  const plain = objects.filter(isPlain);
  if (plain.length > 0) {
    const items = plain.map(({ key, version }) => `<Object><Key>${escapeXml(key)}</Key>${version ? `<VersionId>${escapeXml(version)}</VersionId>` : ''}</Object>`).join('');
    const answer = await putDocument(bucket, undefined, { delete: true }, `<Delete><Quiet>true</Quiet>${items}</Delete>`, { method: 'POST' });
    for (const error of all(xml(await answer.text()), 'Error')) failures.push(`${visible(own(error, 'Key'))}: ${own(error, 'Message') || own(error, 'Code')}`);
  }
  for (const { key, version } of objects.filter((object) => !isPlain(object))) {
    try { await s3('DELETE', bucket, key, { versionId: version }); } catch (error) { failures.push(`${visible(key)}: ${error.message}`); }
  }
  return failures;
}

// Runs `work` in a dialog with its progress; it gets (say, signal).
export function progress(title, work) {
  return dialog(title, (close) => {
    const stop = new AbortController();
    const line = h('p', { role: 'status' }, 'Starting …');
    const bar = h('progress', { 'aria-label': title });
    const end = button('Stop', () => { stop.abort(); close(); });
    work((text, share) => { line.textContent = text; if (share !== undefined) bar.value = share; }, stop.signal)
      .then((value) => close(value ?? true))
      .catch((error) => { if (stop.signal.aborted) return; line.textContent = error.message; line.className = 'error'; line.setAttribute('role', 'alert'); end.textContent = 'Close'; });
    return h('div', {}, h('div', { class: 'body' }, bar, line), h('footer', {}, end));
  });
}

async function count(bucket, chosen, { versions, signal, say }) {
  let [objects, size] = [0, 0];
  for (const item of chosen) {
    if (!item.isFolder && !versions) { objects += 1; size += item.size || 0; continue; }
    for await (const page of below(bucket, item.key, { versions, signal })) {
      const own = item.isFolder ? page : page.filter((found) => found.key === item.key);
      objects += own.length;
      size += own.reduce((sum, found) => sum + found.size, 0);
      say(`${number(objects)} found, ${bytes(size)}`);
      if (!item.isFolder && page.at(-1)?.key !== item.key) break;
    }
  }
  return { objects, size };
}

async function* doomed(bucket, chosen, { versions, signal }) {
  const single = chosen.filter((item) => !item.isFolder && !versions);
  for (let i = 0; i < single.length; i += BATCH) yield single.slice(i, i + BATCH).map(({ key, version }) => ({ key, version }));
  for (const item of chosen) {
    if (!item.isFolder && !versions) continue;
    for await (const page of below(bucket, item.key, { versions, signal })) {
      yield (item.isFolder ? page : page.filter((found) => found.key === item.key)).map(({ key, version }) => ({ key, version: versions ? version : undefined }));
      if (!item.isFolder && page.at(-1)?.key !== item.key) break;
    }
  }
}

// Deletes what was chosen after it was counted. With versions, every version goes and nothing can be restored.
export async function removeAll(bucket, chosen, { versions = false, isVersioned = false, what = 'the selection' } = {}) {
  const counted = await progress('Counting', (say, signal) => count(bucket, chosen, { versions, signal, say }));
  if (!counted) return false;
  const label = `${number(counted.objects)} ${versions ? (counted.objects === 1 ? 'version' : 'versions') : (counted.objects === 1 ? 'object' : 'objects')}`;
  const note = versions ? 'All versions go. They cannot be restored.'
    : isVersioned ? 'The bucket keeps versions: they can be restored.' : 'They cannot be restored.';
  const yes = await dialog(`Delete ${label}?`, (close) => h('form', { onsubmit: (event) => { event.preventDefault(); close(true); } },
    h('div', { class: 'body' }, h('p', { class: 'strong' }, `${label}, ${bytes(counted.size)}, in ${what}.`), h('p', {}, note),
      h('ul', { class: 'names' }, chosen.slice(0, 8).map((item) => h('li', {}, visible(item.key))), chosen.length > 8 && h('li', {}, `and ${number(chosen.length - 8)} more`))),
    h('footer', {}, button('Cancel', () => close(false)), h('button', { class: 'button danger', type: 'submit', autofocus: true }, `Delete ${label}`))));
  if (!yes) return false;
  const failures = [];
  const done = await progress('Deleting', async (say, signal) => {
    let gone = 0;
    for await (const batch of doomed(bucket, chosen, { versions, signal })) {
      if (signal.aborted) return false;
      if (batch.length === 0) continue;
      failures.push(...await deleteBatch(bucket, batch));
      gone += batch.length;
      say(`${number(gone)} of ${number(counted.objects)}`, counted.objects ? gone / counted.objects : 1);
    }
    return true;
  });
  if (failures.length > 0) {
    await dialog('Not everything was deleted', (close) => h('div', {}, h('div', { class: 'body' }, h('ul', { class: 'names' }, failures.slice(0, 20).map((line) => h('li', {}, line)))), h('footer', {}, button('Close', () => close()))));
  } else if (done) toast(`${label} deleted`);
  return true;
}

export const emptyBucket = (bucket) => removeAll(bucket, [{ key: '', isFolder: true }], { versions: true, what: `bucket ${bucket}, which is not empty` });

const source = (bucket, key) => `/${strict(bucket)}/${keyPath(key)}`;

// Whether it was copied: without `replaces` what is there already stays.
async function copyOne(bucket, key, toBucket, to, { replaces, signal }) {
  const headers = { 'x-amz-copy-source': source(bucket, key), ...(replaces ? {} : { 'if-none-match': '*' }) };
  try {
    await s3('PUT', toBucket, to, {}, { headers, signal }).then((answer) => answer.text());
    return true;
  } catch (error) {
    if (error.status === 412 && !replaces) return false;
    throw error;
  }
}

const [MOVED, TAKEN, ONE_BY_ONE] = ['moved', 'taken', 'one by one'];

// Lets the server move it within its bucket, in one step, however much is in a folder, unless the name is taken.
async function moveAtOnce(bucket, key, to, signal) {
  try {
    await s3('PUT', bucket, to, { renameObject: true }, { headers: { 'x-amz-rename-source': source(bucket, key), 'if-none-match': '*' }, signal });
    return MOVED;
  } catch (error) {
    if (error.status === 412) return TAKEN;
    // A bucket that keeps versions renames no folders.
    if (error.code === 'InvalidBucketState') return ONE_BY_ONE;
    throw error;
  }
}

function refuseInside(item, to) {
  if (item.isFolder && to.startsWith(item.key)) throw new Error('A folder cannot go into itself.');
}

// Moves or copies an object or a folder; returns how many objects stayed, since there is one of the same name.
async function transfer(bucket, item, toBucket, to, { isMove, replaces = false, say, signal }) {
  if (!item.isFolder) {
    if (!await copyOne(bucket, item.key, toBucket, to, { replaces, signal })) return 1;
    if (isMove) await s3('DELETE', bucket, item.key, {}, { signal });
    return 0;
  }
  let [done, stayed] = [0, 0];
  for await (const page of below(bucket, item.key, { signal })) {
    const copied = [];
    for (let i = 0; i < page.length; i += AT_ONCE) {
      await Promise.all(page.slice(i, i + AT_ONCE).map(async (found) => {
        if (await copyOne(bucket, found.key, toBucket, to + found.key.slice(item.key.length), { replaces, signal })) copied.push(found);
        else stayed += 1;
      }));
      done += Math.min(AT_ONCE, page.length - i);
      say(`${number(done)} done`);
    }
    if (isMove) { const failures = await deleteBatch(bucket, copied); if (failures.length) throw new Error(failures[0]); }
  }
  return stayed;
}

function tellStayed(stayed) {
  if (stayed > 0) toast(`${number(stayed)} ${stayed === 1 ? 'object stayed: there is one' : 'objects stayed: there are others'} of the same name`, 'bad');
}

const lastPart = (key) => key.replace(/\/$/, '').split('/').pop();

export function rename(bucket, item) {
  const end = item.isFolder ? '/' : '';
  const [name, folder] = [lastPart(item.key), item.key.slice(0, item.key.length - lastPart(item.key).length - end.length)];
  const input = h('input', { name: 'name', value: name, required: true, autofocus: true, spellcheck: false });
  return form(`Rename ${visible(name)}`, [field('New name', input)], 'Rename', async () => {
    const to = folder + input.value + end;
    if (to === item.key) return;
    refuseInside(item, to);
    const way = await moveAtOnce(bucket, item.key, to);
    if (way === TAKEN) throw new Error(`${visible(to)} is there already.`);
    if (way === ONE_BY_ONE) tellStayed(await progress('Renaming', (say, signal) => transfer(bucket, item, bucket, to, { isMove: true, say, signal })));
  });
}

export function move(bucket, items, prefix, buckets) {
  const to = h('select', { name: 'bucket' }, buckets.map((name) => h('option', { value: name, selected: name === bucket }, name)));
  const folder = h('input', { name: 'folder', value: prefix, spellcheck: false, autofocus: true, placeholder: 'folder/' });
  const kind = h('select', { name: 'kind' }, h('option', { value: 'move' }, 'Move'), h('option', { value: 'copy' }, 'Copy'));
  const same = h('select', { name: 'same' }, h('option', { value: 'keep' }, 'Stay as they are'), h('option', { value: 'replace' }, 'Are replaced'));
  return form(`Move or copy ${items.length === 1 ? visible(lastPart(items[0].key)) : `${number(items.length)} items`}`,
    [field('What', kind), field('To bucket', to), field('Into folder', folder, 'Empty for the top of the bucket.'), field('Objects of the same name there', same)], 'Go', async () => {
      const into = folder.value === '' || folder.value.endsWith('/') ? folder.value : `${folder.value}/`;
      const goalOf = (item) => into + lastPart(item.key) + (item.isFolder ? '/' : '');
      const isHere = to.value === bucket;
      const moving = items.filter((item) => !isHere || goalOf(item) !== item.key);
      if (isHere) moving.forEach((item) => refuseInside(item, goalOf(item)));
      const [isMove, replaces] = [kind.value === 'move', same.value === 'replace'];
      const stayed = await progress(isMove ? 'Moving' : 'Copying', async (say, signal) => {
        let count = 0;
        for (const [index, item] of moving.entries()) {
          if (signal.aborted) return count;
          say(`${number(index)} of ${number(moving.length)}`, index / moving.length);
          const goal = goalOf(item);
          // Where the name is taken, each object stays or replaces the one that is there.
          if (isMove && isHere && await moveAtOnce(bucket, item.key, goal, signal) === MOVED) continue;
          count += await transfer(bucket, item, to.value, goal, { isMove, replaces, say, signal });
        }
        return count;
      });
      tellStayed(stayed);
    });
}
