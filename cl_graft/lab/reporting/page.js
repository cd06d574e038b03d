"use strict";
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

function narrow() {
  const boxes = [...filter.querySelectorAll("input")];
  const away = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
  for (const part of document.querySelectorAll("main [data-strategy]")) {
    part.classList.toggle("away", away.has(part.dataset.strategy));
  }
  const said = `${boxes.length - away.size} of ${boxes.length} strategies`;
  filter.querySelector("summary span").textContent = `: ${said}`;
  told.textContent = `Shown: ${said}`;
}

if (filter) {
  filter.reset(); // a browser may remember what was picked before
  filter.hidden = false;
  narrow();
  filter.addEventListener("change", narrow);
  for (const button of filter.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      for (const box of filter.querySelectorAll("input")) box.checked = button.value === "all";
      narrow();
    });
  }
}
