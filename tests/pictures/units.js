// Numbers as Grafana writes them in the units that the dashboards use.

const ROUND = (value, digits = 3) => String(Number(value.toPrecision(digits)));

const many = (value, unit) => `${ROUND(value)} ${unit}${ROUND(value) === "1" ? "" : "s"}`;

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${ROUND(value * 1e6)} µs`;
  if (size < 1) return `${ROUND(value * 1000)} ms`;
  if (size < 60) return `${ROUND(value)} s`;
  if (size < 3600) return many(value / 60, "min");
  return size < 86400 ? many(value / 3600, "hour") : many(value / 86400, "day");
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${ROUND(value / 1e6)} Mil`;
  return size >= 1000 ? `${ROUND(value / 1000)} K` : ROUND(value);
}

const UNITS = {
  s: seconds,
  short,
  percentunit: (value) => `${ROUND(value * 100)}%`,
  ops: (value) => `${short(value)} ops/s`,
  bytes: (value) => (Math.abs(value) >= 1048576 ? `${ROUND(value / 1048576)} MiB` : `${ROUND(value / 1024)} KiB`),
};

function written(value, unit) {
  return value === null || value === undefined || Number.isNaN(value) ? "" : UNITS[unit](value);
}
