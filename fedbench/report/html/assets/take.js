// Every table as LaTeX, Markdown and CSV, and papers of methods as BibTeX: the texts are those of `fedbench compare --format`, packed into the page.
const FORMS = { markdown: ["Markdown", "md"], latex: ["LaTeX", "tex"], csv: ["CSV", "csv"] };
const CITING = { ...FORMS, bibtex: ["BibTeX", "bib"] };

const unpacked = (() => {
  let found = null;
  return () => (found ??= (async () => {
    const packed = Uint8Array.from(atob(document.getElementById("texts").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  })());
})();

const copied = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // a page from a file may not be allowed to
  }
};
const saved = (text, name) => {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
};

const take = (key, forms = FORMS) => {
  const status = el("span", { role: "status" });
  const say = (text) => { status.textContent = text; setTimeout(() => { status.textContent = ""; }, 2500); };
  const button = ([form, [name, suffix]]) => el("button", {
    type: "button", "data-key": key, "data-form": form, title: `Copy as ${name}; with Shift, save as a file`,
    on: { click: async (event) => {
      if (!("DecompressionStream" in window)) return say("This browser cannot unpack it.");
      const text = (await unpacked())[key][form];
      if (!event.shiftKey && await copied(text)) return say(`${name} copied`);
      saved(text, `${key.replace(/[^\w.]+/g, "-")}.${suffix}`);
      return say(`${name} saved`);
    } },
  }, name);
  return el("p", { class: "take" }, "Copy as ", Object.entries(forms).map(button), status);
};
