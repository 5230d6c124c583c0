// The clock, the state at a time, the curves, and the keys of the saved page.

// ---- the robot at a time
class Motion {
  constructor(arrays) {
    this.arrays = arrays;
    this.poses = arrays[about.poses];
    this.turns = arrays[about.turns];
  }

  // columns of one array (component by component, each through all frames), between two frames
  between(array, width, first, s) {
    const n = about.frames, k = Math.min(n - 1, Math.floor(s)), w = s - k, next = Math.min(n - 1, k + 1), out = [];
    for (let c = first; c < first + width; c++) out.push((1 - w) * array[c * n + k] + w * array[c * n + next]);
    return out;
  }

  pose(link, s) {
    if (!link) return placed([1, 0, 0, 0], [0, 0, 0]);
    const q = this.between(this.turns, 4, 4 * (link - 1), s), norm = Math.hypot(...q) || 1;
    return placed(q.map((x) => x / norm), this.between(this.poses, 3, 3 * (link - 1), s));
  }

  // everything that is drawn at frame s, which need not be whole
  at(s) {
    const links = Array.from({ length: about.links + 1 }, (_, i) => this.pose(i, s));
    const items = about.shapes.map((x) => ({ mesh: x.mesh, color: x.color, matrix: links[x.link] }));
    return { items: [...items, ...this.arrows(s, links), ...this.mass(s)], lines: this.lines(s, links) };
  }

  arrows(s, links) {
    const found = [], thick = 0.0154 * about.size, head = 0.056 * about.size;
    for (const { array, color } of about.arrows) {
      for (let i = 1; i <= about.links; i++) {
        const x = this.between(this.arrays[array], 6, 6 * (i - 1), s), length = Math.hypot(x[3], x[4], x[5]);
        if (!(length > 0.01 * about.size)) continue;
        const start = apply(links[i], x.slice(0, 3)), end = apply(links[i], add(x.slice(0, 3), x.slice(3)));
        const way = sub(end, start), tip = Math.min(head, 0.6 * length) / length;
        found.push({ mesh: about.shaft, color, bare: true, matrix: along(start, add([0, 0, 0], way, 1 - tip), thick) });
        const from = add(start, way, 1 - tip);
        found.push({ mesh: about.head, color, bare: true, matrix: along(from, add([0, 0, 0], way, tip), 2 * thick) });
      }
    }
    return found;
  }

  mass(s) {
    if (about.com === null) return [];
    const matrix = scaled(this.between(this.arrays[about.com.array], 3, 0, s), 0.028 * about.size);
    return [{ mesh: about.ball, color: about.com.color, bare: true, matrix }];
  }

  lines(s, links) {
    const found = [], last = Math.floor(s);
    for (const { array, color } of about.trails) {
      const points = [];
      for (let k = Math.max(0, last - about.trail_frames); k <= last; k++) points.push(...this.between(this.arrays[array], 3, 0, k));
      points.push(...this.between(this.arrays[array], 3, 0, s));
      found.push({ points, color, width: 2 });
    }
    if (about.com !== null) {
      const c = this.between(this.arrays[about.com.array], 3, 0, s);
      found.push({ points: [...c, ...add(c, about.up, about.floor - dot(c, about.up))], color: about.com.color, width: 1.5 });
    }
    for (const T of about.axes ? links.slice(1) : []) {
      const p = apply(T, [0, 0, 0]), l = 0.08 * about.size;
      [[l, 0, 0], [0, l, 0], [0, 0, l]].forEach((axis, k) => {
        found.push({ points: [...p, ...apply(T, axis)], color: [0.85 * (k === 0), 0.65 * (k === 1), 0.95 * (k === 2), 1], width: 2.5 });
      });
    }
    return found;
  }
}

// ---- curves: an SVG each, and a line at the time
const SVG = "http://www.w3.org/2000/svg";
function element(parent, name, attributes = {}, text = "") {
  const e = parent.namespaceURI === SVG || name === "svg" ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text) e.textContent = text;
  return parent.appendChild(e);
}

function ticks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((k) => k * power >= rough), out = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-12); k++) out.push(k * step);
  return out;
}
const label = (x) => (Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(0) : String(Number(x.toPrecision(4))));

function curve({ title, series }, t, arrays) {
  const W = 340, H = 190, left = 46, right = 8, top = 8, bottom = 22;
  const box = element($("curves"), "figure");
  element(box, "figcaption", {}, title);
  const svg = element(box, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  let low = Infinity, high = -Infinity;
  for (const { array } of series) for (const y of arrays[array]) if (isFinite(y)) [low, high] = [Math.min(low, y), Math.max(high, y)];
  if (!(high >= low)) [low, high] = [0, 1];
  const margin = 0.06 * (high - low) || Math.max(1e-3, 0.05 * Math.abs(high));
  [low, high] = [low - margin, high + margin];
  const begin = t[0], end = Math.max(t[t.length - 1], begin + 1e-3);
  const X = (x) => left + ((W - left - right) * (x - begin)) / (end - begin), Y = (y) => top + ((H - top - bottom) * (high - y)) / (high - low);
  for (const y of ticks(low, high)) {
    element(svg, "line", { x1: left, x2: W - right, y1: Y(y), y2: Y(y), class: "grid" });
    element(svg, "text", { x: left - 5, y: Y(y) + 3.5, "text-anchor": "end" }, label(y));
  }
  for (const x of ticks(begin, end)) element(svg, "text", { x: X(x), y: H - 7, "text-anchor": "middle" }, label(x) + (x === begin ? " s" : ""));
  const legend = element(box, "div", { class: "legend" });
  for (const { name, color, array } of series) {
    let d = "", pen = "M";
    arrays[array].forEach((y, k) => {
      if (isFinite(y)) d += `${pen}${X(t[k]).toFixed(1)} ${Y(y).toFixed(1)}`;
      pen = isFinite(y) ? "L" : "M";
    });
    element(svg, "path", { d, stroke: color, class: "curve" });
    const entry = element(legend, "span");
    element(entry, "i").style.background = color;
    element(entry, "span", {}, name);
  }
  const now = element(svg, "line", { y1: top, y2: H - bottom, class: "now" });
  return (x) => [now.setAttribute("x1", X(x)), now.setAttribute("x2", X(x))];
}

// ---- the clock
async function start() {
  const arrays = await unpacked(), motion = new Motion(arrays), canvas = $("view");
  const begin = about.begin, step = about.step, end = begin + step * (about.frames - 1);
  const marks = about.curves.map((c) => curve(c, arrays[about.times], arrays));
  let picture = null;
  try {
    picture = new Picture(canvas, arrays);
  } catch (error) {
    $("problem").textContent = error.message;
  }
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches, asked = /^#t=([\d.eE+-]+)$/.exec(location.hash);
  let time = asked ? Number(asked[1]) : begin, playing = !calm && !asked, last = null, dirty = true, base = null;
  const speeds = [...$("speed").options].map((o) => Number(o.value));

  const show = (t) => {
    time = Math.min(end, Math.max(begin, isFinite(t) ? t : begin));
    $("time").value = time;
    $("clock").textContent = `${time.toFixed(about.digits)} s`;
    marks.forEach((mark) => mark(time));
    dirty = true;
  };
  const play = (on) => {
    if (on && time >= end) show(begin);
    playing = on;
    $("play").textContent = on ? "Pause" : "Play";
  };
  const faster = (k) => {
    const at = Math.min(speeds.length - 1, Math.max(0, $("speed").selectedIndex + k));
    $("speed").selectedIndex = at;
  };
  const jump = (frames) => [play(false), show(begin + step * Math.round((time - begin) / step + frames))];
  const keys = {
    " ": () => play(!playing), ArrowRight: (e) => jump(e.shiftKey ? 10 : 1), ArrowLeft: (e) => jump(e.shiftKey ? -10 : -1),
    ArrowUp: () => faster(1), ArrowDown: () => faster(-1), Home: () => show(begin), End: () => [play(false), show(end)],
    r: () => picture && [picture.reset(), (dirty = true)], f: () => $("follow").click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys) || event.target.tagName === "SELECT") return;
    event.preventDefault();
    keys[event.key](event);
  });
  $("play").addEventListener("click", () => play(!playing));
  $("play").addEventListener("keyup", (event) => event.key === " " && event.preventDefault());
  $("time").addEventListener("input", () => [play(false), show(Number($("time").value))]);
  Object.assign($("time"), { min: begin, max: end, step: "any" });
  $("follow").checked = about.follow;
  $("follow").addEventListener("change", () => (dirty = true));
  if (picture) pointer(canvas, picture, () => (dirty = true));
  new ResizeObserver(() => (dirty = true)).observe(canvas);

  const frame = (now) => {
    if (playing && last !== null) {
      const t = time + ((now - last) / 1000) * Number($("speed").value);
      show(t < end ? t : begin);
    }
    last = now;
    if (dirty && picture) {
      const s = (time - begin) / step, T = about.root ? apply(motion.pose(about.root, s), [0, 0, 0]) : [0, 0, 0];
      if (base && $("follow").checked) picture.look = add(picture.look, sub(T, base));
      else if (!base && $("follow").checked) [picture.look, picture.distance] = [T, 2.4 * about.size];
      base = T;
      picture.draw(motion.at(s));
      dirty = false;
    }
    document.body.dataset.ready = "yes";
    requestAnimationFrame(frame);
  };
  play(playing);
  show(time);
  requestAnimationFrame(frame);
}

function pointer(canvas, picture, changed) {
  canvas.addEventListener("pointerdown", (e) => canvas.setPointerCapture(e.pointerId));
  canvas.addEventListener("pointermove", (e) => {
    if (!e.buttons) return;
    if (e.shiftKey || e.buttons & 6) picture.pan(e.movementX, e.movementY);
    else picture.turn(0.007 * e.movementX, 0.007 * e.movementY);
    changed();
  });
  canvas.addEventListener("contextmenu", (e) => e.preventDefault());
  canvas.addEventListener("dblclick", () => [picture.reset(), changed()]);
  const zoom = (e) => [e.preventDefault(), (picture.distance *= Math.exp(0.001 * e.deltaY)), changed()];
  canvas.addEventListener("wheel", zoom, { passive: false });
}

start().catch((error) => ($("problem").textContent = error.message));
