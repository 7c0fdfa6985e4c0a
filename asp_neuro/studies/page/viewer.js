"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const canvas = find("cloud");
  if (!data.objects.length || !canvas) return;
  const slider = find("look"), strip = find("strip"), turn = find("turn"), paint = find("paint"), play = find("play");
  let object = null, yaw = 0.6, pitch = 0.35, drag = null, byLabel = false, timer = null;
  let turning = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  // Look t of T: blue first, red last. Label c: hues far apart for neighbours.
  const lookColour = (t, T) => `hsl(${220 - (220 * (t - 1)) / Math.max(1, T - 1)}, 85%, 62%)`;
  const labelColour = (c) => `hsl(${(c * 137.5) % 360}, 70%, 60%)`;

  // A drawer per kind of picture (`pictures.py`): pen, width, height, object, looks taken.
  const drawers = {
    cloud(pen, w, h, one, k) {
      const { points: p, seen, labels } = one.picture, T = one.order.length;
      const size = 0.44 * Math.min(w, h) / one.reach, scale = Math.min(w, h) / 460;
      const cy = Math.cos(yaw), sy = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch), shown = [];
      for (let i = 0; i < seen.length; i++) {
        const x = p[3 * i] - one.middle[0], y = p[3 * i + 1] - one.middle[1], z = p[3 * i + 2] - one.middle[2];
        const across = cy * x + sy * z, depth = cy * z - sy * x;
        shown.push([across, cp * y - sp * depth, sp * y + cp * depth, i]);
      }
      shown.sort((a, b) => a[2] - b[2]);
      const painted = labels && k > 0 && (byLabel || one !== object);
      for (const [x, y, depth, i] of shown) {
        const lit = seen[i] > 0 && seen[i] <= k, near = 1 + depth / 2500, r = (lit ? 3 : 1.7) * near * Math.max(scale, 0.45);
        pen.fillStyle = painted ? labelColour(labels[k - 1][i]) : lit ? lookColour(seen[i], T) : "#5b6675";
        pen.globalAlpha = lit || painted ? 1 : 0.75;
        pen.beginPath();
        pen.arc(w / 2 + size * near * x, h / 2 - size * near * y, Math.max(r, 0.5), 0, 7);
        pen.fill();
      }
      pen.globalAlpha = 1;
    },
    image(pen, w, h, one, k) {
      const { width, height, fixations, windows } = one.picture, T = one.order.length;
      const size = Math.min(w / width, h / height), left = (w - size * width) / 2, top = (h - size * height) / 2;
      if (!one.bitmap) {
        one.bitmap = new Image();
        one.bitmap.addEventListener("load", () => { draw(); thumbnails(); });
        one.bitmap.src = one.picture.pixels;
      }
      if (one.bitmap.complete) pen.drawImage(one.bitmap, left, top, size * width, size * height);
      for (let t = 0; t < k; t++) {
        const [x, y] = fixations[t];
        pen.strokeStyle = lookColour(t + 1, T);
        pen.lineWidth = 2;
        for (const wide of windows) pen.strokeRect(left + size * (x - wide / 2), top + size * (y - wide / 2), size * wide, size * wide);
      }
    },
  };

  function sheet(place, one, k) {
    const ratio = window.devicePixelRatio || 1, w = place.clientWidth, h = place.clientHeight;
    place.width = Math.round(w * ratio);
    place.height = Math.round(h * ratio);
    const pen = place.getContext("2d"), draws = one.picture && drawers[one.picture.kind];
    pen.scale(ratio, ratio);
    if (draws) return draws(pen, w, h, one, k);
    pen.fillStyle = "#9aa5b4";
    pen.font = "13px sans-serif";
    pen.textAlign = "center";
    pen.fillText(w > 100 ? "no picture of this kind yet" : "–", w / 2, h / 2);
  }
  const looks = () => Number(slider.value);
  const draw = () => sheet(canvas, object, looks());
  const thumbnails = () => [...strip.querySelectorAll("canvas")].forEach((place, at) => sheet(place, data.objects[at], data.objects[at].stop));

  const named = (one) => (one.truth === null ? one.name : data.classes[one.truth]);
  const make = (tag, words, name) => Object.assign(document.createElement(tag), { textContent: words || "", className: name || "" });

  function tell() {
    const k = looks(), T = object.order.length, C = object.shares[0].length;
    find("count").textContent = `${k} of ${T}`;
    const labelled = Boolean(k && object.picture && object.picture.labels); // of 50 labels a cloud has a few
    const shares = k ? object.shares[k - 1] : Array(C).fill(1 / C);
    const stopped = object.crossed ? "sure enough: it stops here" : "the budget is spent";
    const end = object.end ? `${stopped}. ${object.end}` : stopped;
    const known = object.truth === null ? object.name : `${named(object)} (${object.name})`;
    find("title").textContent = object.why === "at hand" ? known : `${known}: ${object.why}`;
    find("state").textContent = k === 0 ? "nothing seen yet"
      : `after ${k} look${k > 1 ? "s" : ""}: margin ${object.margins[k - 1].toFixed(2)}${object.ious ? `, IoU ${object.ious[k - 1].toFixed(2)}` : ""}${k === object.stop ? ", " + end : k > object.stop ? ", after its exit" : ""}`;
    const ranks = shares.map((s, c) => [s, c]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 10).filter(([s]) => s > 0 || !labelled);
    find("bars").replaceChildren(...ranks.map(([share, c]) => {
      const right = c === object.truth, row = make("div", "", right ? "belief true" : "belief");
      const track = make("div"), bar = make("i");
      bar.style.width = `${100 * share}%`;
      if (byLabel) bar.style.background = labelColour(c);
      track.append(bar);
      row.append(make("span", (data.classes[c] || `label ${c}`) + (right ? " ✓" : "")), track, make("span", `${(100 * share).toFixed(1)} %`));
      return row;
    }));
    find("scale").replaceChildren(...object.order.map((_, t) => {
      const cell = make("i");
      cell.style.background = t < k ? lookColour(t + 1, T) : "var(--rule)";
      return cell;
    }));
    margins(k, T);
  }

  function margins(k, T) {
    const x = (t) => 8 + (284 * (t - 1)) / Math.max(1, T - 1), y = (m) => 78 - 66 * m;
    const line = object.margins.map((m, t) => `${x(t + 1).toFixed(1)},${y(m).toFixed(1)}`).join(" ");
    let inside = `<title>margin after each look</title><line class="grid" x1="8" x2="292" y1="78" y2="78"/><polyline class="a" points="${line}"/>`;
    if (data.tau !== null) inside += `<line class="mark" x1="8" x2="292" y1="${y(data.tau)}" y2="${y(data.tau)}"/>`;
    if (k) inside += `<circle class="now" cx="${x(k)}" cy="${y(object.margins[k - 1])}" r="4"/>`;
    find("margins").innerHTML = `${inside}<text x="8" y="91">margin, look 1</text><text x="292" y="91" text-anchor="end">${T}</text>`;
  }

  function refresh() { tell(); draw(); }
  function open(at) {
    object = data.objects[at];
    byLabel = Boolean(object.picture && object.picture.labels);
    paint.textContent = byLabel ? "by label" : "by look";
    [...strip.querySelectorAll("button")].forEach((one, n) => one.setAttribute("aria-selected", n === at));
    turn.hidden = !(object.picture && object.picture.kind === "cloud");
    paint.hidden = !(object.picture && object.picture.labels);
    slider.max = object.order.length;
    slider.value = object.stop;
    refresh();
  }
  function stop() { clearInterval(timer); timer = null; play.textContent = "play"; }

  let group = null;
  data.objects.forEach((one, at) => {
    const points = (one.picture && one.picture.points) || [], far = [];
    const ranked = (values, share) => values.sort((a, b) => a - b)[Math.floor(share * (values.length - 1))]; // strays may lie outside
    one.middle = [0, 1, 2].map((axis) => {
      const along = points.filter((_, i) => i % 3 === axis);
      return along.length ? (ranked(along, 0.01) + ranked(along, 0.99)) / 2 : 0;
    });
    for (let i = 0; i < points.length; i += 3) far.push(Math.hypot(...one.middle.map((m, axis) => points[i + axis] - m)));
    one.reach = ranked(far, 0.99) || 1;
    if (one.why !== group) strip.append(make("div", (group = one.why), "group"));
    const button = make("button");
    button.type = "button";
    button.setAttribute("role", "option");
    button.append(make("canvas"), make("span", named(one)));
    button.addEventListener("click", () => { stop(); open(at); });
    strip.append(button);
  });

  slider.addEventListener("input", () => { stop(); refresh(); });
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (looks() >= object.stop) slider.value = 0;
    play.textContent = "pause";
    refresh();
    timer = setInterval(() => {
      slider.value = looks() + 1;
      refresh();
      if (looks() >= object.stop) stop();
    }, 700);
  });
  turn.addEventListener("click", () => { turning = !turning; shown(); });
  paint.addEventListener("click", () => { byLabel = !byLabel; paint.textContent = byLabel ? "by label" : "by look"; refresh(); });
  const shown = () => { turn.textContent = turning ? "turning" : "still"; turn.setAttribute("aria-pressed", turning); };
  canvas.addEventListener("pointerdown", (e) => { drag = [e.clientX, e.clientY]; turning = false; shown(); canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) return;
    yaw += (e.clientX - drag[0]) / 120;
    pitch = Math.max(-1.5, Math.min(1.5, pitch + (e.clientY - drag[1]) / 120));
    drag = [e.clientX, e.clientY];
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { drag = null; });
  window.addEventListener("resize", () => { draw(); thumbnails(); });

  let before = null;
  function tick(now) {
    if (turning && before !== null && object.picture && object.picture.kind === "cloud") { yaw += Math.min(now - before, 100) / 3000; draw(); }
    before = now;
    requestAnimationFrame(tick);
  }
  shown();
  open(0);
  thumbnails();
  requestAnimationFrame(tick);
})();
