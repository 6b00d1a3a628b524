// Elements from plain data. Texts are always set as text, never as HTML.
let count = 0;
export const fresh = (stem) => stem + "-" + ++count;

export function make(tag, settings = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function button(text, act, kind = "", more = {}) {
  return make("button", { type: "button", class: "do " + kind, onclick: act, ...more }, text);
}

// An input with its label, its hint and a place for what is wrong with it.
export function input(label, control, hint = "") {
  const id = control.id || fresh("input");
  control.id = id;
  const wrong = make("p", { class: "wrong", id: id + "-wrong", hidden: true });
  const told = hint ? make("p", { class: "hint", id: id + "-hint" }, hint) : null;
  control.setAttribute("aria-describedby", [told && id + "-hint", id + "-wrong"].filter(Boolean).join(" "));
  const element = make("div", { class: "input" }, make("label", { for: id }, label), control, told, wrong);
  element.complain = (text) => {
    wrong.hidden = !text;
    wrong.textContent = text ? "✗ " + text : "";
    if (text) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  };
  element.control = control;
  return element;
}

export const text = (value = "", more = {}) => make("input", { type: "text", autocomplete: "off", spellcheck: "false", ...more, value });
export const area = (value = "", more = {}) => make("textarea", { rows: 2, ...more, value });

export function choice(options, value, more = {}) {
  const list = make("select", more);
  for (const option of options) {
    const [name, shown] = Array.isArray(option) ? option : [option, option];
    list.append(make("option", { value: name }, shown));
  }
  list.value = value;
  return list;
}

export function tick(label, checked) {
  const control = make("input", { type: "checkbox", id: fresh("tick"), checked });
  const element = make("div", { class: "tick" }, control, make("label", { for: control.id }, label));
  element.control = control;
  return element;
}

// Calls at most once per pause, with what was asked for last; answers that come too late are thrown away.
export function patiently(act, pause = 350) {
  let timer = 0, turn = 0;
  return (...given) => {
    clearTimeout(timer);
    const mine = ++turn;
    timer = setTimeout(() => act(() => mine === turn, ...given), pause);
  };
}
