// What the page asks of its own server.
export class Refusal extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.where = error.where || "";
    this.hint = error.hint || "";
  }

  get said() {
    return (this.where ? this.where + ": " : "") + this.message + (this.hint ? "\nWhat to do: " + this.hint : "");
  }
}

async function answered(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new Refusal(0, { message: "the studio does not answer", hint: "is `selpe studio` still running in its terminal?" });
  }
  let content = {};
  try {
    content = await response.json();
  } catch {
    content = { error: { message: "the studio refused the request (" + response.status + ")" } };
  }
  if (content.refused) throw new Refusal(response.status, content.refused); // what was only tried
  if (!response.ok) throw new Refusal(response.status, content.error || { message: "refused" });
  return content;
}

export const get = (what) => answered(fetch(what));
export const post = (what, content) => answered(
  fetch(what, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) }));
