// The kernels of `mod.rs`, which defines TILE, THREADS, and STRIPS for a processor. A region is a buffer and the offset of the region
// in it, bytes.
//
// No kernel reads or writes but within the counts that it is given, and sums are made in one order whatever the device.

#define REGION(name) __global uchar *name##_buffer, ulong name##_offset
#define AT(type, name) __global type *name = (__global type *)(name##_buffer + name##_offset)
#define EACH(i, count) for (ulong i = get_global_id(0); i < count; i += get_global_size(0))
#define OF(x, y) __attribute__((reqd_work_group_size(x, y, 1)))

// product[i, j] = sum over k of left[i, k] * right[k, j]
#ifndef STRIPS
// A group of TILE x TILE items a tile of the product; its number counts the tiles row by row.
__kernel OF(TILE, TILE) void multiply(REGION(left), ulong left_row, ulong left_column, REGION(right), ulong right_row,
                                      ulong right_column, REGION(product), ulong rows, ulong inner, ulong columns) {
    AT(const float, left);
    AT(const float, right);
    AT(float, product);
    __local float left_tile[TILE][TILE + 1], right_tile[TILE][TILE + 1];
    size_t x = get_local_id(0), y = get_local_id(1);
    ulong tiles = (columns + TILE - 1) / TILE;
    ulong i = get_group_id(0) / tiles * TILE + y, j = get_group_id(0) % tiles * TILE + x;
    float sum = 0;
    for (ulong from = 0; from < inner; from += TILE) {
        ulong k = from + x;
        left_tile[y][x] = i < rows && k < inner ? left[i * left_row + k * left_column] : 0;
        k = from + y;
        right_tile[y][x] = j < columns && k < inner ? right[k * right_row + j * right_column] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < TILE; k++) sum += left_tile[y][k] * right_tile[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < rows && j < columns) product[i * columns + j] = sum;
}
#else
// An item ROWS x 16 elements of the product, by the vectors that a processor has.
#define ROWS 4
__kernel void multiply(REGION(left), ulong left_row, ulong left_column, REGION(right), ulong right_row, ulong right_column,
                       REGION(product), ulong rows, ulong inner, ulong columns) {
    AT(const float, left);
    AT(const float, right);
    AT(float, product);
    ulong across = (columns + 15) / 16;
    EACH(strip, (rows + ROWS - 1) / ROWS * across) {
        ulong i = strip / across * ROWS, j = strip % across * 16;
        uint width = min(columns - j, (ulong)16), height = min(rows - i, (ulong)ROWS);
        float16 sum[ROWS] = {0, 0, 0, 0};
        for (ulong k = 0; k < inner; k++) {
            __global const float *from = right + k * right_row + j * right_column;
            float16 line;
            if (width == 16 && right_column == 1) line = vload16(0, from);
            else {
                float parts[16];
                for (uint x = 0; x < 16; x++) parts[x] = x < width ? from[x * right_column] : 0;
                line = vload16(0, parts);
            }
            for (uint y = 0; y < ROWS; y++) sum[y] += left[(i + min(y, height - 1)) * left_row + k * left_column] * line;
        }
        for (uint y = 0; y < height; y++) {
            float parts[16];
            vstore16(sum[y], 0, parts);
            for (uint x = 0; x < width; x++) product[(i + y) * columns + j + x] = parts[x];
        }
    }
}
#endif

// values[i] = max(values[i] + bias[i % columns], floor)
__kernel void add_bias(REGION(bias), ulong columns, float floor, REGION(values), ulong count) {
    AT(const float, bias);
    AT(float, values);
    EACH(i, count) values[i] = fmax(values[i] + bias[i % columns], floor);
}

// gradient[i] = 0 where outputs[i] is not above 0
__kernel void relu_backward(REGION(outputs), REGION(gradient), ulong count) {
    AT(const float, outputs);
    AT(float, gradient);
    EACH(i, count) if (!(outputs[i] > 0)) gradient[i] = 0;
}

// sums[j] = sum over i of values[i, j]
__kernel void sum_rows(REGION(values), ulong rows, REGION(sums), ulong columns) {
    AT(const float, values);
    AT(float, sums);
    EACH(j, columns) {
        float sum = 0;
        for (ulong i = 0; i < rows; i++) sum += values[i * columns + j];
        sums[j] = sum;
    }
}

// One group of THREADS. Each row of the logits becomes its loss's gradient over `rows`; tally[0] += the losses, tally[1] +=
// the rows whose largest logit is the label's. A label that is no column counts as the last.
__kernel OF(THREADS, 1) void softmax_cross_entropy(REGION(labels), float smoothing, REGION(logits), ulong rows,
                                                   ulong columns, REGION(tally)) {
    AT(const uint, labels);
    AT(float, logits);
    AT(float, tally);
    __local float losses[THREADS], correct[THREADS];
    size_t thread = get_local_id(0);
    float loss = 0, right = 0, share = smoothing / columns;
    for (ulong i = thread; i < rows; i += THREADS) {
        __global float *row = logits + i * columns;
        ulong label = labels[i] < columns ? labels[i] : columns - 1;
        float largest = row[0], sum = 0;
        for (ulong j = 1; j < columns; j++) largest = fmax(largest, row[j]);
        right += row[label] >= largest;
        float expected = (1 - smoothing) * (row[label] - largest);
        for (ulong j = 0; j < columns; j++) {
            float exponent = row[j] - largest;
            expected += share * exponent;
            row[j] = exp(exponent);
            sum += row[j];
        }
        for (ulong j = 0; j < columns; j++) row[j] = (row[j] / sum - share - (j == label ? 1 - smoothing : 0)) / rows;
        loss += log(sum) - expected;
    }
    losses[thread] = loss;
    correct[thread] = right;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (thread == 0) {
        for (uint i = 1; i < THREADS; i++) loss += losses[i], right += correct[i];
        tally[0] += loss;
        tally[1] += right;
    }
}

__kernel void adam(float rate, float beta_1, float beta_2, float epsilon, REGION(gradient), REGION(values),
                   REGION(first_moment), REGION(second_moment), ulong count) {
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

float acceleration(float mu, float x, float v) { return mu * (1 - x * x) * v - x; }

// Van der Pol's oscillator by the classical method of Runge and Kutta. `parameters` has three rows of `runs`: mu, and where and
// how fast it is at first. Row n of `states` is where it is after n + 1 times `steps` steps.
__kernel void van_der_pol(REGION(parameters), float step, ulong steps, REGION(states), ulong runs, ulong samples) {
    AT(const float, parameters);
    AT(float, states);
    EACH(i, runs) {
        float mu = parameters[i], x = parameters[runs + i], v = parameters[2 * runs + i];
        for (ulong sample = 0; sample < samples; sample++) {
            for (ulong k = 0; k < steps; k++) {
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
