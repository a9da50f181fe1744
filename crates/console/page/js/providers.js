// Identity providers that trust policies of roles may name: OpenID Connect, the only kind that the server has.

import { all, iam, own } from './api.js';
import { add, button, h, icon } from './dom.js';
import { ask, dialog, fail, form, toast } from './dialog.js';
import { lines, text } from './fields.js';
import { date } from './format.js';
import { allowed, every, line, none, numbered, tried } from './iam.js';
import { iamOf, may } from './rights.js';
import { refresh } from './main.js';

const NOTE = 'A provider here is a name that trust policies of roles may use. Tokens are accepted only from the provider in the settings of the server ([oidc]).';
const THUMBPRINTS = 'SHA-1 of a certificate, 40 hexadecimal digits, one a line. The server keeps them for clients of AWS and verifies nothing by them.';
const nameOf = (arn) => arn.slice(arn.indexOf('/') + 1);

export async function providers() {
  const found = (await every('ListOpenIDConnectProviders', {})).map((node) => own(node, 'Arn'));
  const can = await may(Object.fromEntries([['', iamOf('CreateOpenIDConnectProvider', 'oidc-provider/new')], ...found.flatMap((arn) => [[`get ${arn}`, ['iam:GetOpenIDConnectProvider', arn]], [`delete ${arn}`, ['iam:DeleteOpenIDConnectProvider', arn]]])]));
  const node = [h('p', { class: 'hint' }, NOTE), found.length === 0 ? h('div', { class: 'empty' }, icon('people'), h('p', {}, 'There are no identity providers yet.'))
    : h('div', { class: 'card table' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'OpenID Connect provider'), h('td', {}))),
      h('tbody', {}, found.map((arn) => h('tr', {}, h('td', { class: 'strong' }, can[`get ${arn}`] ? h('button', { type: 'button', class: 'link', onclick: () => open(arn) }, nameOf(arn)) : nameOf(arn)),
        h('td', { class: 'actions' }, can[`delete ${arn}`] && button(`Delete ${nameOf(arn)}`, () => remove(arn), { kind: 'quiet', symbol: 'trash', only: true })))))))];
  return { node, action: can[''] && button('New provider', create, { kind: 'primary', symbol: 'plus' }) };
}

async function create() {
  const url = text('Address', '', { type: 'url', required: true, autofocus: true, placeholder: 'https://id.example.com/realms/main', hint: 'The issuer (iss) of its tokens.' });
  const clients = lines('Client ids', [], 'The audience (aud) of its tokens, one a line.');
  const thumbprints = lines('Thumbprints', [], THUMBPRINTS);
  const done = await form('New OpenID Connect provider', [url.node, clients.node, thumbprints.node], 'Make', () =>
    iam('CreateOpenIDConnectProvider', { Url: url.get(), ...numbered('ClientIDList', clients.get()), ...numbered('ThumbprintList', thumbprints.get()) }).then(() => true));
  if (done) refresh();
}

async function remove(arn) {
  if (!(await ask(`Delete ${nameOf(arn)}?`, 'Roles that trust it can no longer be taken with its tokens.', 'Delete', 'danger'))) return;
  try {
    await iam('DeleteOpenIDConnectProvider', { OpenIDConnectProviderArn: arn });
    toast(`${nameOf(arn)} is deleted`);
    refresh();
  } catch (error) { fail(error); }
}

const open = (arn) => dialog(nameOf(arn), () => {
  const body = h('div', { class: 'body' });
  const fill = async () => {
    try { const built = await details(arn, fill); body.replaceChildren(); add(body, [built]); } catch (error) { body.replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message)); }
  };
  fill();
  return body;
}, { wide: true });

async function details(OpenIDConnectProviderArn, fill) {
  const [answer, can] = await Promise.all([iam('GetOpenIDConnectProvider', { OpenIDConnectProviderArn }),
    allowed(OpenIDConnectProviderArn, ['AddClientIDToOpenIDConnectProvider', 'RemoveClientIDFromOpenIDConnectProvider', 'UpdateOpenIDConnectProviderThumbprint'])]);
  const of = (name) => all(all(answer, name)[0], 'member').map((node) => node.textContent);
  const client = text('New client id', '');
  const add_ = tried(async () => { if (client.get()) await iam('AddClientIDToOpenIDConnectProvider', { OpenIDConnectProviderArn, ClientID: client.get() }); }, fill);
  const drop = (ClientID) => tried(() => iam('RemoveClientIDFromOpenIDConnectProvider', { OpenIDConnectProviderArn, ClientID }), fill);
  const thumbprints = lines('Thumbprints', of('ThumbprintList'), THUMBPRINTS);
  const save = async () => { try { await iam('UpdateOpenIDConnectProviderThumbprint', { OpenIDConnectProviderArn, ...numbered('ThumbprintList', thumbprints.get()) }); toast('Thumbprints are saved'); } catch (error) { fail(error); } };
  return [h('dl', {}, h('dt', {}, 'ARN'), h('dd', { class: 'mono' }, OpenIDConnectProviderArn), h('dt', {}, 'Address'), h('dd', {}, all(answer, 'Url')[0]?.textContent), h('dt', {}, 'Made'), h('dd', {}, date(all(answer, 'CreateDate')[0]?.textContent))),
    h('h3', {}, 'Client ids'), none(of('ClientIDList').map((id) => line(h('span', { class: 'mono' }, id), h('span', { class: 'grow' }), can.RemoveClientIDFromOpenIDConnectProvider && button(`Remove ${id}`, drop(id), { kind: 'quiet', symbol: 'close', only: true }))), 'None.'),
    can.AddClientIDToOpenIDConnectProvider && [client.node, h('p', {}, button('Add client id', add_, { symbol: 'plus' }))],
    can.UpdateOpenIDConnectProviderThumbprint ? [thumbprints.node, h('p', {}, button('Save thumbprints', save, { kind: 'primary' }))] : [h('h3', {}, 'Thumbprints'), none(of('ThumbprintList').map((one) => line(h('span', { class: 'mono' }, one))), 'None.')]];
}
