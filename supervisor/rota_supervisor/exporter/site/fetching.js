// Asks the exporter. Where a fleet has a token, it is asked of the person once and kept until the tab is closed.

const TOKEN = "rota-token";
const LIMIT_MS = 5000;

let asking = null;

export const get = (address) => send(address, {});

export const post = (address, body) => send(address, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

// Returns the answer as JSON. Throws an Error that says what is wrong.
async function send(address, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(address, { ...options, headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(LIMIT_MS) });
  if (answer.status === 401) {
    await askForToken();
    return send(address, options);
  }
  const said = await answer.json().catch(() => null);
  if (!answer.ok || said === null) throw new Error(said?.error ?? `the exporter answers ${answer.status} ${answer.statusText}`);
  return said;
}

// Whoever needs it meanwhile waits for the same answer.
function askForToken() {
  asking ??= new Promise((done) => {
    const dialog = document.getElementById("token");
    const field = document.getElementById("token-text");
    field.value = "";
    dialog.onclose = () => {
      if (field.value) sessionStorage.setItem(TOKEN, field.value);
      asking = null;
      done();
    };
    dialog.showModal();
  });
  return asking;
}
