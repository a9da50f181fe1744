// Editors of documents that say what is wrong while one types.

import { escapeXml, xml } from './api.js';
import { h } from './dom.js';

// Where JSON is wrong, with line and column.
export function checkJson(text) {
  try { return { value: JSON.parse(text) }; } catch (error) {
    const before = text.slice(0, wrongAt(text)).split('\n');
    return { error: `Line ${before.length}, column ${before.at(-1).length + 1}: ${error.message.split(/ in JSON|, "|, \.\.\./)[0]}` };
  }
}

// The place at which JSON stops being right. Browsers do not always tell it.
function wrongAt(text) {
  let at = 0;
  const token = (pattern) => { pattern.lastIndex = at; const found = pattern.exec(text); if (found) at += found[0].length; return found; };
  const blank = () => token(/\s*/y);
  const list = (end, entry) => {
    blank();
    if (token(end)) return true;
    for (;;) { if (!entry()) return false; blank(); if (token(end)) return true; if (!token(/,/y)) return false; }
  };
  const string = () => { blank(); return token(/"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y); };
  const value = () => {
    blank();
    if (token(/\{/y)) return list(/\}/y, () => { if (!string()) return false; blank(); return token(/:/y) && value(); });
    if (token(/\[/y)) return list(/\]/y, value);
    return string() || token(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y);
  };
  value();
  blank();
  return at;
}

// What is wrong with a policy beyond its JSON; the server has the last word.
export function checkPolicy(text, { resource = true } = {}) {
  const { value, error } = checkJson(text);
  if (error) return error;
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return 'A policy is an object with Version and Statement.';
  const statements = [value.Statement].flat();
  if (value.Statement === undefined || statements.length === 0) return 'Statement is missing.';
  for (const [index, one] of statements.entries()) {
    const say = (what) => `Statement ${index + 1}: ${what}`;
    if (!one || !['Allow', 'Deny'].includes(one.Effect)) return say('Effect must be Allow or Deny.');
    if (!one.Action && !one.NotAction) return say('Action is missing.');
    if (resource && !one.Resource && !one.NotResource) return say('Resource is missing.');
    const unknown = Object.keys(one).find((name) => !['Sid', 'Effect', 'Action', 'NotAction', 'Resource', 'NotResource', 'Principal', 'NotPrincipal', 'Condition'].includes(name));
    if (unknown) return say(`${unknown} is no part of a statement.`);
  }
  return '';
}

// A text editor that says what is wrong while one types.
export function editor(text, label, check) {
  const note = h('p', { class: 'note', role: 'status' });
  const area = h('textarea', { value: text, 'aria-label': label, spellcheck: false, rows: 11, class: 'mono' });
  const look = () => {
    const problem = area.value.trim() ? check(area.value) : '';
    note.textContent = problem || (area.value.trim() ? 'Looks right.' : '');
    note.className = problem ? 'note error' : 'note good';
    area.setAttribute('aria-invalid', String(Boolean(problem)));
    return problem;
  };
  area.addEventListener('input', look);
  area.addEventListener('keydown', (event) => {
    if (event.key === 'Tab' && !event.shiftKey && !event.ctrlKey && area.selectionStart !== area.selectionEnd) { event.preventDefault(); area.setRangeText('  ', area.selectionStart, area.selectionStart, 'end'); look(); }
  });
  look();
  return { node: h('div', { class: 'editor' }, area, note), area, look };
}

// A document with a line for each element.
export function pretty(text) {
  const parsed = xml(text);
  const walk = (node, depth) => {
    const pad = '  '.repeat(depth);
    if (node.children.length === 0) return `${pad}<${node.localName}${attributes(node)}>${escapeXml(node.textContent)}</${node.localName}>\n`;
    return `${pad}<${node.localName}${attributes(node)}>\n${Array.from(node.children, (child) => walk(child, depth + 1)).join('')}${pad}</${node.localName}>\n`;
  };
  const attributes = (node) => Array.from(node.attributes, (one) => (one.name === 'xmlns' && node !== parsed.documentElement ? '' : ` ${one.name}="${escapeXml(one.value)}"`)).join('');
  return walk(parsed.documentElement, 0).trim();
}

export const checkXml = (text) => { try { xml(text); return ''; } catch (error) { return error.message; } };
