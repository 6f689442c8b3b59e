// Kernels, memory, stages, passes and the timeline of a program.

/** The kernels of all steps: {step, index, name, operators, nodes, time}. */
function kernelsOf(implementation, measured) {
  const times = new Map((measured ? measured.kernels : []).map((each) => [`${each.step} ${each.kernel}`, each]));
  return implementation.steps.flatMap((step, number) => step.kernels.map(([name, operators, nodes], index) =>
    ({ step: number, index, name, operators, nodes, time: times.get(`${number} ${index}`) || null })));
}

function kernelSection(kernels, implementation, variant, measured, reveal) {
  const several = implementation.steps.length > 1;
  const nodes = variant.nodes || [];
  const modules = (kernel) => [...new Set(kernel.nodes.map((index) => nodes[index][MODULE]))].filter(Boolean);
  const links = (kernel) => make("span", {}, kernel.nodes.flatMap((index, i) => [i ? ", " : "",
    make("button", { type: "button", class: "link mono", onclick: () => reveal(index) }, breakable(nodes[index][NAME]))]));
  const most = Math.max(1e-12, ...kernels.map((k) => (k.time ? k.time.share : 0)));
  const columns = [
    { title: "#", value: (k) => k.index, kind: "number" },
    ...(several ? [{ title: "stage", value: (k) => k.step + 1, kind: "number" }] : []),
    { title: "kernel", value: (k) => k.name, kind: "name" },
    ...(measured ? [
      { title: "time", value: (k) => k.time ? k.time.seconds : 0, kind: "number", show: (k) => k.time ? seconds(k.time.seconds) : "–" },
      { title: "share of the call", value: (k) => k.time ? k.time.share : 0, kind: "number", show: (k) => k.time ? make("span", {}, percent(k.time.share), shareBar(k.time.share / most)) : "" },
    ] : []),
    { title: "source operators", value: (k) => k.operators.join(", "), kind: "wrap" },
    ...(nodes.length ? [
      { title: "values", value: (k) => k.nodes.length, kind: "wrap", show: links },
      { title: "modules", value: (k) => modules(k).join(", "), kind: "wrap" },
    ] : []),
  ];
  const list = table(columns, kernels, { caption: plural(kernels.length, "kernel") });
  const search = searchBox("Search the kernels", (words) =>
    list.update(kernels.filter((k) => matches(words, [k.name, ...k.operators, ...modules(k)]))));
  const parts = [make("div", { class: "controls" }, search), list];
  if (measured) {
    const inside = measured.kernels.reduce((sum, each) => sum + each.seconds, 0);
    const where = measured.inputs.map((input) => `${input.name} [${input.shape.join(", ")}]`).join(", ");
    parts.unshift(make("p", {}, `A call takes ${seconds(measured.seconds)} (median of ${measured.calls} calls, ` +
      `${plural(measured.threads, "thread")}${measured.has_kernels ? `, ${seconds(inside)} in kernels` : ""}). Inputs: ${where} (${measured.inputs_from}).`));
  }
  return make("div", {}, parts);
}

/** Memory in use at each kernel, and the largest blocks over time. */
function memorySection(step, title) {
  const count = step.kernels.length;
  const blocks = step.blocks;
  if (!blocks.length) return make("p", { class: "soft" }, "There is no memory plan: the backend does not describe it, or nothing is allocated between kernels.");
  const change = new Array(count + 1).fill(0);
  for (const [, size, first, last] of blocks) { change[first] += size; change[last + 1] -= size; }
  const live = [];
  let sum = 0;
  for (let i = 0; i < count; i += 1) { sum += change[i]; live.push(sum); }
  const peak = Math.max(...live), at = live.indexOf(peak);
  const y = (value) => 100 - (peak ? value / peak : 0) * 92;
  const points = live.flatMap((value, i) => [`${i},${y(value)}`, `${i + 1},${y(value)}`]).join(" ");
  const cursor = draw("line", { class: "cursor", y1: 0, y2: 100, x1: at + .5, x2: at + .5 });
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${count} 100`, preserveAspectRatio: "none", role: "img", "aria-label": `memory in use at each of ${count} kernels` },
    draw("polygon", { class: "area", points: `0,100 ${points} ${count},100` }), draw("polyline", { class: "area-line", points }), cursor);
  const readout = make("p", { class: "readout", role: "status" });
  const slider = make("input", { type: "range", min: 0, max: count - 1, value: at, oninput: () => show(Number(slider.value)) });
  function show(i) {
    slider.value = i;
    cursor.setAttribute("x1", i + .5);
    cursor.setAttribute("x2", i + .5);
    const here = blocks.filter(([, , first, last]) => first <= i && i <= last).sort((a, b) => b[1] - a[1]);
    const largest = here.slice(0, 3).map(([name, size]) => `${name} ${bytes(size)}`).join(", ");
    readout.textContent = `kernel ${i}, ${step.kernels[i][0]}: ${bytes(live[i])} in ${plural(here.length, "block")}` + (largest ? ` (largest: ${largest})` : "");
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    show(Math.max(0, Math.min(count - 1, Math.floor((event.clientX - box.left) / box.width * count))));
  });
  show(at);
  const largest = [...blocks].sort((a, b) => b[1] - a[1]).slice(0, 24);
  const rows = largest.map(([name, size, first, last, output]) => {
    const bar = make("i", { class: output ? "out" : "" });
    bar.style.left = `${first / count * 100}%`;
    bar.style.width = `${(last - first + 1) / count * 100}%`;
    return make("div", { class: "block-row" }, make("span", { class: "mono", title: name }, name),
      make("div", { class: "track", title: `kernel ${first} to ${last}` }, bar), make("span", {}, bytes(size)));
  });
  return make("div", {}, title ? make("h3", {}, title) : null,
    make("p", {}, `At most ${bytes(peak)} at once, at kernel ${at} (${step.kernels[at][0]}); ${plural(blocks.length, "block")} of ${bytes(blocks.reduce((all, block) => all + block[1], 0))} in total. Sizes are those of the example call; scratch memory inside of kernels is not counted.`),
    make("figure", {}, svg, make("div", { class: "controls" }, make("label", { class: "grow" }, "Kernel", slider)), readout),
    lazyDetails(make("summary", {}, "The largest blocks over the kernels of a call", make("span", { class: "count" }, "orange: returned")), (body) => body.append(...rows)),
    lazyDetails(make("summary", {}, "All blocks", make("span", { class: "count" }, plural(blocks.length, "block"))), (body) => body.append(table([
      { title: "block", value: (b) => b[0], kind: "name" },
      { title: "bytes", value: (b) => b[1], kind: "number", show: (b) => bytes(b[1]) },
      { title: "from kernel", value: (b) => b[2], kind: "number" },
      { title: "to kernel", value: (b) => b[3], kind: "number" },
      { title: "returned", value: (b) => (b[4] ? "yes" : "") },
    ], blocks))));
}

function stageSection(implementation, measured) {
  const card = (step, number) => make("div", { class: "card" },
    make("h4", {}, implementation.steps.length > 1 ? `Stage ${number + 1}` : "One step"),
    make("dl", {}, [
      ["device", step.device], ["target", step.target], ["code", bytes(step.code)],
      ["weights", `${bytes(step.constantBytes)} in ${plural(step.constants, "constant")}`],
      ["kernels", step.kernels.length], ["reads", step.reads.join(", ")], ["makes", step.makes.join(", ")],
      ...(step.assets.length ? [["device code", bytes(step.assets.reduce((sum, asset) => sum + asset.bytes, 0))]] : []),
      ...(step.features.length ? [["features", step.features.join(", ")]] : []),
      ...(measured && measured.steps[number] ? [["time", seconds(measured.steps[number].seconds)]] : []),
    ].flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)])));
  const parts = [make("div", { class: "cards" }, implementation.steps.map(card))];
  if (implementation.transfers.length) {
    parts.push(table([
      { title: "value", value: (t) => t.name, kind: "name" },
      { title: "from stage", value: (t) => t.from + 1, kind: "number" },
      { title: "to stage", value: (t) => t.to + 1, kind: "number" },
      { title: "shape", value: (t) => t.shape },
      { title: "dtype", value: (t) => t.dtype },
      { title: "devices", value: (t) => `${implementation.steps[t.from].device} → ${implementation.steps[t.to].device}` },
      { title: "copied", value: (t) => (t.moves ? "between devices" : "stays") },
    ], implementation.transfers, { caption: "values that stages hand to each other" }));
  }
  return make("div", {}, parts);
}

function passSection(passes) {
  if (!passes.length) return make("p", { class: "soft" }, "No pass changed the program.");
  return make("div", {}, passes.map((pass) => {
    const counts = new Map();
    for (const { layer, note } of pass.changes) {
      const key = JSON.stringify([layer, note]);
      counts.set(key, (counts.get(key) || 0) + 1);
    }
    const rows = [...counts].map(([key, count]) => { const [layer, note] = JSON.parse(key); return { layer, note, count }; });
    return lazyDetails(make("summary", {}, make("strong", {}, pass.name), ` ${pass.summary}`, make("span", { class: "count" }, plural(pass.changes.length, "change"))),
      (body) => body.append(rows.length ? table([
        { title: "module", value: (r) => r.layer || "(top)", kind: "name" },
        { title: "change", value: (r) => r.note, kind: "wrap" },
        { title: "times", value: (r) => r.count, kind: "number" },
      ], rows) : make("p", { class: "soft" }, "This pass listed no changes by module.")));
  }));
}

/** The parts of the median call, to scale; zoomable. */
function timelineSection(implementation, measured, reveal) {
  const events = measured.timeline;
  const total = Math.max(...events.map((event) => event[3]));
  const label = (step, kernel) => step === null ? `the call, ${measured.entry}`
    : kernel === null ? `step ${step + 1} on ${implementation.steps[step].device}` : `kernel ${kernel}, ${implementation.steps[step].kernels[kernel][0]}`;
  const svg = draw("svg", { height: 132, role: "img", "aria-label": "timeline of the median call" });
  const readout = make("p", { class: "readout", role: "status" }, "Point at a bar, or move along the bars with the arrow keys.");
  const bars = events.map(([step, kernel, begin, end], index) => {
    const row = step === null ? 0 : kernel === null ? 1 : 2;
    const bar = draw("rect", { y: 8 + row * 32, height: 24, class: row < 2 ? "whole" : index % 2 ? "odd" : "" });
    bar.addEventListener("pointerenter", () => show(index));
    bar.addEventListener("click", () => {
      const nodes = kernel === null ? [] : implementation.steps[step].kernels[kernel][2];
      if (nodes.length) reveal(nodes[0]);
    });
    svg.append(bar);
    return { bar, begin, end, step, kernel };
  });
  const ticks = draw("g");
  svg.append(ticks);
  const frame = make("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "timeline; arrow keys move along it" }, svg);
  let current = 0;
  function show(index) {
    bars[current].bar.classList.remove("shown");
    current = index;
    const { bar, begin, end, step, kernel } = bars[index];
    bar.classList.add("shown");
    const operators = kernel === null ? [] : implementation.steps[step].kernels[kernel][1];
    readout.textContent = `${label(step, kernel)}: ${seconds(end - begin)}, from ${seconds(begin)}` + (operators.length ? ` (${operators.join(", ")})` : "");
  }
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.max(0, Math.min(bars.length - 1, current + step)));
    const box = bars[current].bar.getBoundingClientRect(), outer = frame.getBoundingClientRect();
    if (box.left < outer.left || box.right > outer.right) frame.scrollLeft += box.left - outer.left - 40;
  });
  function layout(zoom) {
    const width = Math.max(200, frame.clientWidth || 900) * zoom;
    svg.setAttribute("width", width);
    for (const { bar, begin, end } of bars) {
      bar.setAttribute("x", begin / total * width);
      bar.setAttribute("width", Math.max(.75, (end - begin) / total * width));
    }
    const least = total / (width / 110), power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find((factor) => power * factor >= least);
    ticks.replaceChildren();
    for (let at = 0; at <= total; at += step) {
      const x = at / total * width;
      ticks.append(draw("line", { class: "axis", x1: x, x2: x, y1: 104, y2: 110 }), Object.assign(draw("text", { x: x + 2, y: 122 }), { textContent: seconds(at) }));
    }
  }
  const zoom = make("input", { type: "range", min: 0, max: 8, step: .5, value: 0, oninput: () => layout(2 ** Number(zoom.value)) });
  requestAnimationFrame(() => layout(1));
  window.addEventListener("resize", () => layout(2 ** Number(zoom.value)));
  return make("div", {}, make("p", { class: "soft" }, "Rows: the call, its steps, its kernels."),
    make("div", { class: "controls" }, make("label", {}, "Zoom", zoom)), frame, readout);
}
