// Step 4: rules between fields, by choosing.
import { post } from "./api.js";
import { button, choice, input, make, patiently, text, tick } from "./elements.js";

const ORDER = [["<", "is below"], ["<=", "is at most"], [">", "is above"], [">=", "is at least"], ["==", "is"], ["!=", "is not"]];

export function draw(main, app) {
  const { rules } = app.state.schema;
  main.append(
    make("div", {}, make("h1", { tabindex: "-1" }, "What holds in every record?"), make("p", { class: "lead" }, app.words.rules + " Rules are optional.")),
    builder(app), writer(app));
  main.append(make("section", { class: "card" }, make("h2", {}, rules.length ? "Rules" : "No rules yet"),
    make("ul", { class: "rules" }, ...rules.map((rule, place) => make("li", {}, make("code", {}, rule),
      button("Remove", async () => {
        if (await app.change("remove", { which: "rules", place }, "The rule is removed.")) app.draw();
      }, "", { "aria-label": "Remove the rule " + rule })))),
    make("div", { class: "row" }, make("a", { class: "do", href: "#plan" }, "Go on to the plan"))));
}

function condition(title, app, changed) {
  const names = app.state.schema.fields.map((field) => field.name);
  const field = choice(names, names[0]), comparison = choice([], ""), against = choice([["value", "a value"], ["field", "a field"]], "value");
  const right = make("div", {});
  let read = () => ({ value: "" });
  const fill = () => {
    const { kind } = app.field(field.value).form;
    const ordered = ["integer", "number", "date"].includes(kind);
    const words = ordered ? ORDER : ORDER.slice(4);
    const before = comparison.value;
    comparison.replaceChildren(...choice(words, "").children);
    comparison.value = words.some((pair) => pair[0] === before) ? before : words[0][0];
    fillRight(kind);
  };
  const fillRight = (kind) => {
    if (against.value === "field") {
      const alike = app.state.schema.fields.filter((one) => one.name !== field.value && group(one.form.kind) === group(kind)).map((one) => one.name);
      const control = choice(alike, alike[0] || "");
      read = () => ({ other: control.value || null });
      right.replaceChildren(input("Which field", control));
    } else {
      const found = app.field(field.value);
      const control = kind === "boolean" ? choice(["yes", "no"], "yes")
        : kind === "category" && found.shown ? choice(found.form.values.map((one) => one.value), found.form.values[0].value)
        : kind === "date" ? make("input", { type: "date" }) : text("", {});
      read = () => ({ value: control.value });
      right.replaceChildren(input("Which value", control));
    }
    changed();
  };
  field.addEventListener("change", fill);
  against.addEventListener("change", () => fillRight(app.field(field.value).form.kind));
  const element = make("fieldset", {}, make("legend", {}, title),
    make("div", { class: "condition" }, input("Field", field), input("Comparison", comparison), input("With", against), right));
  element.read = () => ({ field: field.value, comparison: comparison.value, ...read() });
  element.fill = fill;
  return element;
}

const group = (kind) => kind === "integer" || kind === "number" ? "numbers" : kind === "text" || kind === "category" ? "texts" : kind;

function builder(app) {
  const outcome = make("p", { class: "soft", role: "status" });
  let touched = false;
  const look = patiently(async (latest) => {
    try {
      const found = await post("try/rule", asked());
      if (!latest()) return;
      outcome.className = "fine";
      outcome.replaceChildren("✓ The rule reads: ", make("code", {}, found.text));
    } catch (error) {
      if (!latest()) return;
      outcome.className = touched ? "wrong" : "soft";
      outcome.textContent = touched ? "✗ " + error.message : "Choose a field, a comparison, and what to compare with.";
    }
  });
  const changed = () => { if (then && given) look(); };
  let then = null, given = null;
  then = condition("This must hold", app, changed);
  given = condition("Only if", app, changed);
  const only = tick("Only in some records", false);
  given.hidden = true;
  only.control.addEventListener("change", () => { given.hidden = !only.control.checked; look(); });
  const asked = () => ({ then: then.read(), given: only.control.checked ? given.read() : null });
  then.fill();
  given.fill();
  return make("form", { class: "card", novalidate: true, oninput: () => { touched = true; look(); }, onsubmit: async (event) => {
    event.preventDefault();
    try {
      const { text: rule } = await post("try/rule", asked());
      if (await app.change("rule", { text: rule }, "The rule is added.")) app.draw();
    } catch (error) {
      await app.refuse(error);
    }
  } }, make("h2", {}, "A rule by choosing"), then, only, given, outcome,
    make("div", { class: "row" }, make("button", { type: "submit", class: "do main" }, "Add this rule")));
}

function writer(app) {
  const written = text("", { placeholder: "if injury == true then pain >= 1" });
  return make("details", { class: "card" }, make("summary", {}, "Write a rule yourself"),
    make("form", { class: "fields", novalidate: true, onsubmit: async (event) => {
      event.preventDefault();
      if (await app.change("rule", { text: written.value }, "The rule is added.")) app.draw();
    } }, input("Rule", written, "and, or, not, in, +, -, *, /; text in double quotes, days as d\"2024-01-31\", a name with spaces in back quotes"),
      make("div", { class: "row" }, make("button", { type: "submit", class: "do" }, "Add it"))));
}
