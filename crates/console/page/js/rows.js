// A table of any length of which only the visible rows exist. Keyboard and screen reader work by the table's active row.

import { h } from './dom.js';

const ROW = 36;
// Browsers lay out at most about 33 million pixels; a longer table moves faster than its scrollbar.
const HEIGHT_MAX = 8_000_000;

export class Rows {
  // source: { count(), isWhole(), more(), cells(index) → nodes or null, columns: [{label, class}], open(index), toggle(index), isMarked(index), key(event, index) }
  constructor(source, label) {
    this.source = source;
    this.at = 0;
    this.active = 0;
    this.set = -1;
    this.asking = false;
    this.window = h('div', { class: 'window', role: 'rowgroup' });
    this.space = h('div', { class: 'space', role: 'presentation' }, this.window);
    const header = h('div', { class: 'row head', role: 'row', 'aria-rowindex': 1 },
      source.columns.map((column) => h('div', { class: `cell ${column.class ?? ''}`, role: 'columnheader' }, column.label)));
    this.scroller = h('div', { class: 'scroller', role: 'presentation', onscroll: () => this.scrolled(), onwheel: (event) => this.wheel(event) }, this.space);
    this.node = h('div', { class: 'rows', role: 'grid', 'aria-label': label, 'aria-multiselectable': 'true', tabindex: 0,
      onkeydown: (event) => this.keydown(event) }, h('div', { role: 'rowgroup' }, header), this.scroller);
    this.scroller.addEventListener('click', (event) => this.click(event));
    this.scroller.addEventListener('dblclick', (event) => { const index = this.indexOf(event); if (index !== null) source.open(index, event); });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.scroller);
  }

  close() { this.observer.disconnect(); }

  get seen() { return Math.max(1, this.scroller.clientHeight / ROW); }

  scaled() { return this.source.count() * ROW > HEIGHT_MAX; }

  // The index at the top, from the place of the scrollbar.
  scrolled() {
    const top = this.scroller.scrollTop;
    if (Math.abs(top - this.set) >= 1) {
      const room = this.space.offsetHeight - this.scroller.clientHeight;
      this.at = room > 0 ? (top / room) * Math.max(0, this.source.count() - this.seen) : 0;
      this.set = top;
    }
    this.draw();
  }

  wheel(event) {
    if (!this.scaled() || event.ctrlKey) return;
    event.preventDefault();
    this.moveTo(this.at + (event.deltaMode === 1 ? event.deltaY : event.deltaY / ROW));
  }

  moveTo(index) {
    this.at = Math.min(Math.max(0, index), Math.max(0, this.source.count() - this.seen));
    this.draw();
  }

  place() {
    const count = this.source.count();
    const height = Math.min(count * ROW, HEIGHT_MAX);
    if (this.space.style.height !== `${height}px`) this.space.style.height = `${height}px`;
    const room = Math.max(0, height - this.scroller.clientHeight);
    this.at = Math.min(this.at, Math.max(0, count - this.seen));
    const wanted = count > this.seen ? (this.at / (count - this.seen)) * room : 0;
    if (Math.abs(this.scroller.scrollTop - wanted) >= 1) this.scroller.scrollTop = wanted;
    this.set = this.scroller.scrollTop;
  }

  draw() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.drawNow(); });
  }

  drawNow() {
    const { source } = this;
    const count = source.count();
    this.place();
    const first = Math.floor(this.at);
    const last = Math.min(count, first + Math.ceil(this.seen) + 2);
    this.node.setAttribute('aria-rowcount', source.isWhole() ? count + 1 : -1);
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.row(index));
    this.window.replaceChildren(...rows);
    this.window.style.transform = `translateY(${this.scroller.scrollTop - (this.at - first) * ROW}px)`;
    this.node.setAttribute('aria-activedescendant', this.active >= first && this.active < last ? `row-${this.active}` : '');
    if (last >= count - 200) this.ask();
  }

  row(index) {
    const marked = this.source.isMarked(index);
    const cells = this.source.cells(index);
    const classes = ['row', index === this.active ? 'active' : '', marked ? 'marked' : '', cells ? '' : 'waiting'].join(' ');
    return h('div', { class: classes, role: 'row', id: `row-${index}`, 'aria-rowindex': index + 2, 'aria-selected': String(Boolean(marked)), 'data-index': index },
      (cells ?? this.source.columns.map(() => '')).map((cell, column) =>
        h('div', { class: `cell ${this.source.columns[column].class ?? ''}`, role: 'gridcell' }, cell)));
  }

  async ask() {
    if (this.asking || this.source.isWhole()) return;
    this.asking = true;
    try { await this.source.more(); } catch { this.asking = false; return; }
    this.asking = false;
    this.draw();
  }

  // Loads names until the end, or until `stop` says so.
  async toEnd(stop = () => false) {
    while (!this.source.isWhole() && !stop()) await this.source.more();
    this.active = Math.max(0, this.source.count() - 1);
    this.moveTo(this.source.count());
  }

  indexOf(event) {
    const row = event.target.closest?.('[data-index]');
    return row ? Number(row.dataset.index) : null;
  }

  click(event) {
    const index = this.indexOf(event);
    if (index === null) return;
    this.active = index;
    if (event.target.closest('.name')) { event.preventDefault(); this.source.open(index, event); } else this.source.toggle(index, event);
    this.draw();
  }

  keydown(event) {
    if (event.target !== this.node) return;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: Math.floor(this.seen), PageUp: -Math.floor(this.seen) };
    if (event.key in steps) this.activate(this.active + steps[event.key], event.shiftKey);
    else if (event.key === 'Home') this.activate(0);
    else if (event.key === 'End') { if (event.ctrlKey) this.toEnd(); else this.activate(this.source.count() - 1); }
    else if (event.key === 'Enter') this.source.open(this.active, event);
    else if (event.key === ' ') { this.source.toggle(this.active, event); this.draw(); }
    else if (!this.source.key?.(event, this.active)) return;
    event.preventDefault();
  }

  activate(index, mark) {
    this.active = Math.min(Math.max(0, index), Math.max(0, this.source.count() - 1));
    if (mark) this.source.toggle(this.active, { shiftKey: true });
    if (this.active < this.at) this.moveTo(this.active);
    else if (this.active > this.at + this.seen - 1) this.moveTo(this.active - this.seen + 1);
    else this.draw();
  }
}
