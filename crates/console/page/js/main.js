// Starts the page: session, frame, routes.

import { call, post } from './api.js';
import { button, h, icon, svg } from './dom.js';
import { fail } from './dialog.js';
import { begin, iamOf, may, server } from './rights.js';
import { signIn } from './signin.js';

const app = document.getElementById('app');
export const state = { session: null, rights: {} };
let leave = null;

const theme = {
  get: () => localStorage.getItem('theme'),
  apply() {
    const wish = theme.get();
    if (wish) document.documentElement.dataset.theme = wish;
    else delete document.documentElement.dataset.theme;
  },
  turn() {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    localStorage.setItem('theme', dark ? 'light' : 'dark');
    theme.apply();
  },
};

// A hash is `#/page/part/part?query`, each part escaped.
export const link = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;
export const go = (...parts) => { location.hash = link(...parts); };

const ROUTES = {
  '': async () => (await import('./buckets.js')).buckets(state),
  browse: async (bucket, prefix) => (await import('./browse.js')).browse(state, bucket, prefix ?? ''),
  settings: async (bucket) => (await import('./settings.js')).settings(state, bucket),
  live: async (part) => (await import('./live.js')).live(state, part),
  people: async (kind, name) => (await import('./people.js')).people(state, kind, name),
};

function frame(content, active) {
  const item = (name, label, symbol, href) => h('a', { href, class: 'item', 'aria-current': active === name ? 'page' : null }, icon(symbol), h('span', {}, label));
  const { session } = state;
  return [
    h('nav', { class: 'side', 'aria-label': 'Main' },
      h('a', { class: 'brand', href: '#/', 'aria-label': 'margay, buckets' }, svg('svg', { viewBox: '0 0 32 32', class: 'logo', 'aria-hidden': 'true' },
        svg('rect', { width: 32, height: 32, rx: 7 }), svg('path', { d: 'M7 24V9l9 8 9-8v15' })), h('span', {}, 'margay')),
      item('', 'Buckets', 'bucket', '#/'),
      ['status', 'trace', 'mounts', 'scrub', 'compact', 'fsck'].some((need) => state.rights[need]) && item('live', 'Live', 'live', '#/live'),
      ['users', 'groups', 'roles', 'policies', 'providers', 'simulate'].some((need) => state.rights[need]) && item('people', 'Access', 'people', '#/people'),
      h('div', { class: 'who' },
        h('div', { class: 'key', title: session.arn }, session.accessKey),
        h('div', { class: 'hint' }, session.root ? 'root' : session.arn.split('/').pop(), ' · ', session.version),
        h('div', { class: 'tools' }, button('Light or dark', theme.turn, { kind: 'quiet', symbol: 'moon', only: true }),
          button('Sign out', signOut, { kind: 'quiet', symbol: 'out', only: true })))),
    h('main', { id: 'main', tabindex: -1 }, content),
  ];
}

async function show() {
  leave?.();
  leave = null;
  const parts = location.hash.replace(/^#\/?/, '').split('/').map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const [page, ...rest] = parts;
  const route = Object.hasOwn(ROUTES, page) ? ROUTES[page] : ROUTES[''];
  const asked = location.hash;
  try {
    const shown = await route(...rest);
    if (asked !== location.hash || !state.session) { shown.leave?.(); return; }
    leave = shown.leave ?? null;
    document.title = `${shown.title} · margay`;
    app.replaceChildren(...frame(shown.node, page === 'browse' || page === 'settings' ? '' : page));
    shown.ready?.();
  } catch (error) {
    if (!state.session) return;
    app.replaceChildren(...frame(h('div', { class: 'page' }, h('h1', {}, 'This page cannot be shown'), h('p', { class: 'error' }, error.message)), page));
  }
}

function signedOut() {
  if (!state.session && app.querySelector('.signin')) return;
  leave?.();
  leave = null;
  state.session = null;
  document.querySelectorAll('dialog').forEach((open) => open.close());
  document.title = 'Sign in · margay';
  app.replaceChildren(signIn(start));
  app.querySelector('input').focus();
}

async function signOut() {
  await import('./upload.js').then(({ cancelAll }) => cancelAll()).catch(() => {});
  await post('api/sign-out', {}).catch(() => {});
  location.hash = '';
  signedOut();
}

// What decides which pages there are.
const RIGHTS = () => ({ status: server('Status'), trace: server('Trace'), mounts: server('ListMounts'), unmount: server('Unmount'), scrub: server('Scrub'), compact: server('Compact'), fsck: server('Check'),
  usage: server('ListBuckets'), simulate: server('SimulatePolicy'), users: iamOf('ListUsers', 'user/'), groups: iamOf('ListGroups', 'group/'), roles: iamOf('ListRoles', 'role/'), policies: iamOf('ListPolicies', 'policy/'), providers: iamOf('ListOpenIDConnectProviders', 'root') });

async function start() {
  try {
    const session = await (await call('api/session')).json();
    begin(session);
    state.rights = await may(RIGHTS());
    state.session = session;
  } catch (error) {
    if (error.status !== 401) fail(error);
    signedOut();
    return;
  }
  show();
}

export const refresh = show;
theme.apply();
document.addEventListener('signed-out', signedOut);
addEventListener('hashchange', () => { if (state.session) show(); });
document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); document.getElementById('main')?.focus(); });
start();
