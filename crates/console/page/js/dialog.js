// Dialogs, questions and short messages.

import { add, button, h } from './dom.js';

export function toast(text, kind = '') {
  const node = h('div', { class: `toast ${kind}` }, text);
  document.getElementById('toasts').append(node);
  setTimeout(() => node.remove(), kind === 'bad' ? 9000 : 4000);
}

export const fail = (error) => { if (error.name !== 'AbortError') toast(error.message, 'bad'); };

// Shows a dialog; `build` gets a function that closes it with a value, which this promise returns. The browser keeps the focus inside.
export function dialog(title, build, { wide = false } = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    let answer;
    const node = h('dialog', { class: wide ? 'wide' : '', 'aria-labelledby': 'dialog-title' });
    const close = (value) => { answer = value; node.close(); };
    node.addEventListener('close', () => { node.remove(); before?.focus?.(); resolve(answer); });
    add(node, [h('header', {}, h('h2', { id: 'dialog-title' }, title), button('Close', () => close(), { kind: 'quiet', symbol: 'close', only: true })), build(close)]);
    document.body.append(node);
    node.showModal();
  });
}

export function ask(title, text, action, kind = 'primary') {
  return dialog(title, (close) => h('form', { method: 'dialog', onsubmit: (event) => { event.preventDefault(); close(true); } },
    h('div', { class: 'body' }, text),
    h('footer', {}, button('Cancel', () => close(false)), h('button', { class: `button ${kind}`, type: 'submit', autofocus: true }, action))));
}

// A form in a dialog. `run` gets the form's data; while it throws, the dialog stays and shows why.
export function form(title, fields, action, run, options) {
  return dialog(title, (close) => {
    const error = h('p', { class: 'error', role: 'alert' });
    const submit = h('button', { class: `button ${options?.kind ?? 'primary'}`, type: 'submit' }, action);
    const node = h('form', {
      onsubmit: async (event) => {
        event.preventDefault();
        error.textContent = '';
        submit.disabled = true;
        try {
          close((await run(new FormData(node), node)) ?? true);
        } catch (problem) {
          error.textContent = problem.message;
        }
        submit.disabled = false;
      },
    }, h('div', { class: 'body' }, fields, error), h('footer', {}, button('Cancel', () => close()), submit));
    return node;
  }, options);
}

export async function copy(text, input) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    input?.select();
    document.execCommand('copy');
  }
  toast('Copied');
}
