// The page: its steps, what stands in the files now, and what is said to the person.
import { get, post } from "./api.js";
import { make } from "./elements.js";
import * as examples from "./examples.js";
import * as fields from "./fields.js";
import * as plan from "./plan.js";
import * as rules from "./rules.js";
import * as run from "./run.js";
import * as table from "./table.js";

const STEPS = [
  ["fields", "Fields", fields],
  ["table", "Table", table],
  ["examples", "Examples", examples],
  ["rules", "Rules", rules],
  ["plan", "Plan", plan],
  ["run", "Run", run],
];
const at = (id) => document.getElementById(id);
const plural = (count, word) => count + " " + word + (count === 1 ? "" : "s");

const app = {
  state: null,
  words: null,
  columns: null,

  say(text) {
    at("alarm").hidden = true;
    at("news").textContent = text;
  },

  // What went wrong; a change that came too late shows what the files say now, before it is said.
  async refuse(error) {
    if (error.status === 409) {
      this.state = await get("state");
      draw(false);
    }
    at("news").textContent = "";
    at("alarm").textContent = "✗ " + (error.said || error.message);
    at("alarm").hidden = false;
    at("alarm").scrollIntoView({ block: "nearest" });
  },

  take(state) {
    this.state = state;
    head();
  },

  // Changes a file. Gives false where that was refused, and says why.
  async change(what, content, done) {
    try {
      this.take(await post(what, { ...content, revision: this.state.revision }));
      if (done) this.say(done);
      return true;
    } catch (error) {
      await this.refuse(error);
      return false;
    }
  },

  draw: (focus = false) => draw(focus),
  field: (name) => app.state.schema.fields.find((one) => one.name === name),
};

function status(name) {
  const { schema, settings } = app.state;
  const sure = schema.fields.filter((field) => field.form.confirmed).length;
  switch (name) {
    case "fields": return sure === schema.fields.length ? "✓ all " + sure + " confirmed" : sure + " of " + schema.fields.length + " confirmed";
    case "table": return settings.asked.length ? plural(settings.asked.length, "question") : "✓ confirmed";
    case "examples": return schema.examples.length ? "✓ " + plural(schema.examples.length, "record") : "none yet";
    case "rules": return schema.rules.length ? "✓ " + plural(schema.rules.length, "rule") : "none";
    case "plan": return "ε " + settings.epsilon + ", " + settings.records + " records";
    default: return app.state.ready ? "ready" : "not yet";
  }
}

function current() {
  const name = location.hash.slice(1);
  return STEPS.find((step) => step[0] === name) || STEPS[0];
}

function head() {
  at("about").textContent = app.state.settings ? app.state.settings.table + " · data set ‘" + app.state.settings.dataset + "’" : "";
  at("files").textContent = "The files are the truth: schema.yaml and selpe.yaml in " + app.state.folder;
  if (app.state.problem) return;
  const here = current()[0];
  at("steps").replaceChildren(...STEPS.map(([name, title], place) => make("li", {},
    make("a", { href: "#" + name, "aria-current": name === here ? "step" : null },
      make("b", {}, place + 1 + " " + title), make("span", {}, status(name))))));
}

function broken() {
  const problem = app.state.problem;
  at("steps").replaceChildren();
  at("main").replaceChildren(make("section", { class: "card" },
    make("h1", { tabindex: "-1" }, "A file cannot be read"),
    make("p", { class: "wrong" }, (problem.where ? problem.where + ": " : "") + problem.message),
    make("p", {}, problem.hint || "Mend it in an editor."),
    make("p", {}, make("button", { type: "button", class: "do main", onclick: start }, "Look again"))));
}

function draw(focus = true) {
  head();
  if (app.state.problem) return broken();
  const [, title, step] = current();
  document.title = title + " · SelPE studio";
  if (step !== run) run.leave();
  const main = at("main");
  main.replaceChildren();
  step.draw(main, app);
  if (focus) {
    window.scrollTo(0, 0);
    main.querySelector("h1")?.focus();
  }
}

async function start() {
  try {
    [app.state, app.words] = await Promise.all([get("state"), app.words || get("words")]);
    draw(false);
  } catch (error) {
    await app.refuse(error);
  }
}

window.addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  app.say("");
  if (app.state) draw();
});
start();
