// Step 1: the draft, field by field. What the draft has read off the table is shown only to who asks for it.
import { get, post } from "./api.js";
import { area, button, choice, fresh, input, make, patiently, text, tick } from "./elements.js";

let open = null; // the field whose form is open
let first = true;

export function draw(main, app) {
  const { schema } = app.state;
  const waiting = schema.fields.filter((field) => !field.form.confirmed);
  const hidden = waiting.filter((field) => !field.shown);
  if (first) open = waiting.length ? waiting[0].name : null;
  first = false;
  main.append(
    make("div", {}, make("h1", { tabindex: "-1" }, "What may everybody know about each field?"),
      make("p", { class: "lead" }, "The schema stands in the release, and no guarantee covers it. So bounds and values must be public knowledge, not what this table happens to hold. Look at each field, mend it, and confirm it.")),
    make("p", { class: "row" },
      make("strong", {}, waiting.length ? waiting.length + " of " + schema.fields.length + " fields are to be confirmed." : "✓ Every field is confirmed."),
      hidden.length ? button("Show all " + hidden.length + " proposals of the draft", () => reveal(app, hidden.map((field) => field.name))) : null,
      waiting.length ? null : make("a", { class: "do", href: "#table" }, "Go on to the table")),
    make("ul", { class: "fields" }, ...schema.fields.map((field) => make("li", {}, card(field, app)))),
    leftOut(app));
}

async function reveal(app, names) {
  try {
    app.take(await post("show", { names }));
    app.draw();
    app.say("The draft's proposals are shown. They come from your table: keep only what is public knowledge.");
  } catch (error) {
    await app.refuse(error);
  }
}

function card(field, app) {
  const id = fresh("field"), shown = open === field.name;
  const sure = field.form.confirmed;
  const head = make("button", {
    type: "button", class: "head", "aria-expanded": String(shown), "aria-controls": id,
    onclick: () => { open = shown ? null : field.name; app.draw(); focus(field.name); },
  },
    make("span", { class: "name" }, field.name),
    make("span", { class: "what" }, (field.shown && field.form.kind !== "boolean" ? field.expected : app.words.kinds[field.form.kind]) + (field.name === app.state.schema.label ? " · the class" : "")),
    make("span", { class: "state " + (sure ? "ok" : "open") }, sure ? "✓ confirmed" : "○ to confirm"));
  head.dataset.field = field.name;
  return make("article", { class: "card field" }, make("h2", {}, head),
    make("div", { class: "body", id, hidden: !shown }, shown ? form(field, app) : null));
}

function focus(name) {
  [...document.querySelectorAll(".head")].find((head) => head.dataset.field === name)?.focus();
}

function form(field, app) {
  const { words } = app;
  const kind = choice(Object.entries(words.kinds), field.form.kind);
  const description = area(field.form.description, { rows: 2 });
  const optional = tick("May be missing in a record", field.form.optional);
  const samples = area((field.form.examples || []).join("\n"), { rows: 2 });
  const outcome = make("p", { class: "fine", role: "status" });
  const why = make("p", { class: "note" }), promise = make("p", { class: "promise" });
  const place = make("fieldset", {});
  let inner = null;

  const read = () => ({
    kind: kind.value, description: description.value, optional: optional.control.checked, confirmed: false,
    examples: samples.value.split("\n").filter((line) => line.trim()), ...inner.read(),
  });
  let touched = false;
  const look = patiently(async (latest) => {
    try {
      const found = await post("try/field", { name: field.name, form: read() });
      if (latest()) { outcome.className = "fine"; outcome.textContent = "✓ Allows " + found.expected; }
    } catch (error) {
      if (!latest()) return;
      const said = touched || field.shown;
      outcome.className = said ? "wrong" : "soft";
      outcome.textContent = said ? "✗ " + (error.where ? error.where + " " : "") + error.message : "Say what it allows, or look at the proposal first.";
    }
  });
  const fill = () => {
    const same = kind.value === field.form.kind;
    inner = domain(kind.value, same ? field.form : {}, look);
    place.replaceChildren(make("legend", {}, "What it allows"));
    if (same && !field.shown) place.append(make("div", { class: "note" }, make("p", {}, words.proposal),
      button("Show the proposal", () => reveal(app, [field.name]).then(() => focus(field.name)))));
    place.append(...inner.elements);
    why.textContent = "Why it matters: " + words.why[kind.value];
    promise.textContent = "By confirming you say: " + words.public[kind.value];
    look();
  };
  kind.addEventListener("change", fill);
  const element = make("form", { class: "fields", novalidate: true, oninput: () => { touched = true; look(); }, onsubmit: (event) => { event.preventDefault(); save(true); } },
    make("div", { class: "grid" }, input("Kind", kind), input("Description", description, words.description)),
    place, why, optional,
    make("details", {}, make("summary", {}, "Made-up example values"), input("One in a line", samples, "Never copied from the table: they stand in the release.")),
    outcome, promise,
    make("div", { class: "row" },
      make("button", { type: "submit", class: "do main" }, field.form.confirmed ? "Save" : "It is public: confirm"),
      field.form.confirmed ? button("No longer confirmed", () => save(false)) : button("Save, confirm later", () => save(false)),
      button("Leave this field out", drop, "plain")));

  async function save(confirmed) {
    const said = confirmed ? field.name + " is confirmed." : field.name + " is saved, and still to be confirmed.";
    if (!await app.change("field", { name: field.name, form: { ...read(), confirmed } }, said)) return;
    const waiting = app.state.schema.fields.filter((one) => !one.form.confirmed).map((one) => one.name);
    const names = app.state.schema.fields.map((one) => one.name);
    const next = waiting.find((name) => names.indexOf(name) > names.indexOf(field.name)) || waiting[0] || null;
    open = confirmed ? next : null;
    app.draw();
    focus(open || field.name);
  }
  async function drop() {
    if (await app.change("field/remove", { name: field.name }, field.name + " is left out. It can be added again below.")) {
      open = null;
      app.columns = null;
      app.draw();
    }
  }
  fill();
  return element;
}

// The inputs of one kind, and how they are read.
function domain(kind, known, look) {
  if (kind === "category") return values(known.values || [], look);
  if (kind === "boolean") return { elements: [make("p", { class: "soft" }, "Yes or no.")], read: () => ({}) };
  const shapes = {
    text: [["min_length", "At least so many characters", "1"], ["max_length", "At most so many characters", ""], ["pattern", "Pattern (a regular expression; may be empty)", ""]],
    integer: [["min", "Lowest", ""], ["max", "Highest", ""], ["step", "Step", "1"], ["unit", "Unit (may be empty)", ""]],
    number: [["min", "Lowest", ""], ["max", "Highest", ""], ["step", "Step", "0.01"], ["unit", "Unit (may be empty)", ""]],
    date: [["min", "First day", ""], ["max", "Last day", ""]],
  };
  const inputs = shapes[kind].map(([name, label, usual]) => {
    const numeric = !["unit", "pattern"].includes(name) && kind !== "date";
    const control = kind === "date" ? make("input", { type: "date", value: known[name] || "" }) : text(known[name] ?? usual, numeric ? { inputmode: "decimal" } : {});
    return [name, input(label, control)];
  });
  return {
    elements: [make("div", { class: "grid" }, ...inputs.map((pair) => pair[1]))],
    read: () => Object.fromEntries(inputs.map(([name, element]) => [name, element.control.value])),
  };
}

function values(known, look) {
  const list = make("ul", { class: "values" });
  const add = (value = "", description = "") => {
    const name = text(value, { "aria-label": "Value" }), meaning = text(description, { "aria-label": "What it means (may be empty)", placeholder: "what it means, if it does not speak for itself" });
    const row = make("li", {}, name, meaning, button("Remove", () => {
      const next = row.nextElementSibling || row.previousElementSibling;
      row.remove();
      (next?.querySelector("input") || list.nextElementSibling).focus();
      look();
    }, "", { "aria-label": "Remove this value" }));
    row.read = () => ({ value: name.value, description: meaning.value });
    list.append(row);
    return name;
  };
  known.forEach((one) => add(one.value, one.description));
  if (!known.length) add();
  return {
    elements: [list, button("Add a value", () => add().focus())],
    read: () => ({ values: [...list.children].map((row) => row.read()) }),
  };
}

// Columns of the table that are no field, such as identifiers and names.
function leftOut(app) {
  const section = make("section", { class: "card", "aria-label": "Columns that are left out" });
  const fill = () => {
    const names = app.columns.filter((name) => !app.field(name));
    section.hidden = !names.length;
    const list = choice(names, names[0]);
    section.replaceChildren(make("h2", {}, "Columns that are left out"),
      make("p", { class: "soft" }, "Identifiers, names and the like are not synthesised. If one of these columns is a field, add it."),
      make("div", { class: "grid" }, input("Column", list)),
      make("div", { class: "row" }, button("Add it as a field", async () => {
        const name = list.value;
        const form = { kind: "text", max_length: "400" };
        if (await app.change("field", { name, form }, name + " is a field now. Say what it allows, and confirm it.")) { open = name; app.draw(); focus(name); }
      })));
  };
  section.hidden = true;
  if (app.columns) fill();
  else get("columns").then((found) => { app.columns = found.columns; fill(); }).catch((error) => app.refuse(error));
  return section;
}
