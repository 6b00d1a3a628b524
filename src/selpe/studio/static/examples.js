// Step 3: made-up records, checked while they are typed.
import { post } from "./api.js";
import { area, button, choice, input, make, patiently, text } from "./elements.js";

export function draw(main, app) {
  const { schema } = app.state;
  main.append(
    make("div", {}, make("h1", { tabindex: "-1" }, "Show the model what a record looks like"),
      make("p", { class: "lead" }, app.words.examples)),
    form(app));
  if (schema.examples.length) main.append(make("section", { class: "card" },
    make("h2", {}, schema.examples.length + (schema.examples.length === 1 ? " example" : " examples")),
    ...schema.examples.map((record, place) => sample(record, place, app))));
}

function sample(record, place, app) {
  const facts = Object.entries(record).filter((pair) => pair[1] !== "");
  return make("article", { class: "sample", "aria-label": "Example " + (place + 1) },
    make("dl", {}, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name + " "), make("dd", {}, value)))),
    make("div", { class: "row" }, button("Remove", async () => {
      if (await app.change("remove", { which: "examples", place }, "The example is removed.")) app.draw();
    }, "", { "aria-label": "Remove example " + (place + 1) })));
}

function control(field) {
  const { kind, optional } = field.form;
  const nothing = optional ? [["", "(missing)"]] : [["", "(choose)"]];
  if (kind === "boolean") return choice([...nothing, "yes", "no"], "");
  if (kind === "category" && field.shown) return choice([...nothing, ...field.form.values.map((one) => one.value)], "");
  if (kind === "date") return make("input", { type: "date" });
  if (kind === "text" && Number(field.form.max_length || 400) > 60) return area("", { rows: 2 });
  return text("", ["integer", "number"].includes(kind) ? { inputmode: "decimal" } : {});
}

function form(app) {
  const inputs = Object.fromEntries(app.state.schema.fields.map((field) =>
    [field.name, input(field.name.replaceAll("_", " "), control(field), field.form.description || field.expected)]));
  for (const element of Object.values(inputs)) if (element.control.tagName === "TEXTAREA") element.classList.add("wide");
  const touched = new Set();
  const outcome = make("p", { class: "soft", role: "status" }, "Nothing is typed yet.");
  const read = () => Object.fromEntries(Object.entries(inputs).map(([name, element]) => [name, element.control.value]));
  const show = (problems, all) => {
    for (const [name, element] of Object.entries(inputs)) element.complain(all || touched.has(name) ? problems[name] || "" : "");
    const count = Object.keys(problems).length;
    outcome.className = count ? "soft" : "fine";
    outcome.textContent = problems[""] ? "✗ The record " + problems[""] : count ? count + (count === 1 ? " field is" : " fields are") + " not as the schema says yet." : "✓ This is a valid record.";
    if (problems[""]) outcome.className = "wrong";
  };
  const look = patiently(async (latest, all) => {
    try {
      const { problems } = await post("try/example", { values: read() });
      if (latest()) show(problems, all);
    } catch (error) {
      if (latest()) await app.refuse(error);
    }
  });
  for (const [name, element] of Object.entries(inputs)) {
    element.control.addEventListener("input", () => { touched.add(name); look(false); });
  }
  return make("form", { class: "card", novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    let problems;
    try {
      ({ problems } = await post("try/example", { values: read() }));
    } catch (error) {
      return app.refuse(error);
    }
    show(problems, true);
    const wrong = Object.keys(problems).find((name) => inputs[name]);
    if (wrong) return inputs[wrong].control.focus();
    if (Object.keys(problems).length) return;
    if (await app.change("example", { values: read() }, "The example is added.")) app.draw();
  } },
    make("h2", {}, "A made-up record"),
    make("div", { class: "grid" }, ...Object.values(inputs)),
    outcome,
    make("div", { class: "row" }, make("button", { type: "submit", class: "do main" }, "Add this example"),
      make("a", { class: "do", href: "#rules" }, "Go on to rules")));
}
