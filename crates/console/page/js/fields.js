// Fields and lists of fields, from which the forms of settings are made, and the XML that they become.

import { children, escapeXml } from './api.js';
import { button, field, h } from './dom.js';

// Elements without content are left out.
export const leaf = (name, text) => (text === '' || text === null || text === undefined ? '' : `<${name}>${escapeXml(text)}</${name}>`);
export const wrap = (name, inside) => (inside ? `<${name}>${inside}</${name}>` : '');

// The text at a path of elements, or nothing.
export function at(node, ...names) {
  for (const name of names) { node = node && children(node, name)[0]; }
  return node?.textContent ?? '';
}

export const each = (node, name) => (node ? children(node, name) : []);

export function text(label, value, { hint, ...more } = {}) {
  const input = h('input', { value: value ?? '', spellcheck: false, ...more });
  return { node: field(label, input, hint), get: () => input.value.trim(), input };
}

export function whole(label, value, { min = 1, ...more } = {}) { return text(label, value, { type: 'number', min, step: 1, ...more }); }

export function select(label, options, value, more = {}) {
  const input = h('select', more, options.map(([name, shown]) => h('option', { value: name, selected: name === value }, shown)));
  return { node: field(label, input), get: () => input.value, input };
}

export function check(label, checked) {
  const input = h('input', { type: 'checkbox', checked });
  return { node: h('label', { class: 'check' }, input, label), get: () => input.checked };
}

// One entry a line.
export function lines(label, values, hint) {
  const input = h('textarea', { value: values.join('\n'), rows: Math.min(6, values.length + 1), spellcheck: false, class: 'mono' });
  return { node: field(label, input, hint ?? 'One a line.'), get: () => input.value.split('\n').map((line) => line.trim()).filter(Boolean) };
}

export const more = (label, ...inside) => h('details', {}, h('summary', {}, label), inside);

// A list whose entries are made by `build(item)`: {node, xml}.
export function repeat(items, build, { add, remove, legend }) {
  const [list, rows] = [h('div', { class: 'rules' }), []];
  const append = (item) => {
    const row = build(item);
    const box = h('fieldset', {}, h('legend', {}, legend), row.node, button(remove, () => { rows.splice(rows.indexOf(row), 1); box.remove(); }, { kind: 'quiet', symbol: 'trash', only: true }));
    rows.push(row);
    list.append(box);
    return box;
  };
  items.forEach(append);
  return { node: [list, h('p', {}, button(add, () => append(undefined).querySelector('input, select, textarea').focus(), { symbol: 'plus' }))], xml: () => rows.map((row) => row.xml()).join('') };
}
