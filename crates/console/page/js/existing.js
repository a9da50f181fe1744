// Which names of an upload exist already, and what shall happen to them: asked once for all files of an upload.

import { children, own, s3, s3xml, unescape } from './api.js';
import { button, h } from './dom.js';
import { dialog, toast } from './dialog.js';
import { number, visible } from './format.js';
import { progress } from './bulk.js';

// Up to so many files each is asked for; more are looked for in the listing.
const ASKED_MAX = 50;
const AT_ONCE = 6;
const SHOWN = 8;

// The order of a listing: by the bytes of names, which is that of their code points.
function before(left, right) {
  const [a, b] = [left[Symbol.iterator](), right[Symbol.iterator]()];
  for (;;) {
    const [one, other] = [a.next(), b.next()];
    if (one.done || other.done) return one.done && !other.done;
    if (one.value !== other.value) return one.value.codePointAt(0) < other.value.codePointAt(0);
  }
}

async function asked(bucket, keys, signal) {
  const found = new Set();
  const left = [...keys];
  const worker = async () => {
    for (let key = left.shift(); key !== undefined; key = left.shift()) {
      try { await s3('HEAD', bucket, key, {}, { signal }); found.add(key); } catch (error) {
        // 400: it is there, encrypted with a key of its client, which is not told here.
        if (error.status === 400) found.add(key);
        else if (error.status !== 404) throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return found;
}

// Reads the listing from name to name: what lies between two of them is not read, so it takes no more pages than there are names, and
// one for a thousand names that are all there.
async function listed(bucket, keys, say, signal) {
  const found = new Set();
  const left = [...keys].sort((a, b) => (before(a, b) ? -1 : before(b, a) ? 1 : 0));
  for (let at = 0; at < left.length;) {
    say(`${number(at)} of ${number(left.length)}`, at / left.length);
    const wanted = new Set(left.slice(at));
    // A name without its last character is before it, and hardly anything is between them.
    const after = Array.from(left[at]).slice(0, -1).join('');
    const answer = await s3xml('GET', bucket, undefined, { 'list-type': 2, 'start-after': after || undefined, 'max-keys': 1000, 'encoding-type': 'url' }, { signal });
    const names = children(answer, 'Contents').map((node) => unescape(own(node, 'Key')));
    names.forEach((name) => { if (wanted.has(name)) found.add(name); });
    if (own(answer, 'IsTruncated') !== 'true') break;
    const last = names.at(-1);
    const start = at;
    while (at < left.length && !before(last, left[at])) at += 1;
    // The names between are more than a page: that one is asked for by itself.
    if (at === start) {
      for (const name of await asked(bucket, [left[at]], signal)) found.add(name);
      at += 1;
    }
  }
  return found;
}

function question(title, what, names, answers) {
  return dialog(title, (close) => h('div', {},
    h('div', { class: 'body' }, h('p', {}, what), names.length > 0 && h('ul', { class: 'names' }, names.slice(0, SHOWN).map((name) => h('li', {}, visible(name))), names.length > SHOWN && h('li', {}, `and ${number(names.length - SHOWN)} more`))),
    h('footer', {}, button('Cancel', () => close('cancel')), answers.map(([label, answer, more]) => button(label, () => close(answer), more)))));
}

// The files that shall be uploaded. A bucket that keeps versions loses nothing, so there nothing is asked.
export async function wanted(bucket, files, keepsVersions) {
  if (keepsVersions || files.length === 0) return files;
  const keys = [...new Set(files.map(({ key }) => key))];
  let found;
  try {
    if (keys.length <= ASKED_MAX) found = await asked(bucket, keys);
    else {
      let refused;
      found = await progress('Looking which names exist', (say, signal) => listed(bucket, keys, say, signal).catch((error) => { refused = error; }));
      if (refused) throw refused;
    }
  } catch (error) {
    if (error.status !== 403) throw error;
    const sure = await question('Upload without looking?', 'This key may not see which of these names exist. What exists is replaced, and cannot be restored.', [], [['Upload', 'replace', { kind: 'danger' }]]);
    return sure === 'replace' ? files : [];
  }
  if (!(found instanceof Set)) return [];
  if (found.size === 0) return files;
  const count = `${number(found.size)} of ${number(keys.length)} ${keys.length === 1 ? 'name exists' : 'names exist'}`;
  const answer = await question(`${count}: replace ${found.size === 1 ? 'it' : 'them'}?`, 'The bucket does not keep what is replaced: it cannot be restored.', [...found],
    [...(found.size < keys.length ? [['Skip', 'skip', { autofocus: true }]] : []), ['Replace', 'replace', { kind: 'danger' }]]);
  if (answer === 'replace') return files;
  if (answer === 'skip') return files.filter(({ key }) => !found.has(key));
  toast('Nothing is uploaded');
  return [];
}
