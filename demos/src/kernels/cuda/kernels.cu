// The kernels of `mod.rs`. `kernels.ptx` is made from this file, so that a machine needs neither a toolkit nor NVRTC:
// by NVRTC 12.1 with `--gpu-architecture=compute_60`; comments and unused symbols are left out, and `.version` is set to 7.0,
// whose instructions are all it has.
//
// No kernel reads or writes but within the counts that it is given, and sums are made in one order whatever the device.

typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE 16
#define THREADS 256
#define ROLLED _Pragma("unroll 1")

__device__ u64 first() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }
__device__ u64 stride() { return gridDim.x * (u64)blockDim.x; }

// product[i, j] = sum over k of left[i, k] * right[k, j]. A block of TILE x TILE threads a tile of the product; its number
// counts the tiles row by row.
extern "C" __global__ void multiply(const float *left, u64 left_row, u64 left_column, const float *right, u64 right_row,
                                    u64 right_column, float *product, u64 rows, u64 inner, u64 columns) {
    __shared__ float left_tile[TILE][TILE + 1], right_tile[TILE][TILE + 1];
    u64 tiles = (columns + TILE - 1) / TILE;
    u64 i = blockIdx.x / tiles * TILE + threadIdx.y, j = blockIdx.x % tiles * TILE + threadIdx.x;
    float sum = 0;
    ROLLED
    for (u64 from = 0; from < inner; from += TILE) {
        u64 k = from + threadIdx.x;
        left_tile[threadIdx.y][threadIdx.x] = i < rows && k < inner ? left[i * left_row + k * left_column] : 0;
        k = from + threadIdx.y;
        right_tile[threadIdx.y][threadIdx.x] = j < columns && k < inner ? right[k * right_row + j * right_column] : 0;
        __syncthreads();
        for (u32 k = 0; k < TILE; k++) sum += left_tile[threadIdx.y][k] * right_tile[k][threadIdx.x];
        __syncthreads();
    }
    if (i < rows && j < columns) product[i * columns + j] = sum;
}

// values[i] = max(values[i] + bias[i % columns], floor)
extern "C" __global__ void add_bias(const float *bias, u64 columns, float floor, float *values, u64 count) {
    ROLLED
    for (u64 i = first(); i < count; i += stride()) values[i] = fmaxf(values[i] + bias[i % columns], floor);
}

// gradient[i] = 0 where outputs[i] is not above 0
extern "C" __global__ void relu_backward(const float *outputs, float *gradient, u64 count) {
    ROLLED
    for (u64 i = first(); i < count; i += stride())
        if (!(outputs[i] > 0)) gradient[i] = 0;
}

// sums[j] = sum over i of values[i, j]
extern "C" __global__ void sum_rows(const float *values, u64 rows, float *sums, u64 columns) {
    ROLLED
    for (u64 j = first(); j < columns; j += stride()) {
        float sum = 0;
        ROLLED
        for (u64 i = 0; i < rows; i++) sum += values[i * columns + j];
        sums[j] = sum;
    }
}

// One block of THREADS. Each row of the logits becomes its loss's gradient over `rows`; tally[0] += the losses, tally[1] +=
// the rows whose largest logit is the label's. A label that is no column counts as the last.
extern "C" __global__ void softmax_cross_entropy(const u32 *labels, float smoothing, float *logits, u64 rows, u64 columns,
                                                 float *tally) {
    __shared__ float losses[THREADS], correct[THREADS];
    float loss = 0, right = 0, share = smoothing / columns;
    ROLLED
    for (u64 i = threadIdx.x; i < rows; i += THREADS) {
        float *row = logits + i * columns;
        u64 label = labels[i] < columns ? labels[i] : columns - 1;
        float largest = row[0], sum = 0;
        ROLLED
        for (u64 j = 1; j < columns; j++) largest = fmaxf(largest, row[j]);
        right += row[label] >= largest;
        float expected = (1 - smoothing) * (row[label] - largest);
        ROLLED
        for (u64 j = 0; j < columns; j++) {
            float exponent = row[j] - largest;
            expected += share * exponent;
            row[j] = expf(exponent);
            sum += row[j];
        }
        ROLLED
        for (u64 j = 0; j < columns; j++) row[j] = (row[j] / sum - share - (j == label ? 1 - smoothing : 0)) / rows;
        loss += logf(sum) - expected;
    }
    losses[threadIdx.x] = loss;
    correct[threadIdx.x] = right;
    __syncthreads();
    if (threadIdx.x == 0) {
        ROLLED
        for (u32 i = 1; i < THREADS; i++) loss += losses[i], right += correct[i];
        tally[0] += loss;
        tally[1] += right;
    }
}

extern "C" __global__ void adam(float rate, float beta_1, float beta_2, float epsilon, const float *gradient, float *values,
                                float *first_moment, float *second_moment, u64 count) {
    ROLLED
    for (u64 i = first(); i < count; i += stride()) {
        float g = gradient[i];
        float m = first_moment[i] = beta_1 * first_moment[i] + (1 - beta_1) * g;
        float v = second_moment[i] = beta_2 * second_moment[i] + (1 - beta_2) * g * g;
        values[i] -= rate * m / (sqrtf(v) + epsilon);
    }
}

__device__ float acceleration(float mu, float x, float v) { return mu * (1 - x * x) * v - x; }

// Van der Pol's oscillator by the classical method of Runge and Kutta. `parameters` has three rows of `runs`: mu, and where and
// how fast it is at first. Row n of `states` is where it is after n + 1 times `steps` steps.
extern "C" __global__ void van_der_pol(const float *parameters, float step, u64 steps, float *states, u64 runs, u64 samples) {
    ROLLED
    for (u64 i = first(); i < runs; i += stride()) {
        float mu = parameters[i], x = parameters[runs + i], v = parameters[2 * runs + i];
        ROLLED
        for (u64 sample = 0; sample < samples; sample++) {
            ROLLED
            for (u64 k = 0; k < steps; k++) {
                float a1 = acceleration(mu, x, v), v1 = v + step / 2 * a1, x1 = x + step / 2 * v;
                float a2 = acceleration(mu, x1, v1), v2 = v + step / 2 * a2, x2 = x + step / 2 * v1;
                float a3 = acceleration(mu, x2, v2), v3 = v + step * a3, x3 = x + step * v2;
                float a4 = acceleration(mu, x3, v3);
                x += step / 6 * (v + 2 * v1 + 2 * v2 + v3);
                v += step / 6 * (a1 + 2 * a2 + 2 * a3 + a4);
            }
            states[sample * runs + i] = x;
        }
    }
}
