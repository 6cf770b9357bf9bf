"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const make = (tag, parent, text, className) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    if (parent) parent.append(node);
    return node;
  };
  const style = () => getComputedStyle(document.documentElement);
  // Told apart on light and dark ground, and by most who see colours otherwise (after Okabe and Ito, and Tol).
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#9467bd", "#8c6d31", "#b4b000",
    "#17a2a2", "#e15780", "#7f7f7f", "#4c6ef5", "#74b816", "#f76707", "#ae3ec9", "#1098ad", "#a0522d", "#6c8ebf"];
  const policies = data.policies.map((policy, at) => ({ ...policy, colour: COLOURS[at % COLOURS.length], shown: true }));
  const hasBoth = policies.some((p) => p.is_oracle) && policies.some((p) => !p.is_oracle);
  const number = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const UNITS = [["s", 1, 120], ["min", 60, 7200], ["h", 3600, 172800], ["d", 86400, Infinity]];
  const unitOf = (seconds) => UNITS.find(([, , below]) => seconds < below);
  const span = (seconds) => {
    const [unit, size] = unitOf(seconds);
    const value = seconds / size;
    return `${number(value, value < 10 && value % 1 ? 1 : 0)} ${unit}`;
  };
  const label = (policy) => (policy.is_oracle ? `${policy.name} ◇` : policy.name);

  function head() {
    const { cluster, trace } = data;
    by("title").textContent = policies.length === 1 ? policies[0].name : `${policies.length} policies`;
    document.title = `Phalanx: ${policies.map((p) => p.name).join(", ")}`;
    by("facts").textContent = `${number(trace.replayed, 0)} jobs (${trace.format}) on ${number(cluster.gpus, 0)} GPUs ` +
      `(${cluster.models.join(", ")}) of ${number(cluster.nodes, 0)} nodes in ${number(cluster.leaves, 0)} leaves: ` +
      `${cluster.name}. Phalanx ${data.version}, seed ${data.seed}.`;
    for (const line of data.world) make("li", by("world"), line);
    const fewer = policies.find((p) => p.metrics.compared < p.metrics.ended);
    if (fewer) {
      make("li", by("world"), "compared: not the same jobs ended under all policies; completion, waits and fairness are of " +
        `the ${number(fewer.metrics.compared, 0)} that did`);
    }
    const inputs = data.inputs.map((input) => `${input.name}, ${number(input.bytes, 0)} bytes, ${input.digest}`);
    by("inputs").textContent = `Inputs: ${inputs.join("; ")}. The same again: ${data.command}`;
  }

  const COLUMNS = [
    ["Completion", "mean", "time", (m) => m.completion_s.mean], ["", "p50", "time", (m) => m.completion_s.p50],
    ["", "p99", "time", (m) => m.completion_s.p99], ["Waited", "mean", "time", (m) => m.waited_s.mean],
    ["", "p99", "time", (m) => m.waited_s.p99], ["Makespan", "", "time", (m) => m.makespan_s],
    ["GPUs, %", "held", "more", (m) => m.allocated_percent], ["", "useful", "more", (m) => m.useful_percent],
    ["Fairness ρ", "mean", "less", (m) => m.fairness.mean], ["", "worst", "less", (m) => m.fairness.worst],
    ["", "> 1.05, %", "share", (m) => m.fairness.unfair_percent], ["Killed", "at limits", "rare", (m) => m.killed], ["Stopped", "times", "count", (m) => m.preemptions],
    ["Lost", "GPU-hours", "count", (m) => m.lost_gpu_hours], ["Leaves", "over least", "less", (m) => m.leaves_over_least],
    ["Ended", "of jobs, %", "ended", (m) => m.ended / Math.max(m.jobs, 1) * 100],
  ];

  const held = (p, hours) => hours / Math.max(p.metrics.gpu_hours.held, 1e-9) * 100;
  const TIME_COLUMNS = [
    ["Of the GPU time held, %", "useful", "part", (m, p) => held(p, m.gpu_hours.useful)],
    ["", "starts", "part", (m, p) => held(p, m.gpu_hours.starting)], ["", "saving", "part", (m, p) => held(p, m.gpu_hours.saving)],
    ["", "lost nodes", "part", (m, p) => held(p, m.gpu_hours.lost_nodes)], ["", "stops", "part", (m, p) => held(p, m.gpu_hours.stops)], ["", "killed", "rarePart", (m, p) => held(p, m.gpu_hours.limits)],
    ["", "slow nodes", "part", (m, p) => held(p, m.gpu_hours.slow_nodes)], ["", "far places", "part", (m, p) => held(p, m.gpu_hours.places)],
    ["ETTR", "%", "more", (m) => m.ettr_percent], ["Slower", "by place", "less", (m) => m.place_slowdown],
    ["Cost", "cluster", "count", (_, p) => p.cost.cluster], ["", "per useful GPU-hour", "less", (_, p) => p.cost.per_useful_gpu_hour],
  ];

  function summary(id, all) {
    const table = make("table", by(id));
    const top = make("thead", table);
    const [groups, names] = [make("tr", top), make("tr", top)];
    make("th", groups);
    make("th", names, "Policy");
    const isShown = ([, , kind, of]) => !kind.startsWith("rare") || policies.some((p) => of(p.metrics, p) > 0);
    const columns = all.filter(isShown).map(([group, name, kind, of]) => {
      const values = policies.map((policy) => of(policy.metrics, policy));
      const fair = policies.filter((p) => !hasBoth || !p.is_oracle).map((p) => of(p.metrics, p));
      const best = ["more", "ended"].includes(kind) ? Math.max(...fair) : Math.min(...fair);
      const [unit, size] = kind === "time" ? unitOf(Math.max(...values)) : ["", 1];
      make("th", groups, group);
      make("th", names, unit ? `${name}${name ? ", " : ""}${unit}` : name);
      const digits = { time: 2, more: 1, less: 2, share: 1, part: 1, ended: 1, count: 0, rare: 0, rarePart: 1 }[kind];
      return { kind, of, best, size, digits };
    });
    const body = make("tbody", table);
    const sorted = [...policies].sort((a, b) => a.is_oracle - b.is_oracle);
    for (const policy of sorted) {
      const row = make("tr", body, undefined, policy.is_oracle ? "oracle" : "");
      const name = make("th", row);
      make("span", name, undefined, "dot").style.background = policy.colour;
      name.append(label(policy));
      for (const { kind, of, best, size, digits } of columns) {
        const value = of(policy.metrics, policy);
        const cell = make("td", row, number(value / size, digits));
        if (value === best && !["part", "rarePart"].includes(kind) && policies.length > 1 && !(hasBoth && policy.is_oracle)) cell.className = "best";
        const ratio = kind === "more" ? best / value : value / best;
        if (policies.length > 1 && ["time", "more", "less"].includes(kind)) {
          make("small", cell, Number.isFinite(ratio) ? `× ${number(ratio, 2)}` : "\u00a0");
        }
      }
    }
  }

  const charts = [];
  /// A chart of a line for each policy (or of what `series` says), drawn anew when the page changes its width.
  function chart(id, x, ys, options) {
    const place = by(id);
    const axis = { stroke: () => style().getPropertyValue("--weak"), grid: { stroke: () => style().getPropertyValue("--line"), width: 1 },
      ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const series = ys.map(({ name, colour, width, fill, show }) => ({ label: name, stroke: colour, width: width ?? 1.5, fill, show: show ?? true,
      points: { show: false }, paths: options.paths, value: (_, v) => (v == null ? "–" : options.value(v)) }));
    const plot = new uPlot({
      width: Math.max(place.clientWidth, 200), height: 260, padding: [8, 12, 0, 0], cursor: { drag: { x: true, y: false } },
      legend: { show: true, live: true },
      scales: { x: { time: false, distr: options.log ? 3 : 1, log: options.log ?? 10, range: options.xRange }, y: { range: options.yRange } },
      axes: [{ ...axis, size: 28, values: options.xTicks, splits: options.xSplits, filter: options.log ? (_, splits) => splits : undefined },
        { ...axis, size: 52, values: (_, ticks) => ticks.map(options.value) }],
      series: [{ label: options.xName, value: (_, v) => (v == null ? "–" : options.xValue(v)) }, ...series],
      hooks: options.hooks ?? {}, bands: options.bands,
    }, [x, ...ys.map((y) => y.values)], place);
    charts.push({ plot, place });
    return plot;
  }
  window.addEventListener("resize", () => charts.forEach(({ plot, place }) => plot.setSize({ width: Math.max(place.clientWidth, 200), height: 260 })));

  const perPolicy = [];
  function lines(id, x, of, options) {
    const ys = policies.map((policy) => ({ name: label(policy), colour: policy.colour, values: of(policy) }));
    perPolicy.push(chart(id, x, ys, options));
  }

  const step = data.time.step_ms / 1000;
  const times = Array.from({ length: data.time.points }, (_, at) => data.time.from_ms / 1000 + at * step);
  const [timeUnit, timeSize] = unitOf(times.length ? times[times.length - 1] - times[0] + step : 1);
  const TIME = {
    xName: "time", xValue: (v) => `${number(v / timeSize, 1)} ${timeUnit}`, paths: uPlot.paths.stepped({ align: 1 }),
    xSplits: (_, __, from, to) => {
      const width = (to - from) / timeSize;
      const size = [0.1, 0.2, 0.5, 1, 2, 5, 6, 12, 24, 10, 20, 30, 50, 60, 100, 200, 500, 1000].sort((a, b) => a - b).find((s) => width / s <= 8) ?? width / 5;
      const ticks = [];
      for (let at = Math.ceil(from / timeSize / size) * size; at <= to / timeSize; at += size) ticks.push(at * timeSize);
      return ticks;
    },
    xTicks: (_, ticks) => ticks.map((t) => `${number(t / timeSize, Number.isInteger(+(t / timeSize).toFixed(6)) ? 0 : 1)} ${timeUnit}`),
  };
  const percent = (v) => `${number(v, v < 10 && v % 1 ? 1 : 0)} %`;
  const count = (v) => number(v, v < 10 && v % 1 ? 1 : 0);
  const top = (_, __, max) => [0, Math.max(max * 1.05, 1)];

  function overTime() {
    lines("allocated", times, (p) => p.over_time.allocated_percent, { ...TIME, value: percent, yRange: [0, 100] });
    lines("waiting", times, (p) => p.over_time.waiting_jobs, { ...TIME, value: count, yRange: top });
    lines("wanted", times, (p) => p.over_time.wanted_percent, { ...TIME, value: percent, yRange: top });
    lines("broken", times, (p) => p.over_time.broken_percent, { ...TIME, value: percent, yRange: top });
  }

  const SECONDS = [1, 5, 15, 60, 300, 1800, 7200, 43200, 172800, 864000, 4320000, 31536000, 315360000];
  function distributions() {
    const { seconds, rho } = data.axes;
    const log = { log: 2, paths: undefined, value: percent, yRange: [0, 100] };
    const time = { ...log, xName: "at most", xValue: span, xSplits: () => SECONDS, xTicks: (_, ticks) => ticks.map(span),
      xRange: [seconds[0], seconds[seconds.length - 1]] };
    const filled = (values, x) => (values.length ? values : x.map(() => null));
    lines("completion", seconds, (p) => filled(p.distributions.completion, seconds), time);
    lines("waited", seconds, (p) => filled(p.distributions.waited, seconds), time);
    lines("fairness", rho, (p) => filled(p.distributions.fairness, rho), { ...log, xName: "ρ", xValue: (v) => number(v, 2),
      xSplits: () => [0.5, 1, 2, 4, 8, 16, 32], xTicks: (_, ticks) => ticks.map(String), xRange: [rho[0], rho[rho.length - 1]] });
  }

  const rows = [];
  function bars(parent, values, tell) {
    const grid = make("div", parent, undefined, "bars");
    for (const policy of policies) {
      const cells = [make("div", grid, label(policy)), make("div", grid, undefined, "track"), make("div", grid, undefined, "value")];
      rows.push({ policy, cells });
      tell(policy, cells[1], cells[2]);
    }
  }

  function sizes() {
    const classes = new Map();
    for (const policy of policies) for (const size of policy.metrics.by_size) classes.set(size.gpus[0], size.gpus);
    const all = policies.flatMap((p) => p.metrics.by_size.flatMap((s) => [s.completion_s.mean, s.completion_s.p99]));
    const [least, most] = [Math.min(...all.filter((v) => v > 0), 1e9) / 2, Math.max(...all, 1)];
    const share = (v) => (v > 0 ? Math.log(v / least) / Math.log(most / least) * 100 : 0);
    for (const [from, to] of [...classes.values()].sort((a, b) => a[0] - b[0])) {
      const name = to === from ? `${from}` : to > 1e9 ? `${from} or more` : `${from} to ${to}`;
      const figure = make("figure", by("sizes"));
      const jobs = Math.max(...policies.map((p) => p.metrics.by_size.find((s) => s.gpus[0] === from)?.jobs ?? 0));
      make("small", make("figcaption", figure, `${name} GPU${to === 1 ? "" : "s"} `), `${number(jobs, 0)} jobs`);
      bars(figure, policies, (policy, track, value) => {
        const size = policy.metrics.by_size.find((s) => s.gpus[0] === from);
        if (!size) return;
        const { mean, p99 } = size.completion_s;
        const bar = make("div", track, undefined, "bar");
        bar.style.cssText = `width: ${share(mean)}%; background: ${policy.colour}`;
        const mark = make("div", track, undefined, "mark");
        const [a, b] = [share(Math.min(mean, p99)), share(Math.max(mean, p99))];
        mark.style.cssText = `left: ${a}%; width: ${b - a}%; background: ${policy.colour}`;
        value.textContent = `${span(mean)}; p99 ${span(p99)}`;
      });
    }
  }

  function leaves() {
    const names = ["the fewest", "1 more", "2", "3", "4 or more"];
    const colours = [0.15, 0.4, 0.6, 0.8, 1].map((a) => `rgba(213, 94, 0, ${a})`);
    bars(by("leaves"), policies, (policy, track, value) => {
      const counts = policy.distributions.leaves_beyond;
      const all = Math.max(counts.reduce((a, b) => a + b, 0), 1);
      track.classList.add("parts");
      counts.forEach((n, at) => {
        const part = make("div", track, undefined, "bar");
        part.title = `${names[at]}: ${number(n, 0)} jobs`;
        part.style.cssText = `width: ${n / all * 100}%; background: ${colours[at]}; border-radius: 0`;
      });
      value.textContent = `${number((all - counts[0]) / all * 100, 1)} % beyond; ${number(policy.metrics.leaves_over_least, 2)} over least`;
    });
    const keys = make("p", by("leaves"), undefined, "keys");
    names.forEach((name, at) => {
      const key = make("span", keys);
      make("i", key, undefined, "dot").style.background = colours[at];
      key.append(name);
    });
    const parts = [["starts and restores", "starting", "#e69f00"], ["saving", "saving", "#56b4e9"], ["lost nodes", "lost_nodes", "#d55e00"],
      ["stops", "stops", "#cc79a7"], ["killed at limits", "limits", "#7f7f7f"], ["slow nodes", "slow_nodes", "#8c6d31"], ["far places", "places", "#0072b2"]]
      .map(([name, key, colour]) => [name, (m) => m.gpu_hours[key], colour]);
    const most = Math.max(...policies.map((p) => parts.reduce((sum, [, of]) => sum + of(p.metrics), 0)), 1e-9);
    bars(by("costs"), policies, (policy, track, value) => {
      track.classList.add("parts");
      for (const [name, of, colour] of parts) {
        const part = make("div", track, undefined, "bar");
        part.title = `${name}: ${number(of(policy.metrics), 1)} GPU-hours`;
        part.style.cssText = `width: ${of(policy.metrics) / most * 100}%; background: ${colour}; border-radius: 0`;
      }
      const { preemptions, moves } = policy.metrics;
      const hours = number(parts.reduce((sum, [, of]) => sum + of(policy.metrics), 0), 1);
      value.textContent = `${hours} GPU-h; ${number(preemptions, 0)} stops, ${number(moves, 0)} moves`;
    });
    const costs = make("p", by("costs"), undefined, "keys");
    for (const [name, , colour] of parts) {
      const key = make("span", costs);
      make("i", key, undefined, "dot").style.background = colour;
      key.append(`${name}, GPU-hours`);
    }
  }

  function queues() {
    const select = by("queues-of");
    for (const policy of policies) make("option", select, label(policy));
    let drawn;
    const draw = () => {
      if (drawn) {
        charts.splice(charts.findIndex(({ plot }) => plot === drawn), 1);
        drawn.destroy();
      }
      const shares = policies[select.selectedIndex].over_time.queues_percent;
      // Areas upon each other: each line is the sum of those before it, and the fill goes down to the one before.
      let sum = times.map(() => 0);
      const ys = data.queues.map((name, at) => {
        sum = sum.map((value, t) => value + (shares[at]?.[t] ?? 0));
        const colour = COLOURS[at % COLOURS.length];
        return { name, colour, values: sum, own: shares[at], width: 1, fill: `${colour}55` };
      });
      const bands = ys.slice(1).map((_, at) => ({ series: [at + 2, at + 1] }));
      drawn = chart("queues", times, ys, { ...TIME, value: percent, yRange: [0, 100], bands });
      ys.forEach((y, at) => {
        drawn.series[at + 1].value = (_, __, ___, index) => (index == null ? "–" : percent(y.own?.[index] ?? 0));
      });
    };
    select.addEventListener("change", draw);
    draw();
  }

  const maps = [];
  function heat() {
    const end = data.time.from_ms / 1000 + data.time.points * step;
    for (const policy of policies) {
      const figure = make("figure", by("maps"));
      rows.push({ policy, cells: [figure] });
      make("figcaption", figure, label(policy));
      const map = make("div", figure, undefined, "map");
      const names = make("div", map, undefined, "rows");
      make("span", names, "leaf 0");
      make("span", names, `${data.cluster.leaves - 1}`);
      const canvas = make("canvas", map);
      const leaves = policy.over_time.leaves_percent;
      canvas.width = Math.max(data.time.points, 1);
      canvas.height = Math.max(leaves.length, 1);
      const axis = make("div", map, undefined, "times");
      for (const part of [0, 0.25, 0.5, 0.75, 1]) {
        const at = data.time.from_ms / 1000 + (end - data.time.from_ms / 1000) * part;
        make("span", axis, `${number(at / timeSize, 1)} ${timeUnit}`);
      }
      const now = make("div", map, undefined, "now");
      canvas.addEventListener("mousemove", (event) => {
        const box = canvas.getBoundingClientRect();
        const t = Math.min(Math.floor((event.clientX - box.left) / box.width * canvas.width), canvas.width - 1);
        const row = Math.min(Math.floor((event.clientY - box.top) / box.height * canvas.height), canvas.height - 1);
        const perRow = data.cluster.leaves / leaves.length;
        const [first, last] = [Math.ceil(row * perRow), Math.ceil((row + 1) * perRow) - 1];
        const name = first === last ? `leaf ${first}` : `leaves ${first} to ${last}`;
        now.textContent = `${name}, ${TIME.xValue(times[t] ?? 0)}: ${percent(leaves[row]?.[t] ?? 0)} of ${data.leaf_gpus[row]} GPUs`;
      });
      canvas.addEventListener("mouseleave", () => { now.textContent = ""; });
      maps.push({ canvas, leaves });
    }
    paint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      paint();
      charts.forEach(({ plot }) => plot.redraw());
    });
  }

  function paint() {
    const [red, green, blue] = style().getPropertyValue("--hot").split(",").map(Number);
    for (const { canvas, leaves } of maps) {
      const image = new ImageData(canvas.width, canvas.height);
      leaves.forEach((row, y) => row.forEach((value, x) => {
        image.data.set([red, green, blue, Math.round(value * 2.55)], (y * canvas.width + x) * 4);
      }));
      canvas.getContext("2d").putImageData(image, 0, 0);
    }
  }

  function legend() {
    if (policies.length < 2) {
      by("legend").remove();
      return;
    }
    policies.forEach((policy, at) => {
      const button = make("button", by("legend"));
      make("span", button, undefined, "dot").style.background = policy.colour;
      button.append(label(policy));
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        policy.shown = !policy.shown;
        button.setAttribute("aria-pressed", String(policy.shown));
        perPolicy.forEach((plot) => plot.setSeries(at + 1, { show: policy.shown }));
        for (const row of rows) if (row.policy === policy) row.cells.forEach((cell) => cell.classList.toggle("hidden", !policy.shown));
      });
    });
  }

  head();
  legend();
  summary("summary-table", COLUMNS);
  summary("time-table", TIME_COLUMNS);
  overTime();
  distributions();
  sizes();
  leaves();
  queues();
  heat();
  document.documentElement.dataset.drawn = charts.length;
})();
