// Builds elements. Text is always a text node, so a name is never read as markup.

export function h(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else if (name in node && !name.startsWith('aria') && name !== 'list' && name !== 'role') node[name] = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, String(value));
  for (const child of children) node.append(child);
  return node;
}

const ICONS = {
  bucket: 'M4 6h16l-2 14H6zM4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3',
  folder: 'M3 6h6l2 2h10v11H3z',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  live: 'M3 12h4l3-8 4 16 3-8h4',
  people: 'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8M2 21c0-4 3-7 7-7s7 3 7 7M16 3.5a4 4 0 0 1 0 7M18 14.500c2.500.900 4 3.300 4 6.500',
  upload: 'M12 16V4M7 9l5-5 5 5M4 20h16',
  download: 'M12 4v12M7 11l5 5 5-5M4 20h16',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14',
  link: 'M10 14a4 4 0 0 0 6 0l4-4a4.200 4.200 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-4 4a4.200 4.200 0 0 0 6 6l1-1',
  pencil: 'M4 20l1-5L16 4l4 4L9 19z',
  gear: 'M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6M12 2v4M12 18v4M2 12h4M18 12h4M5 5l3 3M16 16l3 3M19 5l-3 3M8 16l-3 3',
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  refresh: 'M20 11a8 8 0 1 0-2 6M20 5v6h-6',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 4l13 8-13 8z',
  moon: 'M20 14A8.500 8.500 0 0 1 10 4a8.500 8.500 0 1 0 10 10z',
  out: 'M10 4H4v16h6M14 8l4 4-4 4M18 12H9',
  clock: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 7v5l3 2',
};

export function icon(name) {
  return svg('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true', focusable: 'false' }, svg('path', { d: ICONS[name] }));
}

export function button(label, onclick, { kind = '', symbol, only = false, ...more } = {}) {
  return h('button', { type: 'button', class: `button ${kind}${only ? ' only' : ''}`, onclick, 'aria-label': only ? label : null, title: only ? label : null, ...more },
    symbol && icon(symbol), only ? null : h('span', {}, label));
}

export function field(label, input, hint) {
  return h('label', { class: 'field' }, h('span', { class: 'label' }, label), input, hint && h('span', { class: 'hint' }, hint));
}
