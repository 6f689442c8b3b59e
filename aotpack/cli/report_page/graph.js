// The graph of a program by module.

const NAME = 0, KIND = 1, OPERATOR = 2, MODULE = 3, SHAPE = 4, DTYPE = 5, DEVICE = 6, STAGE = 7, INPUTS = 8;

/** The section for one variant; `times` is seconds by the name of a node. */
function graphSection(variant, kernelsOf, times) {
  const nodes = variant.nodes;
  if (!nodes) return make("p", { class: "notice" }, "The archive has no description of its programs.");
  const calls = nodes.map((_, index) => index).filter((index) => nodes[index][KIND] === "call");
  const others = nodes.map((_, index) => index).filter((index) => nodes[index][KIND] !== "call");
  const staged = nodes.some((node) => node[STAGE] !== null);
  const rows = new Map();  // node → its row, where it is shown in the tree

  /** Opens the modules around a node and moves the focus to its row. */
  function reveal(index) {
    const holder = holders.get(index);
    if (!holder) return;
    search.querySelector("input").value = "";
    show([]);
    opened(holder);
    // Beyond the first rows of a long table, more come on request.
    for (let more; !rows.has(index) && (more = holder.querySelector(":scope > div > .scroll > .more:not(.hidden) button")); ) more.click();
    const row = rows.get(index);
    if (!row) return;
    root.querySelectorAll("tr.shown").forEach((other) => other.classList.remove("shown"));
    row.classList.add("shown");
    row.tabIndex = -1;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  const link = (index) => make("button", { type: "button", class: "link mono", onclick: () => reveal(index) }, nodes[index][NAME]);
  const separated = (elements) => elements.flatMap((element, i) => (i ? [", ", element] : [element]));
  const columns = (withModule) => [
    { title: "value", value: (i) => nodes[i][NAME], kind: "name" },
    { title: "operator", value: (i) => nodes[i][KIND] === "call" ? nodes[i][OPERATOR] : `${nodes[i][KIND]} ${nodes[i][OPERATOR]}`, kind: "wrap" },
    ...(withModule ? [{ title: "module", value: (i) => nodes[i][MODULE], kind: "wrap" }] : []),
    { title: "shape", value: (i) => nodes[i][SHAPE] },
    { title: "dtype", value: (i) => nodes[i][DTYPE] },
    { title: "device", value: (i) => nodes[i][DEVICE] },
    ...(staged ? [{ title: "stage", value: (i) => nodes[i][STAGE] === null ? "" : nodes[i][STAGE] + 1 }] : []),
    ...(times ? [{ title: "time", value: (i) => times[nodes[i][NAME]] || 0, kind: "number", show: (i) => times[nodes[i][NAME]] ? seconds(times[nodes[i][NAME]]) : "" }] : []),
    { title: "kernel", value: (i) => (kernelsOf.get(i) || []).join(", ") },
    { title: "reads", value: (i) => nodes[i][INPUTS].length, kind: "wrap", show: (i) => make("span", {}, separated(nodes[i][INPUTS].map(link))) },
  ];

  // The tree of modules, in the order of the program.
  const top = { path: "", own: [], children: new Map(), count: 0, seconds: 0 };
  for (const index of calls) {
    let place = top;
    const spent = times ? times[nodes[index][NAME]] || 0 : 0;
    const count = (each) => { each.count += 1; each.seconds += spent; };
    count(place);
    const parts = nodes[index][MODULE] ? nodes[index][MODULE].split(".") : [];
    parts.forEach((part, depth) => {
      if (!place.children.has(part)) {
        place.children.set(part, { path: parts.slice(0, depth + 1).join("."), own: [], children: new Map(), count: 0, seconds: 0 });
      }
      place = place.children.get(part);
      count(place);
    });
    place.own.push(index);
  }
  const holders = new Map();

  function tree(place, name, open) {
    const kind = variant.classes[place.path];
    const counted = plural(place.count, "operator") + (times && place.seconds ? `, ${seconds(place.seconds)}` : "");
    const summary = make("summary", {}, make("span", { class: "mono" }, name), kind ? [" ", make("span", { class: "kind" }, kind)] : null,
      make("span", { class: "count" }, counted));
    // The modules inside are made at once, so that links can open them; their tables when they are opened.
    const children = [...place.children].map(([part, child]) => tree(child, part, false));
    const element = lazyDetails(summary, (body) => {
      if (place.own.length) {
        body.append(table(columns(false), place.own, {
          caption: children.length ? "operators of this module itself" : "", onrow: (row, index) => rows.set(index, row),
        }));
      }
      body.append(...children);
    }, { open });
    children.forEach((child) => { child.within = element; });
    place.own.forEach((index) => holders.set(index, element));
    return element;
  }

  const whole = tree(top, variant.name === "default" ? "the program" : variant.name, true);
  const outside = lazyDetails(make("summary", {}, "Inputs, constants and outputs", make("span", { class: "count" }, plural(others.length, "value"))),
    (body) => body.append(table(columns(false), others, { onrow: (row, index) => rows.set(index, row) })));
  others.forEach((index) => holders.set(index, outside));
  const found = table(columns(true), [], { caption: "values found" });
  found.classList.add("hidden");
  const status = make("p", { class: "soft", role: "status" });

  function show(words) {
    const hits = words.length ? nodes.map((_, i) => i).filter((i) => matches(words, [nodes[i][NAME], nodes[i][OPERATOR], nodes[i][MODULE], nodes[i][SHAPE], nodes[i][DTYPE], variant.classes[nodes[i][MODULE]] || ""])) : [];
    found.classList.toggle("hidden", !words.length);
    whole.classList.toggle("hidden", words.length > 0);
    outside.classList.toggle("hidden", words.length > 0);
    status.textContent = words.length ? `${plural(hits.length, "value")} of ${nodes.length}` : "";
    if (words.length) found.update(hits);
  }

  // Details inside of a closed one are not in the document yet: links open from the outside in.
  const opened = (element) => {
    if (element.within) opened(element.within);
    element.fill();
  };
  const search = searchBox("Search the graph", show);
  const each = (open) => {
    const all = [whole];
    for (let i = 0; i < all.length; i += 1) {
      if (open) all[i].fill(); else all[i].open = false;
      all.push(...all[i].querySelectorAll(":scope > div > details"));
    }
    if (!open) whole.open = true;
  };
  const root = make("div", {}, make("div", { class: "controls" }, search,
    make("button", { type: "button", onclick: () => each(true) }, "Open all modules"),
    make("button", { type: "button", onclick: () => each(false) }, "Close all")),
  status, whole, outside, found);
  root.reveal = reveal;
  return root;
}
