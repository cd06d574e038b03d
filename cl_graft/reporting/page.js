"use strict";
const root = document.documentElement;
const theme = document.getElementById("theme");
const system = window.matchMedia("(prefers-color-scheme: dark)");

function kept() {
  try { return localStorage.getItem("cl-graft-theme"); } catch { return null; }
}

function show(name) {
  const dark = (name || (system.matches ? "dark" : "light")) === "dark";
  if (name) root.dataset.theme = name;
  theme.setAttribute("aria-pressed", String(dark));
}

theme.hidden = false;
show(kept());
system.addEventListener("change", () => show(root.dataset.theme));
theme.addEventListener("click", () => {
  const name = theme.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  show(name);
  try { localStorage.setItem("cl-graft-theme", name); } catch { /* a page opened from a file may not */ }
});

function key(row, column) {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : null;
}

function sort(table, column) {
  const heads = table.tHead.rows[0].cells;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const numbers = rows.some((row) => key(row, column) !== null);
  const first = numbers ? "descending" : "ascending";
  const now = heads[column].getAttribute("aria-sort");
  const order = now === null ? first : now === "ascending" ? "descending" : "ascending";
  const turn = order === "ascending" ? 1 : -1;
  rows.sort((one, other) => {
    if (!numbers) return turn * one.cells[column].textContent.localeCompare(other.cells[column].textContent);
    const [a, b] = [key(one, column), key(other, column)];
    if (a === null || b === null) return (a === null) - (b === null);
    return turn * (a - b);
  });
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", order);
  body.append(...rows);
  const name = heads[column].firstElementChild.firstChild.textContent;
  document.getElementById("told").textContent = `Sorted by ${name}, ${order}`;
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.firstElementChild.addEventListener("click", () => sort(table, column));
  });
}
