// Functions that format texts and numbers for people.

const SHORT = { "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r" };

// Returns a text from outside like rota.printable does, so that it cannot hide or reorder the text around it.
export function printable(text) {
  return String(text).replace(/(?! )[\p{C}\p{Z}]/gu, (letter) => SHORT[letter] ?? [...Array(letter.length).keys()]
    .map((index) => "\\u" + letter.charCodeAt(index).toString(16).padStart(4, "0")).join(""));
}

export const DASH = "–";
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

// Formats a duration like `in_words` of rota.durations, for example 42 ms, 4.2 s, 3 m 5 s or 2 d 1 h.
export function duration(seconds, units = 2) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds > 0 && seconds < 0.1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  let left = Math.floor(seconds);
  const parts = [];
  for (const [unit, size] of UNITS) {
    if (left >= size) parts.push(`${Math.floor(left / size)} ${unit}`);
    left %= size;
  }
  return parts.slice(0, units).join(" ");
}

export const count = (number) => (number === null || number === undefined ? DASH : number.toLocaleString("en"));

export const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

// Formats a rate or a count in a few characters, for example 0.4, 37 or 1.2k.
export function brief(number) {
  if (number === null || number === undefined) return DASH;
  if (number >= 10000) return `${Number((number / 1000).toPrecision(3))}k`;
  return number >= 100 || Number.isInteger(number) ? count(Math.round(number)) : String(Number(number.toPrecision(2)));
}

export const percent = (share) => (share === null || share === undefined ? DASH : `${Math.round(share * 100)} %`);

export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

// Formats a time in the order of ISO 8601, in the time zone of the user.
export const moment = (at) => (at ? new Date(at).toLocaleString("sv-SE") : DASH);
