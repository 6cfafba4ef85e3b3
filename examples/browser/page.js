// The page: draws what the program reports after each step, and gives it the caps of the sliders.

import init, { Run, check } from "./pkg/vrampool_browser.js";

const parameters = new URLSearchParams(location.search);
const EPOCHS = Number(parameters.get("epochs") ?? 12);
const COLOURS = { ink: "#1d2733", live: "#2f6fb3", idle: "#e39b2d", cap: "#b3312f" };
const TINTS = { [COLOURS.live]: "#cfdff0", [COLOURS.idle]: "#f9e7cc" };

const find = (selector, within = document) => within.querySelector(selector);

// The state that a script that drives the page reads.
const state = { status: "loading", checked: false, runs: {} };
window.vrampool = state;

let adapterName = "";

function size(bytes) {
    if (bytes >= 2 ** 40) return "none";
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) {
        bytes /= 1024;
        unit += 1;
    }
    return `${bytes >= 100 || Number.isInteger(bytes) ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(2)} %`);

/** The caps of the sliders: idle bytes, from 0 over 4 KiB to 8 MiB to none, and idle buffers in a bucket. */
function caps() {
    const step = Number(find("#bytes").value);
    const bytes = step === 0 ? 0 : step === 13 ? Infinity : 2 ** (11 + step);
    return { bytes, buffers: Number(find("#buffers").value) };
}

function showCaps() {
    const { bytes, buffers } = caps();
    find("#bytes-text").textContent = size(bytes);
    find("#buffers-text").textContent = String(buffers);
}

/** A canvas as wide as it is shown, empty. */
function blank(canvas) {
    const scale = window.devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = COLOURS.ink;
    return { pen, width, height };
}

/** Lines over the steps of the whole run; each line has values, a colour, and may be filled. */
function plot(canvas, lines, { steps, top, label }) {
    const { pen, width, height } = blank(canvas);
    const most = top ?? Math.max(1e-9, ...lines.flatMap((line) => line.values)) * 1.1;
    const x = (index) => 4 + ((width - 8) * index) / Math.max(1, steps - 1);
    const y = (value) => height - 4 - (height - 20) * Math.min(1, value / most);
    for (const { values, colour, filled } of lines) {
        if (values.length === 0) continue;
        pen.beginPath();
        values.forEach((value, index) => pen.lineTo(x(index), y(value)));
        pen.strokeStyle = colour;
        pen.lineWidth = 1.5;
        pen.stroke();
        if (filled) {
            pen.lineTo(x(values.length - 1), y(0));
            pen.lineTo(x(0), y(0));
            pen.fillStyle = TINTS[colour];
            pen.fill();
        }
    }
    pen.fillStyle = COLOURS.ink;
    pen.fillText(label(most), 6, 12);
}

function drawBuckets(canvas, buckets, cap) {
    const { pen, width, height } = blank(canvas);
    const shown = buckets.filter((bucket) => bucket.hits + bucket.misses > 0 || bucket.idle_buffers > 0);
    const most = Math.max(1, cap ?? 0, ...shown.map((bucket) => bucket.idle_buffers));
    const step = width / Math.max(1, shown.length);
    const tall = (count) => ((height - 34) * count) / most;
    shown.forEach((bucket, index) => {
        const left = index * step + 8;
        pen.fillStyle = COLOURS.idle;
        pen.fillRect(left, height - 18 - tall(bucket.idle_buffers), step - 16, tall(bucket.idle_buffers));
        pen.fillStyle = COLOURS.ink;
        pen.fillText(size(bucket.class), left, height - 5);
        pen.fillText(String(bucket.idle_buffers), left, height - 22 - tall(bucket.idle_buffers));
    });
    if (cap === null) return;
    pen.strokeStyle = COLOURS.cap;
    pen.beginPath();
    pen.moveTo(0, height - 18 - tall(cap));
    pen.lineTo(width, height - 18 - tall(cap));
    pen.stroke();
}

/** One of the two runs, and its part of the page. */
class Side {
    constructor(name, hasPool) {
        this.name = name;
        this.hasPool = hasPool;
        this.root = find(`#${name}`);
        this.loss = [];
        this.rate = [];
        this.live = [];
        this.held = [];
        this.cap = [];
        this.milliseconds = 0;
        this.accuracy = null;
        this.figures = null;
    }

    async begin() {
        this.run = await Run.begin(this.hasPool, EPOCHS);
        this.steps = 23 * EPOCHS;
    }

    async epoch() {
        this.last = performance.now();
        this.accuracy = await this.run.epoch((json) => this.step(JSON.parse(json)));
        this.draw();
    }

    step(figures) {
        const now = performance.now();
        this.milliseconds += now - this.last;
        this.last = now;
        this.figures = figures;
        const { pool } = figures;
        this.loss.push(figures.loss);
        this.rate.push(figures.hit_rate);
        this.live.push(pool.live_bytes);
        this.held.push(pool.live_bytes + pool.idle_bytes);
        // No cap, no line.
        const cap = pool.max_cached_bytes;
        this.cap.push(cap === null ? NaN : pool.live_bytes + cap);
        this.publish();
        if (this.loss.length % 4 === 0) this.draw();
        this.last = performance.now();
        if (!this.hasPool) return null;
        const { bytes, buffers } = caps();
        return new Float64Array([bytes, buffers]);
    }

    publish() {
        const { accuracy, figures, milliseconds } = this;
        state.runs[this.name] = { accuracy, figures, milliseconds };
    }

    draw() {
        this.publish();
        const { pool } = this.figures;
        const steps = this.steps;
        const rows = {
            "test accuracy": percent(this.accuracy),
            "hit rate": percent(this.figures.hit_rate),
            "hit rate after the first epoch": percent(this.figures.hit_rate_after_first_epoch),
            "buffers that the device created": pool.source_allocations.toLocaleString("en"),
            "bytes live": size(pool.live_bytes),
            "bytes idle": size(pool.idle_bytes),
            "epoch": `${this.figures.epoch} of ${EPOCHS}`,
            "milliseconds a step": (this.milliseconds / this.loss.length).toFixed(1),
        };
        find("table", this.root).replaceChildren(
            ...Object.entries(rows).map(([name, value]) => {
                const row = document.createElement("tr");
                row.append(...[name, value].map((text) => Object.assign(document.createElement("td"), { textContent: text })));
                return row;
            }),
        );
        const label = (most) => size(most);
        plot(find(".loss", this.root), [{ values: this.loss, colour: COLOURS.live }], { steps, label: (most) => most.toFixed(2) });
        plot(find(".rate", this.root), [{ values: this.rate, colour: COLOURS.live }], { steps, top: 1.05, label: () => "100 %" });
        const top = Math.max(...this.held) * 1.3;
        const lines = [
            { values: this.held, colour: COLOURS.idle, filled: true },
            { values: this.live, colour: COLOURS.live, filled: true },
        ];
        if (this.hasPool) lines.push({ values: this.cap.map((cap) => Math.min(cap, 2 * top)), colour: COLOURS.cap });
        plot(find(".held", this.root), lines, { steps, top, label });
        if (this.hasPool) drawBuckets(find(".buckets", this.root), pool.buckets, pool.max_buffers_per_bucket);
    }
}

async function train() {
    find("#start").disabled = true;
    state.status = "training";
    const sides = [new Side("pool", true), new Side("control", false)];
    for (const side of sides) await side.begin();
    find("#device").textContent = `Training on ${adapterName}.`;
    // Epoch by epoch in turn, so that the times are not each other's.
    for (let epoch = 0; epoch < EPOCHS; epoch += 1) {
        for (const side of sides) await side.epoch();
    }
    for (const side of sides) side.run.free();
    find("#device").textContent += " Done.";
    find("#start").disabled = false;
    state.status = "done";
}

function fail(error) {
    console.error(error);
    find("#device").textContent = `The training stopped: ${error.message ?? error}`;
    state.status = "failed";
    state.reason = String(error.message ?? error);
}

function withoutWebGpu(reason) {
    find("#device").hidden = true;
    find("#absent").hidden = false;
    find("#reason").textContent = reason;
    state.status = "absent";
}

async function main() {
    showCaps();
    find("#caps").addEventListener("input", showCaps);
    find("#start").addEventListener("click", () => train().catch(fail));
    if (!navigator.gpu) return withoutWebGpu("It does not offer the interface to pages.");
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter) return withoutWebGpu("It offers the interface, but no adapter for this computer's GPU.");
    const { description, vendor, architecture } = adapter.info;
    adapterName = description || [vendor, architecture].filter(Boolean).join(" ") || "a WebGPU device";
    await init();
    find("#page").hidden = false;
    if (parameters.has("check")) {
        await check();
        state.checked = true;
    }
    await train();
}

main().catch(fail);
