// Elements are made from text alone: nothing here, nor in any other of these files, reads a name as markup.
const SVG = "http://www.w3.org/2000/svg";

const fill = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "color") made.style.setProperty("--c", value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
};
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// A name that is cut in its middle, because what tells two names apart stands at an end.
const clipped = (text, width) => {
  const letters = [...text];
  if (letters.length <= width) return text;
  const tail = Math.floor((width - 1) / 2);
  return letters.slice(0, width - 1 - tail).join("") + "…" + letters.slice(letters.length - tail).join("");
};
const hidden = (text) => el("span", { class: "away" }, text);

// `open` is drawn only when it is opened.
const more = (title, make) => {
  const inside = el("div", {});
  const found = el("details", { class: "more" }, el("summary", {}, title), inside);
  found.addEventListener("toggle", () => { if (found.open && !inside.firstChild) inside.append(...[make()].flat(Infinity).filter(Boolean)); });
  return found;
};
const list = (texts, kind) => texts.length ? el("ul", { class: "notes" }, texts.map((t) => el("li", { class: kind }, t))) : null;
