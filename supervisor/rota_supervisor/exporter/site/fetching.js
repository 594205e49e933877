// Requests to the exporter. If a fleet has a token, the person enters it once, and it is kept until the tab is closed.

const TOKEN = "rota-token";
const LIMIT_MS = 5000;

let asking = null;

export const get = (address) => send(address, {});

export const post = (address, body) => send(address, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

// Returns the reply as JSON. Throws an Error that states what is wrong.
async function send(address, options) {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await reach(address, options, token);
  if (answer.status === 401) {
    if (token === sessionStorage.getItem(TOKEN)) await askForToken(token !== null); // unless another one was entered meanwhile
    return send(address, options);
  }
  const said = await answer.json().catch(() => null);
  if (!answer.ok || said === null) throw new Error(said?.error ?? `the exporter answers ${answer.status} ${answer.statusText}`);
  return said;
}

async function reach(address, options, token) {
  const headers = { ...options.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
  try {
    return await fetch(address, { ...options, headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(LIMIT_MS) });
  } catch (fault) {
    throw new Error(fault.name === "TimeoutError" ? `the exporter gave no answer within ${LIMIT_MS / 1000} s` : "the exporter cannot be reached");
  }
}

// All requests that need the token meanwhile wait for the same input.
function askForToken(wasRefused) {
  asking ??= new Promise((done) => {
    const dialog = document.getElementById("token");
    const field = document.getElementById("token-text");
    field.value = "";
    document.getElementById("token-refused").hidden = !wasRefused;
    dialog.onclose = () => {
      if (field.value.trim()) sessionStorage.setItem(TOKEN, field.value.trim());
      asking = null;
      done();
    };
    dialog.showModal();
  });
  return asking;
}
