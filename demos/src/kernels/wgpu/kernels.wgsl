// The kernels of `mod.rs`.
//
// Everything is bound for writing, because regions of one arena are parts of one buffer. A binding begins at or before its region,
// whose first element has the number `*_at`; these numbers are the first parameters of every kernel.
// No kernel writes but within the counts that it is given, and sums are made in one order whatever the device.

@group(0) @binding(1) var<storage, read_write> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;
@group(0) @binding(4) var<storage, read_write> d: array<f32>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;

const TILE = 16u;
const THREADS = 256u;

struct Multiply {
    a_at: u32, b_at: u32, c_at: u32,
    a_row: u32, a_column: u32, b_row: u32, b_column: u32,
    rows: u32, inner: u32, columns: u32,
}
@group(0) @binding(0) var<uniform> multiplied: Multiply;

var<workgroup> left: array<array<f32, 17>, 16>;
var<workgroup> right: array<array<f32, 17>, 16>;

// c[i, j] = sum over k of a[i, k] * b[k, j]. A group a tile of TILE x TILE.
@compute @workgroup_size(16, 16)
fn multiply(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let p = multiplied;
    let i = group.y * TILE + local.y;
    let j = group.x * TILE + local.x;
    var sum = 0.0;
    for (var from_ = 0u; from_ < p.inner; from_ += TILE) {
        var k = from_ + local.x;
        var value = 0.0;
        if i < p.rows && k < p.inner { value = a[p.a_at + i * p.a_row + k * p.a_column]; }
        left[local.y][local.x] = value;
        k = from_ + local.y;
        value = 0.0;
        if j < p.columns && k < p.inner { value = b[p.b_at + k * p.b_row + j * p.b_column]; }
        right[local.y][local.x] = value;
        workgroupBarrier();
        for (var n = 0u; n < TILE; n++) { sum += left[local.y][n] * right[n][local.x]; }
        workgroupBarrier();
    }
    if i < p.rows && j < p.columns { c[p.c_at + i * p.columns + j] = sum; }
}

struct AddBias { a_at: u32, b_at: u32, columns: u32, floor: f32, count: u32 }
@group(0) @binding(0) var<uniform> biased: AddBias;

// b[i] = max(b[i] + a[i % columns], floor)
@compute @workgroup_size(256)
fn add_bias(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = biased;
    for (var i = id.x; i < p.count; i += groups.x * THREADS) {
        b[p.b_at + i] = max(b[p.b_at + i] + a[p.a_at + i % p.columns], p.floor);
    }
}

struct Rectify { a_at: u32, b_at: u32, count: u32 }
@group(0) @binding(0) var<uniform> rectified: Rectify;

// b[i] = 0 where a[i] is not above 0
@compute @workgroup_size(256)
fn relu_backward(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = rectified;
    for (var i = id.x; i < p.count; i += groups.x * THREADS) {
        if !(a[p.a_at + i] > 0.0) { b[p.b_at + i] = 0.0; }
    }
}

struct SumRows { a_at: u32, b_at: u32, rows: u32, columns: u32 }
@group(0) @binding(0) var<uniform> summed: SumRows;

// b[j] = sum over i of a[i, j]
@compute @workgroup_size(256)
fn sum_rows(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = summed;
    for (var j = id.x; j < p.columns; j += groups.x * THREADS) {
        var sum = 0.0;
        for (var i = 0u; i < p.rows; i++) { sum += a[p.a_at + i * p.columns + j]; }
        b[p.b_at + j] = sum;
    }
}

struct Softmax { labels_at: u32, b_at: u32, c_at: u32, smoothing: f32, rows: u32, columns: u32 }
@group(0) @binding(0) var<uniform> classified: Softmax;

var<workgroup> losses: array<f32, 256>;
var<workgroup> correct: array<f32, 256>;

// One group. Each row of the logits, b, becomes its loss's gradient over `rows`; c[0] += the losses, c[1] += the rows whose
// largest logit is the label's. A label that is no column counts as the last.
@compute @workgroup_size(256)
fn softmax_cross_entropy(@builtin(local_invocation_index) thread: u32) {
    let p = classified;
    let share = p.smoothing / f32(p.columns);
    var loss = 0.0;
    var hits = 0.0;
    for (var i = thread; i < p.rows; i += THREADS) {
        let row = p.b_at + i * p.columns;
        let label = min(labels[p.labels_at + i], p.columns - 1u);
        var largest = b[row];
        for (var j = 1u; j < p.columns; j++) { largest = max(largest, b[row + j]); }
        hits += select(0.0, 1.0, b[row + label] >= largest);
        var expected = (1.0 - p.smoothing) * (b[row + label] - largest);
        var sum = 0.0;
        for (var j = 0u; j < p.columns; j++) {
            let exponent = b[row + j] - largest;
            expected += share * exponent;
            let value = exp(exponent);
            b[row + j] = value;
            sum += value;
        }
        for (var j = 0u; j < p.columns; j++) {
            let wanted = select(0.0, 1.0 - p.smoothing, j == label);
            b[row + j] = (b[row + j] / sum - share - wanted) / f32(p.rows);
        }
        loss += log(sum) - expected;
    }
    losses[thread] = loss;
    correct[thread] = hits;
    workgroupBarrier();
    if thread == 0u {
        for (var i = 1u; i < THREADS; i++) {
            loss += losses[i];
            hits += correct[i];
        }
        c[p.c_at] += loss;
        c[p.c_at + 1u] += hits;
    }
}

struct Step {
    a_at: u32, b_at: u32, c_at: u32, d_at: u32,
    rate: f32, beta_1: f32, beta_2: f32, epsilon: f32, count: u32,
}
@group(0) @binding(0) var<uniform> step_: Step;

// a: gradient, b: values, c and d: first and second moment
@compute @workgroup_size(256)
fn adam(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = step_;
    for (var i = id.x; i < p.count; i += groups.x * THREADS) {
        let g = a[p.a_at + i];
        let m = p.beta_1 * c[p.c_at + i] + (1.0 - p.beta_1) * g;
        let v = p.beta_2 * d[p.d_at + i] + (1.0 - p.beta_2) * g * g;
        c[p.c_at + i] = m;
        d[p.d_at + i] = v;
        b[p.b_at + i] -= p.rate * m / (sqrt(v) + p.epsilon);
    }
}

struct Oscillator { a_at: u32, b_at: u32, step: f32, steps: u32, runs: u32, samples: u32 }
@group(0) @binding(0) var<uniform> oscillator: Oscillator;

fn acceleration(mu: f32, x: f32, v: f32) -> f32 { return mu * (1.0 - x * x) * v - x; }

// Van der Pol's oscillator by the classical method of Runge and Kutta. a has three rows of `runs`: mu, and where and how fast it is
// at first. Row n of b is where it is after n + 1 times `steps` steps.
@compute @workgroup_size(256)
fn van_der_pol(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = oscillator;
    let h = p.step;
    for (var i = id.x; i < p.runs; i += groups.x * THREADS) {
        let mu = a[p.a_at + i];
        var x = a[p.a_at + p.runs + i];
        var v = a[p.a_at + 2u * p.runs + i];
        for (var sample = 0u; sample < p.samples; sample++) {
            for (var k = 0u; k < p.steps; k++) {
                let a1 = acceleration(mu, x, v);
                let v1 = v + h / 2.0 * a1;
                let x1 = x + h / 2.0 * v;
                let a2 = acceleration(mu, x1, v1);
                let v2 = v + h / 2.0 * a2;
                let x2 = x + h / 2.0 * v1;
                let a3 = acceleration(mu, x2, v2);
                let v3 = v + h * a3;
                let x3 = x + h * v2;
                let a4 = acceleration(mu, x3, v3);
                x += h / 6.0 * (v + 2.0 * v1 + 2.0 * v2 + v3);
                v += h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4);
            }
            b[p.b_at + sample * p.runs + i] = x;
        }
    }
}
