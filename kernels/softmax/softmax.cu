// softmax over rows: whole ones in registers, longer ones walked twice.
//
// One function is compiled at a time: NAME, its ELEMENT, its most threads (BLOCK) and its BODY, such as
// whole_rows<float16, 8, vectors>, are macros that Python defines.
#include "_elements.cuh"

// Each row is read once and written once, by the threads of one threadIdx.y, each with VALUES columns.
template <class T, int VALUES, bool VECTORS>
__device__ __forceinline__ void whole_rows(
    const T* x, T* out, long long rows, long long cols, long long row_stride, long long col_stride
) {
    __shared__ float tops[32], totals[32];
    const long long step = static_cast<long long>(gridDim.x) * blockDim.y;
    for (long long first = static_cast<long long>(blockIdx.x) * blockDim.y; first < rows; first += step) {
        const bool inside = first + threadIdx.y < rows;
        const long long row = inside ? first + threadIdx.y : rows - 1;  // as all threads of a warp join
        float value[VALUES];
        load<VECTORS>(value, x + row * row_stride, col_stride, 0, cols, -INFINITE);
        float top = -INFINITE;
#pragma unroll
        for (int i = 0; i < VALUES; ++i) top = fmaxf(top, value[i]);
        top = join_row<Most>(top, tops);
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            value[i] = power(value[i] - top);  // of a row of -inf NaN, as its columns beyond the end are then too
            total += value[i];
        }
        const float scale = 1.0f / join_row<Add>(total, totals);
#pragma unroll
        for (int i = 0; i < VALUES; ++i) value[i] *= scale;
        if (inside) store<VECTORS>(value, out + row * cols, 0, cols);
    }
}

// One row at a time: once for maximum and sum together, then again to write, from L1 or L2. The sum so far is rescaled
// whenever the maximum grows (online softmax, Milakov and Gimelshein, 2018).
template <class T, int VALUES, bool VECTORS>
__device__ __forceinline__ void long_rows(
    const T* x, T* out, long long rows, long long cols, long long row_stride, long long col_stride
) {
    __shared__ float tops[32], totals[32];
    const long long step = static_cast<long long>(blockDim.x) * VALUES;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* source = x + row * row_stride;
        float value[VALUES];
        float top = -INFINITE, total = 0.0f;
        for (long long start = 0; start < cols; start += step) {
            load<VECTORS>(value, source, col_stride, start, cols, -INFINITE);
            float next = top;
#pragma unroll
            for (int i = 0; i < VALUES; ++i) next = fmaxf(next, value[i]);
            const float shift = next == -INFINITE ? 0.0f : next;  // -inf - -inf would be NaN
            total *= power(top - shift);
#pragma unroll
            for (int i = 0; i < VALUES; ++i) total += power(value[i] - shift);
            top = next;
        }
        float highest = join_row<Most>(top, tops);
        highest = highest == -INFINITE ? 0.0f : highest;
        const float scale = 1.0f / join_row<Add>(total * power(top - highest), totals);
        for (long long start = 0; start < cols; start += step) {
            load<VECTORS>(value, source, col_stride, start, cols, -INFINITE);
#pragma unroll
            for (int i = 0; i < VALUES; ++i) value[i] = power(value[i] - highest) * scale;
            store<VECTORS>(value, out + row * cols, start, cols);
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) NAME(
    const ELEMENT* x, ELEMENT* out, long long rows, long long cols, long long row_stride, long long col_stride
) {
    BODY(x, out, rows, cols, row_stride, col_stride);
}
