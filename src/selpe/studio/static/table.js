// Step 2: what a record is, which field is its class, whose record it is, and how the file is read.
import { get } from "./api.js";
import { area, choice, input, make, text } from "./elements.js";

const YES = [["", "not said"], ["yes", "yes"], ["no", "no"]];

export function draw(main, app) {
  const { schema, settings } = app.state, { words } = app;
  const description = area(schema.description, { rows: 2 });
  const label = choice([["", "no classes"], ...schema.labels], schema.label || "");
  const likely = !schema.label && schema.likely_label ? " ‘" + schema.likely_label + "’ looks like one." : "";
  const unit = choice([["", "each record is its own"], ...(app.columns || [settings.unit].filter(Boolean))], settings.unit || "");
  const rows = text(settings.rows ?? "", { inputmode: "numeric" });
  const known = { yes: true, no: false };
  const truth = Object.keys(known).find((word) => known[word] === settings.day_first) || "";
  const controls = {
    encoding: text(settings.encoding ?? ""),
    delimiter: text(settings.delimiter ?? "", { maxlength: 1 }),
    day_first: choice(YES, truth),
    decimal: choice([["", "not said"], [".", "a point: 0.5"], [",", "a comma: 0,5"]], settings.decimal ?? ""),
  };
  const needed = Object.keys(controls).filter((name) => settings.asked.includes(name) || settings[name] !== null);
  main.append(
    make("div", {}, make("h1", { tabindex: "-1" }, "What is in the table, and whose is it?"),
      make("p", { class: "lead" }, "One row of the table is one record. These answers go into schema.yaml and selpe.yaml.")),
    make("form", { class: "fields", novalidate: true, onsubmit: save },
      make("section", { class: "card" }, make("h2", {}, "A record"),
        input("In one sentence: what is one record, and where does it arise?", description, "The model reads it."),
        make("div", { class: "grid" }, input("The class", label, words.label + likely), input("Whose record is it?", unit, words.unit)),
        make("div", { class: "grid" }, input("How many are there?", rows, words.rows))),
      make("section", { class: "card", hidden: !needed.length }, make("h2", {}, "How the file is read"),
        make("p", { class: "soft" }, "Found by looking at the file once. A run never guesses it: one private row could change how all others are read."),
        make("div", { class: "grid" }, ...needed.map((name) => input(words.settings[name], controls[name])))),
      make("div", { class: "row" }, make("button", { type: "submit", class: "do main" }, "These are right: save"))));
  if (!app.columns) {
    get("columns").then((found) => {
      app.columns = found.columns;
      const chosen = unit.value;
      unit.replaceChildren(...choice([["", "each record is its own"], ...found.columns], "").children);
      unit.value = chosen;
    }).catch((error) => app.refuse(error));
  }

  async function save(event) {
    event.preventDefault();
    const changes = { rows: rows.value, unit: unit.value };
    for (const name of needed) changes[name] = controls[name].value;
    const about = { description: description.value, label: label.value || null };
    if (!await app.change("about", about)) return;
    if (!await app.change("settings", { changes, confirmed: ["rows", ...needed] }, "Saved.")) return;
    location.hash = "#examples";
  }
}
