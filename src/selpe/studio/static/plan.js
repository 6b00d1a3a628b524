// Step 5: what ε buys, while it is chosen. The real planner answers; nothing is spent.
import { post } from "./api.js";
import { fresh, input, make, patiently, text } from "./elements.js";

const EPSILONS = [0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
const AMOUNTS = [10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1000, 1500, 2000, 3000, 5000, 7500, 10000, 20000, 50000, 100000];

// A slider over fixed values, with a number beside it that can be typed exactly.
function slider(label, hint, values, value, changed) {
  const id = fresh("amount");
  const near = (number) => values.reduce((best, one, place) => Math.abs(Math.log(one / number)) < Math.abs(Math.log(values[best] / number)) ? place : best, 0);
  const number = text(value, { id, inputmode: "decimal", "aria-describedby": id + "-hint" });
  const range = make("input", { type: "range", min: 0, max: values.length - 1, step: 1, value: near(Number(value) || values[0]), "aria-label": label + ", slider", "aria-valuetext": String(value) });
  range.addEventListener("input", () => {
    number.value = String(values[Number(range.value)]);
    range.setAttribute("aria-valuetext", number.value);
    changed();
  });
  number.addEventListener("input", () => {
    if (Number(number.value) > 0) range.value = near(Number(number.value));
    range.setAttribute("aria-valuetext", number.value);
    changed();
  });
  const element = make("div", { class: "slider" }, make("label", { class: "label", for: id }, label), range, number, make("p", { class: "hint", id: id + "-hint" }, hint));
  element.read = () => number.value;
  return element;
}

export function draw(main, app) {
  const { settings } = app.state, { words } = app;
  const result = make("section", { class: "card", "aria-label": "The plan" }, make("p", { class: "soft" }, "Planning …"));
  const live = make("p", { class: "soft", role: "status" });
  const llm = text(settings.llm ?? "");
  const budget = text(settings.budget ?? "", { inputmode: "decimal" });
  const changed = () => { live.textContent = "Planning …"; look(); };
  const epsilon = slider("ε of the run", words.epsilon, EPSILONS, settings.epsilon ?? 2, changed);
  const records = slider("Records to write", words.records, AMOUNTS, settings.records, changed);
  const rows = slider("Rows of the table, in public", words.rows, AMOUNTS, settings.rows ?? "", changed);
  const read = () => ({ epsilon: epsilon.read(), records: records.read(), rows: rows.read(), llm: llm.value, budget: budget.value });
  const look = patiently(async (latest) => {
    try {
      const found = await post("plan", { changes: read() });
      if (!latest()) return;
      result.replaceChildren(...shown(found));
      live.className = "soft";
      live.textContent = "Planned for ε " + found.epsilon + " and " + found.records + " records.";
    } catch (error) {
      if (!latest()) return;
      live.className = "wrong";
      live.textContent = "✗ " + error.said;
      result.replaceChildren(make("p", { class: "soft" }, "There is no plan for these figures."));
    }
  });
  llm.addEventListener("input", changed);
  budget.addEventListener("input", changed);
  main.append(
    make("div", {}, make("h1", { tabindex: "-1" }, "What does ε buy here?"),
      make("p", { class: "lead" }, "Move the sliders. The plan is made from public figures alone; nothing is read from the table, and nothing is spent.")),
    make("form", { class: "card", novalidate: true, onsubmit: save },
      make("div", { class: "sliders" }, epsilon, records, rows),
      make("details", {}, make("summary", {}, "Model and budget"), make("div", { class: "grid" },
        input("Model", llm, "A name, a GGUF file, or a server's URL."),
        input("Budget of the table", budget, "A cap on all that is ever spent on it. Empty: the ε of the first run."))),
      live,
      make("div", { class: "row" }, make("button", { type: "submit", class: "do main" }, "Keep these settings, go on to the run"))),
    result);
  changed();

  async function save(event) {
    event.preventDefault();
    if (await app.change("settings", { changes: read(), confirmed: ["rows"] }, "The settings are saved.")) location.hash = "#run";
  }
}

const figure = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

export function costs(plan) {
  const { budget } = plan;
  if (budget.refusal) return "✗ " + budget.refusal;
  const cap = Number(budget.cap.toPrecision(4)), after = Number(budget.after.toPrecision(4));
  if (budget.set) return "ε " + plan.epsilon + " of " + Number(budget.left.toPrecision(4)) + " that are left; " + after + " will be left after it.";
  return after > 0 ? "This run sets the table's budget to " + cap + "; " + after + " will be left after it."
    : "This run sets the table's budget to " + cap + " and spends all of it: there is no second run, unless you set a larger budget first.";
}

function shown(plan) {
  const parts = [
    make("h2", {}, "The plan"),
    plan.verdict ? make("p", { class: "verdict" }, plan.verdict) : null,
    make("dl", { class: "numbers" }, figure("protected", plan.units.toLocaleString("en") + (plan.unit ? " × " + plan.unit : " records")),
      figure("synthetic records", plan.records.toLocaleString("en")), figure("classes", plan.classes || "none"),
      figure("time, about", plan.time.words), figure("ε, " + plan.adjacency, String(plan.epsilon))),
    make("p", { class: plan.budget.refusal ? "wrong" : "" }, costs(plan)),
    make("h3", {}, "Private steps"),
    make("ul", { class: "list" }, ...plan.steps.map((step) => make("li", {}, step))),
  ];
  if (plan.measured.length) {
    const heads = ["Measured", "What", "ε", "Noise of a cell", "Rows to expect in it"];
    parts.push(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What is measured" }, make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...plan.measured.map((row) => make("tr", {}, ...[row.step, row.what, row.epsilon, row.noise, row.expected].map((cell) => make("td", {}, cell))))))));
  }
  if (plan.warnings.length) parts.push(make("h3", {}, "To know"), make("ul", { class: "list" }, ...plan.warnings.map((warning) => make("li", {}, warning))));
  const { writer } = plan;
  parts.push(make("p", { class: "soft small" }, "Model: " + plan.model + (writer ? ", by ‘auto’. " + writer.why : ".") + " Time: " + plan.time.basis + "."),
    writer && writer.advice ? make("p", { class: "soft small" }, writer.advice) : null);
  return parts.filter(Boolean);
}
