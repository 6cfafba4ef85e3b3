// The kernels of cudarc_training.rs. `cudarc_training.ptx` is made from this file, so that a machine needs neither a toolkit nor NVRTC: by
// NVRTC 12.1 with `--gpu-architecture=compute_60`; comments are left out, and `.version` is set to 7.0, whose instructions are all it has.

typedef unsigned long long u64;

// errors = line[0] * x + line[1] - y
extern "C" __global__ void line_errors(const float *x, const float *y, const float *line, float *errors, u64 count) {
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < count) errors[i] = fmaf(line[0], x[i], line[1]) - y[i];
}

// A step of gradient descent, by one thread.
extern "C" __global__ void line_step(const float *x, const float *errors, float *line, float rate, u64 count) {
    float slope = 0, intercept = 0;
    _Pragma("unroll 1")
    for (u64 i = 0; i < count; i++) {
        slope = fmaf(errors[i], x[i], slope);
        intercept += errors[i];
    }
    line[0] -= rate / count * slope;
    line[1] -= rate / count * intercept;
}
