// The page: what is true of the archive, then of the program that is chosen.

const section = (id, title, ...children) => make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), children);
const facts = (pairs) => make("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null).map(([key, value]) => make("div", {}, make("dt", {}, key), make("dd", {}, value))));
const below = (folder) => data.files.filter((file) => file.path.startsWith(folder)).reduce((sum, file) => sum + file.size, 0);

function signatureSection() {
  return data.entries.map((entry) => [
    make("h3", { class: "mono" }, entry.signature),
    table([
      { title: "kind", value: (v) => v.kind }, { title: "name", value: (v) => v.name, kind: "name" },
      { title: "dtype", value: (v) => v.dtype }, { title: "shape", value: (v) => v.shape, kind: "mono" },
      { title: "layout", value: (v) => v.layout }, { title: "device", value: (v) => v.device },
    ], [...entry.inputs.map((v) => ({ kind: "in", ...v })), ...entry.outputs.map((v) => ({ kind: "out", ...v }))], { caption: `inputs and outputs of ${entry.name}` }),
    entry.dims.length ? table([
      { title: "dim", value: (d) => d.name, kind: "name" }, { title: "min", value: (d) => d.min, kind: "number" },
      { title: "max", value: (d) => (d.max === null ? Infinity : d.max), show: (d) => (d.max === null ? "unbounded" : String(d.max)), kind: "number" },
      { title: "multiple of", value: (d) => d.multipleOf, kind: "number" },
    ], entry.dims, { caption: `dims of ${entry.name}` }) : null,
    entry.variants.length > 1 ? table([
      { title: "variant", value: (v) => v.name, kind: "name" }, { title: "condition", value: (v) => v.when, kind: "wrap" },
    ], entry.variants, { caption: `variants of ${entry.name}, in the order in which calls try them` }) : null,
  ]);
}

function weightSection() {
  const stored = data.constants.filter((c) => c.stored && c.first).reduce((sum, c) => sum + c.bytes, 0);
  const all = data.constants.reduce((sum, c) => sum + c.bytes, 0);
  const list = table([
    { title: "constant", value: (c) => c.name, kind: "name" }, { title: "role", value: (c) => c.role },
    { title: "dtype", value: (c) => c.dtype }, { title: "shape", value: (c) => c.shape },
    { title: "bytes", value: (c) => c.bytes, kind: "number", show: (c) => bytes(c.bytes) + (c.stored ? "" : ", missing") },
    { title: "shares memory with", value: (c) => c.sharedWith.join(", "), kind: "wrap" },
    { title: "made from", value: (c) => c.from.join(", "), kind: "wrap" },
    { title: "read by", value: (c) => c.readBy.join("; "), kind: "wrap" },
  ], data.constants, { caption: plural(data.constants.length, "constant"), sort: null });
  const search = searchBox("Search the weights", (words) => list.update(data.constants.filter((c) => matches(words, [c.name, c.role, c.dtype, c.shape, ...c.from, ...c.sharedWith]))));
  return [make("p", {}, `${bytes(stored)} stored${all > stored ? `, ${bytes(all)} where each constant is counted by itself` : ""}.`),
    make("div", { class: "controls" }, search), list];
}

function codeSection() {
  const total = data.size || 1;
  return [table([
    { title: "file", value: (f) => f.path, kind: "name" },
    { title: "bytes", value: (f) => f.size, kind: "number", show: (f) => bytes(f.size) },
    { title: "share", value: (f) => f.size / total, kind: "number", show: (f) => make("span", {}, percent(f.size / total), shareBar(f.size / total)) },
  ], data.files, { caption: "files of the archive", sort: { column: 1, descending: true } })];
}

const place = document.getElementById("program");
const choice = { entry: 0, variant: 0, implementation: 0 };

function showProgram() {
  const entry = data.entries[choice.entry], variant = entry.variants[choice.variant], implementation = variant.implementations[choice.implementation];
  const measured = data.profile && data.profile.entry === entry.name && data.profile.variant === variant.name && data.profile.target === implementation.target ? data.profile : null;
  const kernels = kernelsOf(implementation, measured);
  const computedBy = new Map();
  const several = implementation.steps.length > 1;
  for (const kernel of kernels) {
    for (const node of kernel.nodes) computedBy.set(node, [...(computedBy.get(node) || []), (several ? `${kernel.step + 1}:` : "") + kernel.index]);
  }
  const hasTimes = measured && measured.has_kernels;
  const graph = graphSection(variant, computedBy, hasTimes ? measured.latencies : null);
  const reveal = (index) => graph.reveal && graph.reveal(index);
  place.replaceChildren(...[
    section("graph", "Graph by module", graph),
    section("passes", "Passes", passSection(variant.passes)),
    section("kernels", "Kernels", kernelSection(kernels, implementation, variant, measured, reveal)),
    measured ? section("timeline", "Timeline", timelineSection(implementation, measured, reveal)) : null,
    section("memory", "Memory", implementation.steps.map((step, number) => memorySection(step, several ? `Stage ${number + 1}` : ""))),
    section("stages", "Stages and transfers", stageSection(implementation, measured)),
  ].filter(Boolean));
}

function chooser() {
  const box = make("div", { class: "controls" });
  const fill = () => {
    const entry = data.entries[choice.entry], variant = entry.variants[choice.variant];
    const select = (label, items, key) => items.length < 2 ? null : make("label", {}, label, make("select", { onchange: (event) => {
      choice[key] = Number(event.target.value);
      if (key === "entry") choice.variant = 0;
      if (key !== "implementation") choice.implementation = 0;
      fill();
      showProgram();
    } }, items.map((text, i) => make("option", { value: i, selected: choice[key] === i }, text))));
    box.replaceChildren(...[
      select("Entry", data.entries.map((each) => each.name), "entry"),
      select("Variant", entry.variants.map((each) => each.name), "variant"),
      select("Target", variant.implementations.map((each) => each.target), "implementation"),
    ].filter(Boolean));
  };
  fill();
  return box;
}

if (data.profile) {
  choice.entry = Math.max(0, data.entries.findIndex((entry) => entry.name === data.profile.entry));
  const variants = data.entries[choice.entry].variants;
  choice.variant = Math.max(0, variants.findIndex((variant) => variant.name === data.profile.variant));
  choice.implementation = Math.max(0, variants[choice.variant].implementations.findIndex((each) => each.target === data.profile.target));
}
document.getElementById("facts").append(facts([
  ["size", bytes(data.size)], ["weights", bytes(below("weights/"))], ["code", bytes(below("modules/"))],
  ["targets", data.targets.join(", ")], ["devices", data.devices.join(", ")], ["updatable", data.updatable ? "yes" : "no: frozen"],
  ["format", `version ${data.format}`], ["call", data.profile ? seconds(data.profile.seconds) : null],
]), ...data.missing.map((text) => make("p", { class: "notice" }, text)));
document.getElementById("general").append(section("signature", "Signature", signatureSection()));
document.getElementById("chooser").append(chooser());
document.getElementById("rest").append(section("weights", "Weights", weightSection()), section("code", "Code and file sizes", codeSection()),
  section("build", "Build", table([
    { title: "what", value: (p) => p[0] }, { title: "value", value: (p) => p[1], kind: "wrap" },
  ], Object.entries(data.producer), { caption: "how the archive was built" })));
showProgram();
if (!data.profile) document.querySelector('nav a[href="#timeline"]').parentElement.remove();
document.body.dataset.ready = "1";
