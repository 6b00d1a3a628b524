// Step 6: check, start, watch, judge. The commands are those of the terminal; a run goes on when this page is closed.
import { get, post } from "./api.js";
import { button, input, make, text } from "./elements.js";
import { costs } from "./plan.js";

let timer = 0, shown = null; // shown: the page of a run below, as [run, page]
const MARKS = { ok: ["✓ fine", "ok"], note: ["• note", "open"], wrong: ["✗ mend", "bad"] };
const PAGES = { "": "Watch", summary: "Summary of the release", report: "Report (internal)" };

export function leave() {
  clearTimeout(timer);
}

export function draw(main, app) {
  leave();
  const parts = { check: make("section", { class: "card" }), preview: make("section", { class: "card" }), start: make("section", { class: "card" }), runs: make("section", { class: "card" }), frame: make("section", { "aria-label": "Page of the run", hidden: true }) };
  main.append(make("div", {}, make("h1", { tabindex: "-1" }, "Run it, watch it, read the report"),
    make("p", { class: "lead" }, "A run is a process of its own: it goes on when this page or the studio is closed, and nothing finished is lost when it is stopped.")),
    parts.preview, parts.start, parts.runs, parts.frame, parts.check);
  const drawn = {};
  const update = async () => {
    let activity;
    try {
      activity = await get("activity");
    } catch (error) {
      if (main.contains(parts.start)) await app.refuse(error);
      timer = setTimeout(update, 3000);
      return;
    }
    if (!main.contains(parts.start)) return;
    const { tasks, runs } = activity;
    const put = (name, content, fill) => {
      const now = JSON.stringify(content);
      if (drawn[name] === now) return;
      drawn[name] = now;
      fill();
    };
    put("check", tasks.check || null, () => check(parts.check, tasks.check, app, update));
    put("preview", [tasks.preview || null, app.state.revision], () => preview(parts.preview, tasks.preview, app, update));
    put("start", [tasks.run || null, app.state.revision], () => start(parts.start, tasks.run, runs, app, update));
    put("runs", [runs, tasks.evaluate || null, tasks.run?.state, shown], () => list(parts.runs, runs, tasks, app, update));
    const running = tasks.run && runs.find((run) => run.name === tasks.run.about);
    if (running && !shown) shown = [running.name, ""];
    frame(parts.frame, runs);
    const busy = Object.values(tasks).some((task) => ["running", "stopping"].includes(task.state));
    clearTimeout(timer);
    if (busy) timer = setTimeout(update, 1200);
  };
  update();
}

async function ask(app, update, what, content, said) {
  try {
    await post(what, content);
    if (said) app.say(said);
  } catch (error) {
    await app.refuse(error);
  }
  await update();
}

function start(section, task, runs, app, update) {
  section.className = "card start";
  if (task && ["running", "stopping"].includes(task.state)) {
    section.replaceChildren(make("h2", {}, "The run ‘" + task.about + "’ is at work"),
      make("p", { class: "soft", role: "status" }, task.state === "stopping" ? "Stopping after the answers in flight. Press again to stop at once." : "It can be stopped at any moment: what is finished is kept, and the run can go on later."),
      make("div", { class: "row" }, button(task.state === "stopping" ? "Stop at once" : "Stop it", () => ask(app, update, "stop", { task: "run" }, "The run is asked to stop."), "danger")));
    return;
  }
  const parts = [make("h2", {}, "Start a run")];
  if (task && task.error) parts.push(make("p", { class: "wrong", role: "alert" }, "✗ The last one ended: " + task.error.message + (task.error.hint ? " (" + task.error.hint + ")" : "")));
  if (task && task.state === "done") parts.push(make("p", { class: "fine", role: "status" }, "✓ ‘" + task.about + "’ is done."));
  if (!app.state.ready) {
    const open = app.state.schema.fields.filter((field) => !field.form.confirmed).map((field) => field.name);
    parts.push(make("p", {}, "A run needs a confirmed schema. To be confirmed: " + open.join(", ") + "."), make("div", { class: "row" }, make("a", { class: "do", href: "#fields" }, "Go to the fields")));
    section.replaceChildren(...parts);
    return;
  }
  const epsilon = app.state.settings.epsilon;
  const price = make("p", {}, "Looking at the budget …");
  const typed = text("", { inputmode: "decimal" });
  const box = input("Type " + epsilon + " to start", typed, "So that no ε is spent by a slip.");
  parts.push(make("p", { class: "promise" }, "It will spend ε = " + epsilon + " of data set ‘" + app.state.settings.dataset + "’. Spent ε never comes back."), price,
    make("form", { class: "fields", novalidate: true, onsubmit: async (event) => {
      event.preventDefault();
      box.complain("");
      if (Number(typed.value.replace(",", ".")) !== epsilon || !typed.value.trim()) {
        box.complain("type " + epsilon + ", the ε that will be spent");
        typed.focus();
        return;
      }
      shown = null;
      await ask(app, update, "run", { epsilon: typed.value, revision: app.state.revision }, "The run is started.");
    } }, make("div", { class: "grid" }, box),
      make("div", { class: "row" }, make("button", { type: "submit", class: "do main" }, "Spend ε " + epsilon + " and start"), make("a", { class: "do", href: "#plan" }, "Change the plan"))));
  section.replaceChildren(...parts);
  post("plan", { changes: {} }).then((plan) => {
    price.className = plan.budget.refusal ? "wrong" : "";
    price.textContent = costs(plan) + " It will take about " + plan.time.words + ".";
  }).catch((error) => { price.className = "wrong"; price.textContent = "✗ " + error.said; });
}

function check(section, task, app, update) {
  const running = task && task.state === "running";
  section.replaceChildren(make("h2", {}, "Is everything ready?"),
    make("p", { class: "soft" }, "Looks over settings, schema, every row of the table, model and disk, as ", make("code", {}, "selpe check"), " does."),
    make("div", { class: "row" }, button(running ? "Checking …" : task ? "Check again" : "Check everything", () => ask(app, update, "check", {}), "", running ? { disabled: true } : {})));
  if (!task || running) return;
  if (task.error) section.append(make("p", { class: "wrong" }, "✗ " + task.error.message));
  section.append(make("ul", { class: "findings", role: "status" }, ...task.findings.map((one) => {
    const [mark, kind] = MARKS[one.state];
    return make("li", {}, make("span", { class: "state " + kind }, mark), make("div", {},
      make("p", {}, make("strong", {}, one.what + ": "), one.said), ...one.lines.map((line) => make("p", { class: "small" }, line)),
      one.hint ? make("p", { class: "hint" }, one.hint) : null));
  })));
}

// A sample of the model, graded, before any ε is spent.
const GRADES = { good: ["✓ good", "ok"], fair: ["• fair", "open"], poor: ["✗ poor", "bad"] };
function preview(section, task, app, update) {
  const running = task && ["running", "stopping"].includes(task.state);
  section.hidden = !app.state.ready && !task;
  section.replaceChildren(make("h2", {}, "Will this model do?"),
    make("p", { class: "soft" }, "Writes a sample from the schema alone, shows some of it and grades it, as ", make("code", {}, "selpe preview"), " does. Nothing private is read, and nothing is spent."),
    make("div", { class: "row" }, running ? button("Stop trying", () => ask(app, update, "stop", { task: "preview" }), "danger")
      : button(task ? "Try the model again" : "Try the model", () => ask(app, update, "preview", {}, "The model is writing a sample."))));
  if (running) section.append(make("p", { class: "soft", role: "status" }, "Writing a sample: a minute or two, longer at the first time, when a model is fetched …"));
  if (!task || running) return;
  if (task.error) section.append(make("p", { class: "wrong", role: "alert" }, "✗ " + task.error.message + (task.error.hint ? " (" + task.error.hint + ")" : "")));
  const line = ([mark, kind], name, said) => make("li", {}, make("span", { class: "state " + kind }, mark), make("div", {}, make("p", {}, make("strong", {}, name + ": "), said)));
  const { grade } = task;
  if (grade) section.append(make("ul", { class: "findings", role: "status" }, line(GRADES[grade.grade], grade.model, "by its worst measure, on " + grade.records + " records."),
    ...grade.measures.filter((one) => one.grade).map((one) => line(GRADES[one.grade], one.name, one.said))),
    make("ul", { class: "list" }, ...grade.steps.map((step) => make("li", {}, step))));
  section.append(...task.records.map((record, place) => make("article", { class: "sample", "aria-label": "Sample " + (place + 1) },
    make("dl", {}, ...Object.entries(record).filter((pair) => pair[1] !== null).map(([name, value]) => make("div", {}, make("dt", {}, name + " "), make("dd", {}, String(value))))))));
}

function list(section, runs, tasks, app, update) {
  section.hidden = !runs.length;
  const judging = tasks.evaluate && tasks.evaluate.state === "running" ? tasks.evaluate : null;
  const items = runs.slice(0, 20).map((run) => {
    const working = tasks.run && tasks.run.about === run.name && ["running", "stopping"].includes(tasks.run.state);
    const look = (page) => button(PAGES[page], () => { shown = [run.name, page]; update().then(() => document.querySelector("iframe")?.focus()); }, "", { "aria-pressed": String(Boolean(shown && shown[0] === run.name && shown[1] === page)) });
    const actions = [look("")];
    if (["interrupted", "stopped", "created"].includes(run.state) && !working) actions.push(button("Go on with it", () => { shown = [run.name, ""]; return ask(app, update, "resume", { run: run.name }, "The run goes on."); }));
    if (run.state === "done") actions.push(look("summary"));
    if (run.judged) actions.push(look("report"));
    const facts = [run.state, run.records ? run.records + " records" : "", "ε " + Number(run.epsilon), run.model, run.private === false ? "NOT PRIVATE: a control" : ""].filter(Boolean);
    const parts = [make("p", { class: "name" }, run.name), make("p", { class: "soft" }, facts.join(" · ")), make("div", { class: "row" }, ...actions)];
    if (run.state === "done") parts.push(judge(run, judging, tasks, app, update));
    return make("li", {}, ...parts);
  });
  section.replaceChildren(make("h2", {}, "Runs"), make("ul", { class: "runs" }, ...items));
}

function judge(run, judging, tasks, app, update) {
  if (judging && judging.about === run.name) {
    const progress = judging.progress;
    return make("p", { class: "row", role: "status" }, "Judging: " + (progress ? Math.round(100 * progress.share) + " %, " + progress.stage : "reading") + " ",
      button("Stop judging", () => ask(app, update, "stop", { task: "evaluate" }), "danger"));
  }
  const test = text(app.state.settings.test ? app.state.settings.test : "");
  const last = tasks.evaluate && tasks.evaluate.about === run.name ? tasks.evaluate : null;
  return make("details", { open: !run.judged }, make("summary", {}, run.judged ? "Judge it again, or pack it" : "Judge it: is it useful, faithful and private?"),
    make("form", { class: "fields", novalidate: true, onsubmit: (event) => { event.preventDefault(); ask(app, update, "evaluate", { run: run.name, test: test.value }, "The evaluation has begun."); } },
      last && last.error ? make("p", { class: "wrong" }, "✗ " + last.error.message + (last.error.hint ? " (" + last.error.hint + ")" : "")) : null,
      make("p", { class: "soft" }, "The report looks at private rows without noise. It stays on this machine and is not for release."),
      make("div", { class: "grid" }, input("A table of real records to test on (may be empty)", test, "Records that the run has not seen; a path from the folder of selpe.yaml.")),
      make("div", { class: "row" }, make("button", { type: "submit", class: "do main", disabled: Boolean(judging) }, "Judge it"), make("span", { class: "soft small" }, "To hand it on: ", make("code", {}, "selpe release " + run.folder)))));
}

function frame(section, runs) {
  const found = shown && runs.find((run) => run.name === shown[0]);
  section.hidden = !found;
  if (!found) return section.replaceChildren();
  const address = "runs/" + encodeURIComponent(shown[0]) + "/" + shown[1];
  if (section.dataset.address === address && section.firstChild) return;
  section.dataset.address = address;
  const page = make("iframe", { src: address, title: PAGES[shown[1]] + " of " + shown[0] });
  page.addEventListener("load", () => fit(page));
  section.replaceChildren(page);
}

// As high as what it shows, so that there is one thing to scroll.
function fit(page) {
  const inner = page.contentDocument;
  if (!inner || !inner.body) return;
  const measure = () => { page.style.height = Math.ceil(inner.body.scrollHeight) + 2 + "px"; };
  measure();
  new ResizeObserver(measure).observe(inner.body);
}
