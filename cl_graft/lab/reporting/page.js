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
  told.textContent = `Sorted by ${name}, ${order}`;
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.firstElementChild.addEventListener("click", () => sort(table, column));
  });
}

const told = document.getElementById("told");
const filter = document.getElementById("filter");

function picked(name) {
  return [...filter.querySelectorAll(`input[name=${name}]`)];
}

function narrow() {
  const boxes = picked("strategy");
  const away = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
  for (const part of document.querySelectorAll("main [data-strategy]")) {
    part.classList.toggle("away", away.has(part.dataset.strategy));
  }
  const seed = picked("seed").find((one) => one.checked);
  for (const view of document.querySelectorAll("[data-seed]")) {
    view.classList.toggle("away", view.dataset.seed !== seed.value);
  }
  const said = [];
  if (boxes.length) said.push(`${boxes.length - away.size} of ${boxes.length} strategies`);
  if (seed) said.push(seed.value === "" ? "all seeds" : `seed ${seed.value}`);
  filter.querySelector("summary span").textContent = `: ${said.join(", ")}`;
  told.textContent = `Shown: ${said.join(", ")}`;
}

if (filter) {
  filter.reset(); // a browser may remember what was picked before
  filter.hidden = false;
  narrow();
  filter.addEventListener("change", narrow);
  for (const button of filter.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      for (const box of picked("strategy")) box.checked = button.value === "all";
      narrow();
    });
  }
}

// A mark of a figure says its strategy and, a line each, the values of its points. Without this
// script the browser shows all of them; with it, that of the point next to the pointer.
const tip = document.createElement("p");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);

function boxes(group, count) {
  const path = group.querySelector(":scope > path");
  const found = path ? path.getAttribute("d").match(/-?[\d.]+/g).map(Number) : [];
  if (count === 1 || found.length !== 2 * count) return [group.getBBox()];
  return Array.from({ length: count }, (_, place) => new DOMRect(...found.slice(2 * place, 2 * place + 2)));
}

function distance(point, box) {
  const across = Math.max(box.x - point.x, 0, point.x - box.x - box.width);
  return Math.hypot(across, Math.max(box.y - point.y, 0, point.y - box.y - box.height));
}

for (const svg of document.querySelectorAll("figure svg")) {
  const marks = [...svg.querySelectorAll("g[data-strategy] > title")].map((title) => {
    const [name, ...values] = title.textContent.split("\n");
    const group = title.parentNode;
    title.remove();
    return { group, name, values };
  });
  if (!marks.length) continue;
  const look = (event) => {
    const here = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    let [best, said] = [Infinity, null];
    for (const { group, name, values } of marks) {
      if (group.classList.contains("away")) continue;
      boxes(group, values.length).forEach((box, place) => {
        const far = distance(here, box);
        if (far < best && far <= 12) [best, said] = [far, `${name}, ${values[place]}`];
      });
    }
    tip.hidden = said === null;
    tip.textContent = said;
    const left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 16 + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? event.clientY + 16 : event.clientY - 12 - tip.offsetHeight}px`;
  };
  svg.addEventListener("pointermove", look);
  svg.addEventListener("pointerdown", look);
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
}
