// What a shown cell is worth where rows are put in order or drawn: `1.18 MB`, `12,345`, `+0.5`, `3 min 05 s`, `8/12/9`.
const PREFIX = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
const TIMES = { s: 1, min: 60, h: 3600, day: 86400, days: 86400 };

// The letters of a tie group may follow a score: `76.7 kl`, `79.4 h`. Of times, seconds alone have decimals.
const unit = (word, digits) => {
  if (/^[kMGTPE](B|FLOPs|J)$/.test(word)) return PREFIX[word[0]];
  return word in TIMES && (word === "s" || !digits.includes(".")) ? TIMES[word] : 1;
};
const textOf = (cell) => (Array.isArray(cell) ? cell[0] : cell);
const worth = (cell) => {
  const parts = [...textOf(cell).matchAll(/([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z]*)/g)];
  if (!parts.length) return null;
  const value = ([, digits, word]) => Number(digits.replaceAll(",", "")) * unit(word, digits);
  // `3 min 05 s` is one length of time; of `81.5–92.6` and `8/12/9` the first number counts.
  const timed = parts.length > 1 && parts.every(([, , word]) => word in TIMES);
  return timed ? parts.reduce((sum, part) => sum + value(part), 0) : value(parts[0]);
};

// An interval as it is shown: `81.5–92.6`, `-3.4 to +1.2`.
const bounds = (text) => {
  const found = text.match(/^([+-]?[\d.]+)(?:–| to )([+-]?[\d.]+)$/);
  return found ? [Number(found[1]), Number(found[2])] : null;
};

const brief = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  for (const [prefix, factor] of Object.entries(PREFIX).reverse()) {
    if (size >= factor && factor > 1e3) return `${trimmed(value / factor)} ${prefix}`;
  }
  if (size >= 1e4) return `${trimmed(value / 1e3)} k`;
  return trimmed(value);
};
const trimmed = (value) => String(Number(value.toPrecision(3)));

const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;
const deviation = (values) => {
  if (values.length < 2) return null;
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1));
};
