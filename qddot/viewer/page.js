// The saved page of a run: draws the robot with WebGL, plays it, and draws curves. All text from files goes through textContent.
"use strict";
const $ = (id) => document.getElementById(id);
const about = JSON.parse($("about").textContent);

// ---- vectors, and 4×4 matrices by columns
const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const add = (a, b, s = 1) => [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => add([0, 0, 0], a, 1 / (Math.hypot(...a) || 1));
const times = (A, B) => {
  const C = new Float32Array(16);
  for (let i = 0; i < 4; i++)
    for (let j = 0; j < 4; j++) for (let k = 0; k < 4; k++) C[4 * j + i] += A[4 * k + i] * B[4 * j + k];
  return C;
};
const apply = (A, p) => [0, 1, 2].map((i) => A[i] * p[0] + A[4 + i] * p[1] + A[8 + i] * p[2] + A[12 + i]);
const placed = (q, p) => {
  const [w, x, y, z] = q;
  return new Float32Array([
    1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y), 0,
    2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x), 0,
    2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y), 0, p[0], p[1], p[2], 1,
  ]);
};
const scaled = (p, s) => new Float32Array([s, 0, 0, 0, 0, s, 0, 0, 0, 0, s, 0, ...p, 1]);
// takes the unit z axis to the vector `way` from `p`, with a thickness
const along = (p, way, thick) => {
  const z = unit(way), x = unit(cross(Math.abs(z[0]) < 0.8 ? [1, 0, 0] : [0, 1, 0], z)), y = cross(z, x);
  const s = (a) => add([0, 0, 0], a, thick);
  return new Float32Array([...s(x), 0, ...s(y), 0, ...way, 0, ...p, 1]);
};

// ---- what is shown, once the arrays are unpacked
async function unpacked() {
  const bytes = Uint8Array.from(atob(about.data), (c) => c.charCodeAt(0));
  const plain = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const kinds = { f4: Float32Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array };
  return about.arrays.map(([kind, start, count]) => new kinds[kind](plain, start, count));
}

const MESH = [
  `#version 300 es
in vec3 p, n; uniform mat4 view, model; uniform float scale; uniform vec3 low; out vec3 at, normal;
void main() { vec4 w = model * vec4(low + scale * p, 1.); at = w.xyz; normal = mat3(model) * n; gl_Position = view * w; }`,
  `#version 300 es
precision highp float; in vec3 at, normal; uniform vec4 color; uniform vec3 eye, light, up; uniform bool shadow; out vec4 o;
void main() {
  if (shadow) { o = vec4(0., 0., 0., color.a); return; }
  vec3 n = normalize(normal), v = normalize(eye - at), h = normalize(light + v);
  if (dot(n, v) < 0.) n = -n;
  vec3 sky = mix(vec3(.30, .29, .28), vec3(.62, .66, .72), .5 + .5 * dot(n, up));
  float key = max(dot(n, light), 0.), rim = pow(1. - max(dot(n, v), 0.), 3.);
  vec3 c = pow(color.rgb, vec3(2.2)) * (sky + .8 * key * vec3(1., .97, .92)) + .18 * pow(max(dot(n, h), 0.), 40.) + .05 * rim;
  o = vec4(pow(c, vec3(1. / 2.2)) * color.a, color.a);
}`,
];
const FLOOR = [
  `#version 300 es
in vec3 p; uniform mat4 view; uniform vec3 center, right, front; uniform float reach; out vec2 at; out float far;
void main() { at = p.xy * reach; far = length(p.xy); gl_Position = view * vec4(center + right * at.x + front * at.y, 1.); }`,
  `#version 300 es
precision highp float; in vec2 at; uniform float cell, reach; uniform vec2 origin; out vec4 o;
float grid(vec2 x) { vec2 d = abs(fract(x - .5) - .5) / max(fwidth(x), vec2(1e-6)); return 1. - min(min(d.x, d.y), 1.); }
void main() {
  float fade = 1. - smoothstep(.35, 1., length(at) / reach);
  float line = max(.35 * grid((at + origin) / cell), .6 * grid((at + origin) / (5. * cell)));
  float a = fade * (.30 + .5 * line);
  o = vec4(mix(vec3(.99), vec3(.62, .66, .72), line) * a, a);
}`,
];
const LINE = [
  `#version 300 es
in vec3 p, a, b; uniform mat4 view; uniform vec2 pixel; uniform float width;
void main() {
  vec4 A = view * vec4(a, 1.), B = view * vec4(b, 1.);
  vec2 way = normalize((B.xy / B.w - A.xy / A.w) / pixel + 1e-6);
  gl_Position = mix(A, B, p.x); gl_Position.xy += vec2(-way.y, way.x) * p.y * width * pixel * gl_Position.w;
}`,
  `#version 300 es
precision highp float; uniform vec4 color; out vec4 o; void main() { o = vec4(color.rgb * color.a, color.a); }`,
];

function program(gl, [vertex, fragment]) {
  const p = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const s = gl.createShader(kind);
    gl.shaderSource(s, text);
    gl.compileShader(s);
    if (!gl.getShaderParameter(s, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(s));
    gl.attachShader(p, s);
  }
  ["p", "n", "a", "b"].forEach((name, k) => gl.bindAttribLocation(p, k, name));
  gl.linkProgram(p);
  const found = { p };
  for (let k = 0; k < gl.getProgramParameter(p, gl.ACTIVE_UNIFORMS); k++) {
    const { name } = gl.getActiveUniform(p, k);
    found[name] = gl.getUniformLocation(p, name);
  }
  return found;
}

// normals at the corners of faces: the mean over faces around the vertex that are bent by less than 40°
function corners(vertices, faces) {
  const n = faces.length / 3, own = [], around = new Map(), out = new Float32Array(18 * n);
  const point = (k) => [vertices[3 * k], vertices[3 * k + 1], vertices[3 * k + 2]];
  const key = (k) => `${vertices[3 * k]},${vertices[3 * k + 1]},${vertices[3 * k + 2]}`;
  for (let f = 0; f < n; f++) {
    const [a, b, c] = [0, 1, 2].map((k) => point(faces[3 * f + k]));
    own.push(cross(sub(b, a), sub(c, a)));
    for (let k = 0; k < 3; k++) {
      const at = key(faces[3 * f + k]);
      if (around.has(at)) around.get(at).push(f);
      else around.set(at, [f]);
    }
  }
  for (let f = 0; f < n; f++) {
    const mine = unit(own[f]);
    for (let k = 0; k < 3; k++) {
      let sum = [0, 0, 0];
      for (const g of around.get(key(faces[3 * f + k]))) if (dot(unit(own[g]), mine) > 0.77) sum = add(sum, own[g]);
      out.set(point(faces[3 * f + k]), 18 * f + 6 * k);
      out.set(unit(sum), 18 * f + 6 * k + 3);
    }
  }
  return out;
}

class Picture {
  constructor(canvas, arrays) {
    const gl = canvas.getContext("webgl2", { antialias: true, stencil: true, premultipliedAlpha: true, preserveDrawingBuffer: true });
    if (!gl) throw new Error("this browser has no WebGL 2, so the robot is not drawn");
    Object.assign(this, { gl, canvas, arrays, mesh: program(gl, MESH), floor: program(gl, FLOOR), line: program(gl, LINE) });
    this.meshes = about.meshes.map((m) => ({ ...m, ...this.buffer(corners(arrays[m.vertices], arrays[m.faces])) }));
    this.quad = gl.createVertexArray();
    gl.bindVertexArray(this.quad);
    this.fill(new Float32Array([-1, -1, 0, 1, -1, 0, -1, 1, 0, 1, 1, 0]), [[0, 12, 0, 0]]);
    this.strip = gl.createVertexArray();
    gl.bindVertexArray(this.strip);
    this.fill(new Float32Array([0, -1, 0, 1, -1, 0, 0, 1, 0, 1, 1, 0]), [[0, 12, 0, 0]]);
    this.ends = gl.createBuffer();
    this.reset();
  }

  fill(data, attributes) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
    for (const [place, stride, start] of attributes) {
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, 3, gl.FLOAT, false, stride, start);
    }
  }

  buffer(data) {
    const array = this.gl.createVertexArray();
    this.gl.bindVertexArray(array);
    this.fill(data, [[0, 24, 0], [1, 24, 12]]);
    return { array, count: data.length / 6 };
  }

  // ---- the camera: where it looks, from which side, how far away
  reset() {
    this.look = about.center;
    this.away = unit(about.away);
    const { right, top } = this.axes(), tan = Math.tan(0.3);
    const ratio = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
    for (let round = 0; round < 4; round++) {
      // all points within the picture, and as much room on one side as on the other
      const seen = about.extremes.map((p) => [right, top, this.away].map((axis) => dot(sub(p, this.look), axis)));
      const far = seen.map(([x, y, z]) => 1.15 * Math.max(Math.abs(x) / (tan * ratio), Math.abs(y) / tan) + z);
      this.distance = Math.max(0.3 * about.size, ...far);
      const at = (k) => seen.map((p) => (p[k] * this.distance) / (this.distance - p[2]));
      const middle = (x) => (Math.min(...x) + Math.max(...x)) / 2;
      this.look = add(add(this.look, right, middle(at(0))), top, middle(at(1)));
    }
  }

  axes() {
    const right = unit(cross(about.up, this.away));
    return { right, top: cross(this.away, right) };
  }

  turn(dx, dy) {
    const { right } = this.axes(), c = Math.cos(-dx), s = Math.sin(-dx), u = about.up;
    const a = this.away, h = dot(u, a), side = cross(u, a);
    let b = add(add(add([0, 0, 0], u, h * (1 - c)), a, c), side, s);
    const tilted = unit(add(b, cross(right, b), -dy));
    if (Math.abs(dot(tilted, u)) < 0.995) b = tilted;
    this.away = unit(b);
  }

  pan(dx, dy) {
    const { right, top } = this.axes(), s = (0.62 * this.distance) / this.canvas.clientHeight;
    this.look = add(add(this.look, right, -dx * s), top, dy * s);
  }

  view() {
    const eye = add(this.look, this.away, this.distance), { right, top } = this.axes(), f = 1 / Math.tan(0.3);
    const near = 0.02 * this.distance, far = this.distance + 30 * about.size;
    const ratio = this.canvas.width / this.canvas.height, k = (near + far) / (near - far);
    const turn = [0, 1, 2].flatMap((i) => [right[i], top[i], this.away[i], 0]);
    const place = [right, top, this.away].map((a) => -dot(a, eye));
    this.eye = eye;
    const lens = [f / ratio, 0, 0, 0, 0, f, 0, 0, 0, 0, k, -1, 0, 0, (2 * near * far) / (near - far), 0];
    return times(new Float32Array(lens), new Float32Array([...turn, ...place, 1]));
  }

  // ---- one picture
  draw(state) {
    const { gl, canvas, mesh } = this, dense = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * dense));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * dense));
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    const view = this.view(), up = about.up, first = unit(about.away);
    const side = unit(cross(up, first)), front = cross(side, up), light = unit(add(add(add([0, 0, 0], up, 1.7), side, -0.6), front, 0.6));
    this.ground(view, side, front);
    gl.useProgram(mesh.p);
    gl.uniformMatrix4fv(mesh.view, false, view);
    gl.uniform3fv(mesh.eye, this.eye);
    gl.uniform3fv(mesh.light, light);
    gl.uniform3fv(mesh.up, up);
    const items = state.items.filter((x) => x.matrix), solid = items.filter((x) => x.color[3] >= 1);
    this.shadows(solid, up, light);
    for (const item of solid) this.put(item, item.matrix);
    for (const { points, color, width } of state.lines) this.lineThrough(view, points, color, width * dense);
    gl.useProgram(mesh.p);
    gl.depthMask(false);
    gl.enable(gl.CULL_FACE);
    for (const item of items) if (item.color[3] < 1) this.put(item, item.matrix);
    gl.disable(gl.CULL_FACE);
    gl.depthMask(true);
  }

  ground(view, side, front) {
    const { gl, floor } = this, reach = 6 * about.size, { up } = about;
    const center = add(this.look, up, about.floor - 0.002 * about.size - dot(this.look, up));
    gl.useProgram(floor.p);
    gl.uniformMatrix4fv(floor.view, false, view);
    for (const [name, value] of [["center", center], ["right", side], ["front", front]]) gl.uniform3fv(floor[name], value);
    gl.uniform1f(floor.reach, reach);
    gl.uniform1f(floor.cell, about.cell);
    gl.uniform2f(floor.origin, dot(center, side), dot(center, front));
    gl.depthMask(false);
    gl.bindVertexArray(this.quad);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    gl.depthMask(true);
  }

  // solid meshes, flattened onto the floor along the light; the stencil keeps overlaps from getting darker
  shadows(items, up, light) {
    const { gl, mesh } = this, n = up, d = dot(n, light), level = about.floor - 0.001 * about.size;
    const flat = new Float32Array(16);
    for (let i = 0; i < 3; i++) {
      for (let j = 0; j < 3; j++) flat[4 * j + i] = (i === j ? 1 : 0) - (light[i] * n[j]) / d;
      flat[12 + i] = (light[i] * level) / d;
    }
    flat[15] = 1;
    if (dot(sub(this.eye, add([0, 0, 0], up, level)), up) < 0) return;
    gl.uniform1i(mesh.shadow, 1);
    gl.enable(gl.STENCIL_TEST);
    gl.stencilFunc(gl.EQUAL, 0, 1);
    gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    gl.depthMask(false);
    for (const item of items) if (!item.bare) this.put({ ...item, color: [0, 0, 0, 0.16] }, times(flat, item.matrix));
    gl.depthMask(true);
    gl.disable(gl.STENCIL_TEST);
    gl.uniform1i(mesh.shadow, 0);
  }

  put({ mesh: k, color }, matrix) {
    const { gl, mesh } = this, m = this.meshes[k];
    gl.uniformMatrix4fv(mesh.model, false, matrix);
    gl.uniform1f(mesh.scale, m.scale);
    gl.uniform3fv(mesh.low, m.low);
    gl.uniform4fv(mesh.color, color);
    gl.bindVertexArray(m.array);
    gl.drawArrays(gl.TRIANGLES, 0, m.count);
  }

  lineThrough(view, points, color, width) {
    const { gl, line, canvas } = this;
    if (points.length < 6) return;
    gl.useProgram(line.p);
    gl.uniformMatrix4fv(line.view, false, view);
    gl.uniform2f(line.pixel, 1 / canvas.width, 1 / canvas.height);
    gl.uniform1f(line.width, width);
    gl.uniform4fv(line.color, color);
    gl.bindVertexArray(this.strip);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.ends);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(points), gl.DYNAMIC_DRAW);
    for (const [place, start] of [[2, 0], [3, 12]]) {
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, 3, gl.FLOAT, false, 12, start);
      gl.vertexAttribDivisor(place, 1);
    }
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, points.length / 3 - 1);
  }
}
