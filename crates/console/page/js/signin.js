// The page of those who are not signed in.

import { post } from './api.js';
import { field, h, svg } from './dom.js';

export function signIn(done) {
  const error = h('p', { class: 'error', role: 'alert' });
  const submit = h('button', { class: 'button primary', type: 'submit' }, 'Sign in');
  const [key, secret] = [
    h('input', { name: 'key', autocomplete: 'username', required: true, spellcheck: false, autofocus: true }),
    h('input', { name: 'secret', type: 'password', autocomplete: 'current-password', required: true }),
  ];
  const token = h('input', { name: 'token', autocomplete: 'off', spellcheck: false });
  const form = h('form', {
    class: 'card',
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      error.textContent = '';
      try {
        await post('api/sign-in', { accessKey: key.value.trim(), secretKey: secret.value, token: token.value.trim() });
        secret.value = '';
        done();
      } catch (problem) {
        error.textContent = problem.message;
        secret.select();
      }
      submit.disabled = false;
    },
  }, h('div', { class: 'brand' }, svg('svg', { viewBox: '0 0 32 32', class: 'logo', 'aria-hidden': 'true' },
    svg('rect', { width: 32, height: 32, rx: 7 }), svg('path', { d: 'M7 24V9l9 8 9-8v15' })), h('h1', {}, 'margay')),
  h('p', { class: 'hint' }, 'Sign in with an access key. What you may do here is what the key may do.'),
  field('Access key', key), field('Secret key', secret),
  h('details', {}, h('summary', {}, 'Temporary key'), field('Session token', token)), error, submit);
  return h('main', { id: 'main', class: 'signin' }, form);
}
