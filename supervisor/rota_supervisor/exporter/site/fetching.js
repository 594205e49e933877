// Requests to the exporter. If the fleet has a token, the user enters it once, and it is kept until the tab is closed.

const TOKEN = "rota-token";
const LIMIT_MS = 5000;

let tokenRequest = null;

export const get = (address) => send(address, {});

export const post = (address, body) => send(address, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

// Returns the reply as JSON. Throws an Error that says what is wrong.
async function send(address, options) {
  const token = sessionStorage.getItem(TOKEN);
  const response = await reach(address, options, token);
  if (response.status === 401) {
    if (token === sessionStorage.getItem(TOKEN)) await requestToken(token !== null); // unless the user has already entered another token
    return send(address, options);
  }
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) throw new Error(body?.error ?? `the exporter responded with ${response.status} ${response.statusText}`);
  return body;
}

async function reach(address, options, token) {
  const headers = { ...options.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
  try {
    return await fetch(address, { ...options, headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(LIMIT_MS) });
  } catch (fault) {
    throw new Error(fault.name === "TimeoutError" ? `the exporter did not respond within ${LIMIT_MS / 1000} s` : "the exporter cannot be reached");
  }
}

// All requests that need the token in the meantime wait for the same input.
function requestToken(wasRefused) {
  tokenRequest ??= new Promise((done) => {
    const dialog = document.getElementById("token");
    const field = document.getElementById("token-text");
    field.value = "";
    document.getElementById("token-refused").hidden = !wasRefused;
    dialog.onclose = () => {
      if (field.value.trim()) sessionStorage.setItem(TOKEN, field.value.trim());
      tokenRequest = null;
      done();
    };
    dialog.showModal();
  });
  return tokenRequest;
}
