// A managed policy and its versions. Only one of them is in force.

import { iam, own } from './api.js';
import { add, button, h } from './dom.js';
import { ask, fail, toast } from './dialog.js';
import { checkPolicy, editor } from './editor.js';
import { date } from './format.js';
import { allowed, documentOf, every, line, listed } from './iam.js';

// The server keeps no more of a policy.
const VERSIONS_MAX = 5;

const documentOfVersion = async (PolicyArn, VersionId) => documentOf(await iam('GetPolicyVersion', { PolicyArn, VersionId }), 'Document');

export async function policy(one) {
  const { arn: PolicyArn } = one;
  const [can, first] = await Promise.all([allowed(PolicyArn, ['GetPolicyVersion', 'CreatePolicyVersion', 'SetDefaultPolicyVersion', 'DeletePolicyVersion']), documentOfVersion(PolicyArn, one.version)]);
  const edit = editor(first, 'Policy', checkPolicy);
  const [list, title, problem] = [h('ul', { class: 'lines', 'aria-label': 'Versions' }), h('h3', { role: 'status' }), h('p', { class: 'error', role: 'alert' })];
  let [versions, shown, loaded] = [[], one.version, first];

  // The text that somebody is writing stays, whatever is done with versions.
  const draw = async () => {
    const found = await listed(() => every('ListPolicyVersions', { PolicyArn }));
    versions = (found ?? []).map((node) => ({ id: own(node, 'VersionId'), made: own(node, 'CreateDate'), isDefault: own(node, 'IsDefaultVersion') === 'true' }));
    const inForce = versions.find((version) => version.isDefault)?.id;
    if (inForce) one.version = inForce;
    const isGone = versions.length > 0 && !versions.some((version) => version.id === shown);
    title.textContent = `Version ${shown}, ${shown === one.version ? 'in force' : isGone ? 'deleted' : 'without effect'}`;
    list.replaceChildren();
    add(list, versions.map(lineOf));
  };
  const changed = (work, said) => async () => {
    problem.textContent = '';
    try { await work(); await draw(); if (said) toast(said); } catch (error) { fail(error); }
  };
  const lineOf = ({ id, made, isDefault }) => line(h('span', { class: id === shown ? 'strong' : '' }, id), isDefault && h('span', { class: 'badge' }, 'in force'), h('span', { class: 'hint' }, date(made)), h('span', { class: 'grow' }),
    can.GetPolicyVersion && id !== shown && button('Show', () => show(id), { kind: 'small', 'aria-label': `Show ${id}` }),
    can.SetDefaultPolicyVersion && !isDefault && button('Put in force', changed(() => iam('SetDefaultPolicyVersion', { PolicyArn, VersionId: id }), `${id} is in force`), { kind: 'small', 'aria-label': `Put ${id} in force` }),
    can.DeletePolicyVersion && !isDefault && button(`Delete ${id}`, () => remove(id), { kind: 'quiet', symbol: 'trash', only: true }));
  const show = async (id) => {
    if (edit.area.value !== loaded && !(await ask(`Show ${id}?`, 'What you have changed in the text is not saved, and is lost.', 'Show it', 'danger'))) return;
    await changed(async () => {
      loaded = await documentOfVersion(PolicyArn, id);
      shown = id;
      edit.area.value = loaded;
      edit.look();
    })();
  };
  const remove = async (id) => { if (await ask(`Delete ${id}?`, 'It cannot be restored.', 'Delete', 'danger')) await changed(() => iam('DeletePolicyVersion', { PolicyArn, VersionId: id }), `${id} is deleted`)(); };
  const save = async () => {
    if (edit.look() || !edit.area.value.trim()) { edit.area.focus(); return; }
    const saved = edit.area.value;
    problem.textContent = '';
    try {
      const made = await iam('CreatePolicyVersion', { PolicyArn, PolicyDocument: saved, SetAsDefault: 'true' });
      shown = own(made.documentElement.getElementsByTagNameNS('*', 'PolicyVersion')[0], 'VersionId');
      one.version = shown;
      loaded = saved;
      await draw();
      toast('The policy is saved');
    } catch (error) {
      if (error.code !== 'LimitExceeded') { fail(error); return; }
      await draw();
      problem.textContent = tooMany();
    }
  };
  const tooMany = () => {
    const oldest = versions.filter((version) => !version.isDefault).at(-1)?.id;
    const advice = can.DeletePolicyVersion ? `Delete one of them above${oldest ? ` (${oldest} is the oldest that is not in force)` : ''}, then save again: your text stays.` : 'This key may not delete one of them: somebody else has to, before this is saved.';
    return `There are ${VERSIONS_MAX} versions of this policy, and no more are kept. ${advice}`;
  };
  await draw();
  return [h('p', { class: 'hint mono' }, PolicyArn), versions.length > 0 && [h('h3', {}, 'Versions'), h('p', { class: 'hint' }, `Only the one in force, the default version, counts. At most ${VERSIONS_MAX} are kept.`), list], title, edit.node, problem,
    can.CreatePolicyVersion && button('Save as new version', save, { kind: 'primary' })];
}
