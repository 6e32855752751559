"use strict";
const D = JSON.parse(document.getElementById("data").textContent), W = 560;
const $ = (id) => document.getElementById(id);
const esc = (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const num = (x) => +x.toPrecision(4) + "";
let episode = 0, now = 0, timer = 0;

// Heat maps: drawn once, a pixel a cell.
const heat = D.grids.map((g) => {
  const rows = g.values.length, columns = g.values[0].length, all = g.values.flat();
  const low = Math.min(...all), span = Math.max(...all) - low;
  const share = (v) => span > 0 ? (v - low) / span : 0.5;
  const canvas = document.createElement("canvas");
  canvas.width = columns; canvas.height = rows;
  const pen = canvas.getContext("2d");
  g.values.forEach((row, i) => row.forEach((v, j) => {
    pen.fillStyle = D.shades[Math.round(share(v) * (D.shades.length - 1))];
    pen.fillRect(j, i, 1, 1);
  }));
  return { url: canvas.toDataURL(), share };
});

function painter(view) {
  const k = W / (view[2] - view[0]);
  const X = (x) => ((x - view[0]) * k).toFixed(1), Y = (y) => (W - (y - view[1]) * k).toFixed(1);
  const write = (x, y, text, size, fill) => `<text x="${x}" y="${y}" font-size="${size.toFixed(1)}" fill="${fill}">${esc(text)}</text>`;
  const arc = (x, y, r, share) => {
    if (share >= 1) return `<circle cx="${x}" cy="${y}" r="${r}" fill="none" stroke="var(--m2)" stroke-width="2.5"/>`;
    const a = 2 * Math.PI * share, to = [+x + r * Math.sin(a), +y - r * Math.cos(a)];
    return share <= 0 ? "" : `<path d="M${x} ${y - r}A${r} ${r} 0 ${share > 0.5 ? 1 : 0} 1 ${to[0].toFixed(1)} ${to[1].toFixed(1)}" fill="none" stroke="var(--m2)" stroke-width="2.5"/>`;
  };
  return {
    circle([x, y, radius, colour, label, filled, ring, faded]) {
      const cx = X(x), cy = Y(y), r = radius * k, c = `var(--${colour})`;
      let out = `<circle cx="${cx}" cy="${cy}" r="${r.toFixed(1)}" fill="${filled ? c : "none"}" stroke="${c}" stroke-width="2"${faded ? ' opacity=".35"' : ""}/>`;
      if (ring !== null) out += `<circle cx="${cx}" cy="${cy}" r="${(r + 4).toFixed(1)}" fill="none" stroke="var(--line)" stroke-width="2.5"/>` + arc(cx, cy, r + 4, ring);
      if (!label) return out;
      if (r >= 8) return out + write(cx, cy, label, Math.min(1.1 * r, 16), faded ? "var(--ink)" : "var(--paper)");
      return out + write((+cx + r + 7).toFixed(1), (+cy - r - 6).toFixed(1), label, 12, "var(--muted)");
    },
    line([x, y, toX, toY, colour, arrow, dashed]) {
      const a = [+X(x), +Y(y)], b = [+X(toX), +Y(toY)], length = Math.hypot(b[0] - a[0], b[1] - a[1]);
      if (!length) return "";
      let out = `<path d="M${a}L${b}" stroke="var(--${colour})" stroke-width="2"${dashed ? ' stroke-dasharray="7 5"' : ""}/>`;
      if (arrow) {
        const u = [(b[0] - a[0]) / length, (b[1] - a[1]) / length], h = Math.min(8, length), c = [b[0] - u[0] * h, b[1] - u[1] * h];
        out += `<path d="M${b}L${[c[0] - u[1] * h / 2, c[1] + u[0] * h / 2]}L${[c[0] + u[1] * h / 2, c[1] - u[0] * h / 2]}Z" fill="var(--${colour})"/>`;
      }
      return out;
    },
    box([x, y, width, height, colour]) {
      return `<rect x="${X(x)}" y="${Y(y + height)}" width="${width * k}" height="${height * k}" fill="none" stroke="var(--${colour})" stroke-width="4"/>`;
    },
    text([x, y, text, height, colour]) { return write(X(x), Y(y), text, Math.max(10, height * k), `var(--${colour})`); },
    grid([index]) {
      const g = D.grids[index], [left, bottom, right, top] = g.bounds, h = (top - bottom) / g.values.length, w = (right - left) / g.values[0].length;
      let out = `<image href="${heat[index].url}" x="${X(left)}" y="${Y(top)}" width="${(right - left) * k}" height="${(top - bottom) * k}" preserveAspectRatio="none" style="image-rendering:pixelated"/>`;
      g.labels.forEach((row, i) => row.forEach((label, j) => {
        const size = Math.max(9, Math.min(h * k * 0.2, 1.5 * w * k / Math.max(label.length, 4)));
        out += write(X(left + (j + 0.5) * w), Y(top - (i + 0.32) * h), label, size, heat[index].share(g.values[i][j]) < 0.55 ? "#fff" : "#111");
      }));
      return out;
    },
  };
}

function curve(frames) {
  const totals = frames.map((f) => f.total), low = Math.min(0, ...totals), span = Math.max(0, ...totals) - low || 1, last = frames.length - 1 || 1;
  const at = (i) => `${(4 + 292 * i / last).toFixed(1)} ${(62 - 54 * (totals[i] - low) / span).toFixed(1)}`;
  const zero = (62 + 54 * low / span).toFixed(1), [x, y] = at(now).split(" ");
  return `<path d="M4 ${zero}H296" stroke="var(--line)"/><path d="M${totals.map((_, i) => at(i)).join("L")}" fill="none" stroke="var(--muted)" stroke-width="1.5"/><circle cx="${x}" cy="${y}" r="4" fill="var(--accent)"/>`;
}

function draw() {
  const e = D.episodes[episode], f = e.frames[now], paint = painter(e.view), last = now === e.frames.length - 1;
  $("picture").innerHTML = f.shapes.map(([kind, ...rest]) => paint[kind](rest)).join("");
  $("said").textContent = `step ${f.step} of ${e.frames.length - 1} · return so far ${num(f.total)} · reward ${f.reward > 0 ? "+" : ""}${num(f.reward)}`;
  $("ending").textContent = last ? e.ending : "";
  $("curve").innerHTML = curve(e.frames);
  $("columns").innerHTML = "<tr>" + f.columns.map((c) => `<th>${esc(c)}</th>`).join("") + "</tr>";
  $("rows").innerHTML = f.rows.map((r) => "<tr>" + r.map((c) => `<td>${esc(c)}</td>`).join("") + "</tr>").join("");
  $("notes").innerHTML = D.notes[f.notes].map((n) => `<li>${esc(n)}</li>`).join("");
  $("frame").value = now;
}
function stop() { clearTimeout(timer); timer = 0; $("play").textContent = "Play"; }
function show(k) { now = Math.max(0, Math.min(D.episodes[episode].frames.length - 1, k)); draw(); }
function tick() {
  const last = D.episodes[episode].frames.length - 1;
  if (now >= last) return stop();
  show(now + 1);
  timer = setTimeout(tick, Math.max(120, Math.min(1500, 9000 / last)) / +$("speed").value);
}
function toggle() {
  if (timer) return stop();
  if (now >= D.episodes[episode].frames.length - 1) show(0);
  $("play").textContent = "Pause";
  timer = setTimeout(tick, 200);
}
function choose(k) {
  stop();
  episode = k; now = 0;
  $("frame").max = D.episodes[k].frames.length - 1;
  [...$("episodes").children].forEach((b, i) => b.setAttribute("aria-pressed", i === k));
  draw();
}
D.episodes.forEach((e, k) => {
  const b = document.createElement("button");
  b.type = "button";
  b.textContent = `Episode ${k + 1}: ${e.ending}`;
  b.onclick = () => choose(k);
  $("episodes").append(b);
});
$("play").onclick = toggle;
$("back").onclick = () => { stop(); show(now - 1); };
$("on").onclick = () => { stop(); show(now + 1); };
$("frame").oninput = (e) => { stop(); show(+e.target.value); };
addEventListener("keydown", (e) => {
  if (/^(SELECT|INPUT|BUTTON)$/.test(e.target.tagName)) return;
  if (e.key === " ") { e.preventDefault(); toggle(); }
  if (e.key === "ArrowRight") { stop(); show(now + 1); }
  if (e.key === "ArrowLeft") { stop(); show(now - 1); }
});
choose(0);
