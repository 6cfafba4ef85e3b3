// The kernels on CUDA and OpenCL. An OpenCL compiler takes this file with TILE and THREADS, and STRIPS for a processor. A region of
// its buffers is a buffer and the offset of the region in it, bytes; a region on CUDA is a pointer.
//
// `cuda/kernels.ptx` is made from this file, so that a machine needs neither a toolkit nor NVRTC: by NVRTC 12.1 with
// `--gpu-architecture=compute_60`; comments and unused symbols are left out, and `.version` is set to 7.0, whose instructions are
// all it has.
//
// No kernel reads or writes but within the counts that it is given, and sums are made in one order whatever the device.

#ifdef __OPENCL_VERSION__
typedef uint u32;
typedef ulong u64;
#define KERNEL(x, y) __kernel __attribute__((reqd_work_group_size(x, y, 1))) void
#define DEVICE
#define GLOBAL __global
#define SHARED __local
#define REGION(type, name) __global uchar *name##_buffer, u64 name##_offset
#define AT(type, name) __global type *name = (__global type *)(name##_buffer + name##_offset)
#define ROLLED
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP get_group_id(0)
#define THREAD(axis) get_local_id(axis == 'y')
#define EACH(i, count) for (u64 i = get_global_id(0); i < count; i += get_global_size(0))
#else
typedef unsigned int u32;
typedef unsigned long long u64;
#define TILE 16
#define THREADS 256
#define KERNEL(x, y) extern "C" __global__ void
#define DEVICE __device__
#define GLOBAL
#define SHARED __shared__
#define REGION(type, name) type *name
#define AT(type, name)
#define ROLLED _Pragma("unroll 1")
#define BARRIER __syncthreads()
#define GROUP blockIdx.x
#define THREAD(axis) (axis == 'y' ? threadIdx.y : threadIdx.x)
#define EACH(i, count) \
    ROLLED for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (u64)blockDim.x)
#endif

// product[i, j] = sum over k of left[i, k] * right[k, j]
#ifndef STRIPS
// A group of TILE x TILE threads a tile of the product; its number counts the tiles row by row.
KERNEL(TILE, TILE) multiply(REGION(const float, left), u64 left_row, u64 left_column, REGION(const float, right), u64 right_row,
                            u64 right_column, REGION(float, product), u64 rows, u64 inner, u64 columns) {
    AT(const float, left);
    AT(const float, right);
    AT(float, product);
    SHARED float left_tile[TILE][TILE + 1], right_tile[TILE][TILE + 1];
    u32 x = THREAD('x'), y = THREAD('y');
    u64 tiles = (columns + TILE - 1) / TILE;
    u64 i = GROUP / tiles * TILE + y, j = GROUP % tiles * TILE + x;
    float sum = 0;
    ROLLED for (u64 from = 0; from < inner; from += TILE) {
        u64 k = from + x;
        left_tile[y][x] = i < rows && k < inner ? left[i * left_row + k * left_column] : 0;
        k = from + y;
        right_tile[y][x] = j < columns && k < inner ? right[k * right_row + j * right_column] : 0;
        BARRIER;
        for (u32 k = 0; k < TILE; k++) sum += left_tile[y][k] * right_tile[k][x];
        BARRIER;
    }
    if (i < rows && j < columns) product[i * columns + j] = sum;
}
#else
// A thread ROWS x 16 elements of the product, by the vectors that a processor has.
#define ROWS 4
KERNEL(1, 1) multiply(REGION(const float, left), u64 left_row, u64 left_column, REGION(const float, right), u64 right_row,
                      u64 right_column, REGION(float, product), u64 rows, u64 inner, u64 columns) {
    AT(const float, left);
    AT(const float, right);
    AT(float, product);
    u64 across = (columns + 15) / 16;
    EACH(strip, (rows + ROWS - 1) / ROWS * across) {
        u64 i = strip / across * ROWS, j = strip % across * 16;
        u32 width = min(columns - j, (u64)16), height = min(rows - i, (u64)ROWS);
        float16 sum[ROWS] = {0, 0, 0, 0};
        for (u64 k = 0; k < inner; k++) {
            GLOBAL const float *from = right + k * right_row + j * right_column;
            float16 line;
            if (width == 16 && right_column == 1) line = vload16(0, from);
            else {
                float parts[16];
                for (u32 x = 0; x < 16; x++) parts[x] = x < width ? from[x * right_column] : 0;
                line = vload16(0, parts);
            }
            for (u32 y = 0; y < ROWS; y++) sum[y] += left[(i + min(y, height - 1)) * left_row + k * left_column] * line;
        }
        for (u32 y = 0; y < height; y++) {
            float parts[16];
            vstore16(sum[y], 0, parts);
            for (u32 x = 0; x < width; x++) product[(i + y) * columns + j + x] = parts[x];
        }
    }
}
#endif

// values[i] = max(values[i] + bias[i % columns], floor)
KERNEL(THREADS, 1) add_bias(REGION(const float, bias), u64 columns, float floor, REGION(float, values), u64 count) {
    AT(const float, bias);
    AT(float, values);
    EACH(i, count) values[i] = fmax(values[i] + bias[i % columns], floor);
}

// gradient[i] = 0 where outputs[i] is not above 0
KERNEL(THREADS, 1) relu_backward(REGION(const float, outputs), REGION(float, gradient), u64 count) {
    AT(const float, outputs);
    AT(float, gradient);
    EACH(i, count) if (!(outputs[i] > 0)) gradient[i] = 0;
}

// sums[j] = sum over i of values[i, j]
KERNEL(THREADS, 1) sum_rows(REGION(const float, values), u64 rows, REGION(float, sums), u64 columns) {
    AT(const float, values);
    AT(float, sums);
    EACH(j, columns) {
        float sum = 0;
        ROLLED for (u64 i = 0; i < rows; i++) sum += values[i * columns + j];
        sums[j] = sum;
    }
}

// One group of THREADS. Each row of the logits becomes its loss's gradient over `rows`; tally[0] += the losses, tally[1] +=
// the rows whose largest logit is the label's. A label that is no column counts as the last.
KERNEL(THREADS, 1) softmax_cross_entropy(REGION(const u32, labels), float smoothing, REGION(float, logits), u64 rows,
                                         u64 columns, REGION(float, tally)) {
    AT(const u32, labels);
    AT(float, logits);
    AT(float, tally);
    SHARED float losses[THREADS], correct[THREADS];
    u32 thread = THREAD('x');
    float loss = 0, right = 0, share = smoothing / columns;
    ROLLED for (u64 i = thread; i < rows; i += THREADS) {
        GLOBAL float *row = logits + i * columns;
        u64 label = labels[i] < columns ? labels[i] : columns - 1;
        float largest = row[0], sum = 0;
        ROLLED for (u64 j = 1; j < columns; j++) largest = fmax(largest, row[j]);
        right += row[label] >= largest;
        float expected = (1 - smoothing) * (row[label] - largest);
        ROLLED for (u64 j = 0; j < columns; j++) {
            float exponent = row[j] - largest;
            expected += share * exponent;
            row[j] = exp(exponent);
            sum += row[j];
        }
        ROLLED for (u64 j = 0; j < columns; j++) {
            row[j] = (row[j] / sum - share - (j == label ? 1 - smoothing : 0)) / rows;
        }
        loss += log(sum) - expected;
    }
    losses[thread] = loss;
    correct[thread] = right;
    BARRIER;
    if (thread == 0) {
        ROLLED for (u32 i = 1; i < THREADS; i++) loss += losses[i], right += correct[i];
        tally[0] += loss;
        tally[1] += right;
    }
}

KERNEL(THREADS, 1) adam(float rate, float beta_1, float beta_2, float epsilon, REGION(const float, gradient),
                        REGION(float, values), REGION(float, first_moment), REGION(float, second_moment), u64 count) {
    AT(const float, gradient);
    AT(float, values);
    AT(float, first_moment);
    AT(float, second_moment);
    EACH(i, count) {
        float g = gradient[i];
        float m = first_moment[i] = beta_1 * first_moment[i] + (1 - beta_1) * g;
        float v = second_moment[i] = beta_2 * second_moment[i] + (1 - beta_2) * g * g;
        values[i] -= rate * m / (sqrt(v) + epsilon);
    }
}

DEVICE float acceleration(float mu, float x, float v) { return mu * (1 - x * x) * v - x; }

// Van der Pol's oscillator by the classical method of Runge and Kutta. `parameters` has three rows of `runs`: mu, and where and
// how fast it is at first. Row n of `states` is where it is after n + 1 times `steps` steps.
KERNEL(THREADS, 1) van_der_pol(REGION(const float, parameters), float step, u64 steps, REGION(float, states), u64 runs,
                               u64 samples) {
    AT(const float, parameters);
    AT(float, states);
    EACH(i, runs) {
        float mu = parameters[i], x = parameters[runs + i], v = parameters[2 * runs + i];
        ROLLED for (u64 sample = 0; sample < samples; sample++) {
            ROLLED for (u64 k = 0; k < steps; k++) {
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
