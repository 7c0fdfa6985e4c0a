"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const canvas = find("cloud"), slider = find("look"), which = find("which");
  if (!data.objects.length) { find("state").textContent = "no objects"; return; }
  let object = null, yaw = 0.6, pitch = 0.35, drag = null;

  // Colour of look t of T: blue first, red last.
  const colour = (t, T) => `hsl(${220 - (220 * (t - 1)) / Math.max(1, T - 1)}, 85%, 62%)`;

  function draw() {
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const k = Number(slider.value), T = object.order.length, size = 0.44 * Math.min(w, h) / object.reach;
    const cy = Math.cos(yaw), sy = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch), p = object.points;
    const shown = [];
    for (let i = 0; i < object.seen.length; i++) {
      const x = p[3 * i], y = p[3 * i + 1], z = p[3 * i + 2];
      const across = cy * x + sy * z, depth = cy * z - sy * x;
      shown.push([across, cp * y - sp * depth, sp * y + cp * depth, object.seen[i]]);
    }
    shown.sort((a, b) => a[2] - b[2]);
    for (const [x, y, depth, look] of shown) {
      const lit = look > 0 && look <= k, near = 1 + depth / 2500, r = (lit ? 2.6 : 1.5) * near;
      pen.fillStyle = lit ? colour(look, T) : "#55606e";
      pen.beginPath();
      pen.arc(w / 2 + size * near * x, h / 2 - size * near * y, Math.max(r, 0.6), 0, 7);
      pen.fill();
    }
  }

  function tell() {
    const k = Number(slider.value), T = object.order.length;
    find("count").textContent = k;
    const shares = k ? object.shares[k - 1] : data.classes.map(() => 1 / data.classes.length);
    const end = object.crossed ? "sure enough: it stops here" : "budget spent";
    const state = k === 0 ? "(nothing seen)" : `(margin ${object.margins[k - 1].toFixed(2)}${k === object.stop ? ", " + end : k > object.stop ? ", after its exit" : ""})`;
    find("state").textContent = state;
    const ranks = shares.map((s, c) => [s, c]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 12);
    find("bars").replaceChildren(...ranks.map(([share, c]) => {
      const row = document.createElement("div"), name = document.createElement("span");
      const track = document.createElement("div"), bar = document.createElement("i"), value = document.createElement("span");
      row.className = c === object.truth ? "belief true" : "belief";
      name.textContent = data.classes[c] + (c === object.truth ? " ✓" : "");
      bar.style.width = `${100 * share}%`;
      value.textContent = `${(100 * share).toFixed(1)} %`;
      track.append(bar);
      row.append(name, track, value);
      return row;
    }));
    find("scale").replaceChildren(...object.order.map((_, t) => {
      const cell = document.createElement("i");
      cell.style.background = t < k ? colour(t + 1, T) : "var(--rule)";
      return cell;
    }));
  }

  function refresh() { tell(); draw(); }
  function open() {
    object = data.objects[Number(which.value)];
    const p = object.points, far = object.seen.map((_, i) => Math.hypot(p[3 * i], p[3 * i + 1], p[3 * i + 2]));
    object.reach = far.sort((a, b) => a - b)[Math.floor(0.97 * (far.length - 1))] || 1; // strays may lie outside
    slider.max = object.order.length;
    slider.value = object.stop;
    refresh();
  }

  which.addEventListener("change", open);
  slider.addEventListener("input", refresh);
  canvas.addEventListener("pointerdown", (e) => { drag = [e.clientX, e.clientY]; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) return;
    yaw += (e.clientX - drag[0]) / 120;
    pitch = Math.max(-1.5, Math.min(1.5, pitch + (e.clientY - drag[1]) / 120));
    drag = [e.clientX, e.clientY];
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { drag = null; });
  window.addEventListener("resize", draw);
  open();
})();
