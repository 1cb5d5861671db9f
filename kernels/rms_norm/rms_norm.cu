// rms_norm over rows: whole ones in registers, longer ones walked twice, and few very long ones shared between blocks.
//
// One function is compiled at a time: NAME, its ELEMENT, its most threads (BLOCK) and its BODY, such as
// whole_rows<float16, 8, vectors>, are macros that Python defines.
#include "_elements.cuh"

// What all functions take: `weight` and `rstd` may be null.
template <class T>
struct Tensors {
    const T* x;
    long long row_stride, col_stride;
    const T* weight;
    long long weight_stride;
    T* out;
    float* rstd;
    long long rows, cols;
    float eps;
};

__device__ __forceinline__ float root(float squares, long long cols, float eps) {
    return rsqrtf(squares / static_cast<float>(cols) + eps);
}

template <int COUNT>
__device__ __forceinline__ float squares_of(const float (&value)[COUNT]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum += value[i] * value[i];
    return sum;
}

template <bool VECTORS, int COUNT, class T>
__device__ __forceinline__ void load_weight(float (&weight)[COUNT], const Tensors<T>& given, long long start) {
    if (given.weight) {
        load<VECTORS>(weight, given.weight, given.weight_stride, start, given.cols, 0.0f);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) weight[i] = 1.0f;
    }
}

// Scales and writes COUNT values of a row.
template <bool VECTORS, int COUNT, class T>
__device__ __forceinline__ void write(
    float (&value)[COUNT], const float (&weight)[COUNT], float rstd, T* row, long long start, long long cols
) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) value[i] = value[i] * rstd * weight[i];
    store<VECTORS>(value, row, start, cols);
}

// Each row is read once and written once, by the threads of one threadIdx.y, each with VALUES columns.
template <class T, int VALUES, bool VECTORS>
__device__ __forceinline__ void whole_rows(const Tensors<T>& given, float*, long long) {
    __shared__ float between[2][32];
    constexpr bool KEPT = VALUES <= 16;  // the weight, in registers for all rows of the block
    float weight[VALUES];
    if (KEPT) load_weight<VECTORS>(weight, given, 0);
    const long long step = static_cast<long long>(gridDim.x) * blockDim.y;
    int turn = 0;
    for (long long first = static_cast<long long>(blockIdx.x) * blockDim.y; first < given.rows; first += step) {
        const bool inside = first + threadIdx.y < given.rows;
        const long long row = inside ? first + threadIdx.y : given.rows - 1;  // as all threads of a warp join
        float value[VALUES];
        load<VECTORS>(value, given.x + row * given.row_stride, given.col_stride, 0, given.cols, 0.0f);
        const float rstd = root(join_row<Add>(squares_of(value), between[turn]), given.cols, given.eps);
        turn = 1 - turn;
        if (!KEPT) load_weight<VECTORS>(weight, given, 0);
        if (inside) {
            write<VECTORS>(value, weight, rstd, given.out + row * given.cols, 0, given.cols);
            if (given.rstd && threadIdx.x == 0) given.rstd[row] = rstd;
        }
    }
}

// This thread's sum of the squares of a row's columns from `first` to before `last`.
template <int VALUES, bool VECTORS, class T>
__device__ __forceinline__ float walk(const Tensors<T>& given, long long row, long long first, long long last) {
    const long long step = static_cast<long long>(blockDim.x) * VALUES;
    float squares = 0.0f;
    for (long long start = first; start < last; start += step) {
        float value[VALUES];
        load<VECTORS>(value, given.x + row * given.row_stride, given.col_stride, start, last, 0.0f);
        squares += squares_of(value);
    }
    return squares;
}

// Writes one chunk of a row, blockDim.x * VALUES columns.
template <int VALUES, bool VECTORS, class T>
__device__ __forceinline__ void write_chunk(const Tensors<T>& given, long long row, long long start, float rstd) {
    float value[VALUES], weight[VALUES];
    load<VECTORS>(value, given.x + row * given.row_stride, given.col_stride, start, given.cols, 0.0f);
    load_weight<VECTORS>(weight, given, start);
    write<VECTORS>(value, weight, rstd, given.out + row * given.cols, start, given.cols);
}

// One row at a time: once for the squares, then again to write, from L1 or L2.
template <class T, int VALUES, bool VECTORS>
__device__ __forceinline__ void long_rows(const Tensors<T>& given, float*, long long) {
    __shared__ float between[2][32];
    const long long step = static_cast<long long>(blockDim.x) * VALUES;
    int turn = 0;
    for (long long row = blockIdx.x; row < given.rows; row += gridDim.x) {
        const float squares = walk<VALUES, VECTORS>(given, row, 0, given.cols);
        const float rstd = root(join_row<Add>(squares, between[turn]), given.cols, given.eps);
        turn = 1 - turn;
        if (given.rstd && threadIdx.x == 0) given.rstd[row] = rstd;
        for (long long start = 0; start < given.cols; start += step) {
            write_chunk<VALUES, VECTORS>(given, row, start, rstd);
        }
    }
}

// The sum of the squares of one part of a row, `span` columns: blockIdx.x is the part, blockIdx.y the row.
template <class T, int VALUES, bool VECTORS>
__device__ __forceinline__ void parts_of_rows(const Tensors<T>& given, float* sums, long long span) {
    __shared__ float between[32];
    const long long first = blockIdx.x * span;
    const float squares = walk<VALUES, VECTORS>(given, blockIdx.y, first, min(first + span, given.cols));
    const float sum = join_row<Add>(squares, between);
    if (threadIdx.x == 0) sums[static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

// One chunk of a row, from the sums of all of the row's parts: blockIdx.x is the chunk, blockIdx.y the row.
template <class T, int VALUES, bool VECTORS>
__device__ __forceinline__ void join_parts(const Tensors<T>& given, const float* sums, int parts) {
    float squares = 0.0f;
    for (int part = threadIdx.x % 32; part < parts; part += 32) squares += sums[blockIdx.y * parts + part];
    const float rstd = root(join_warp<Add>(squares, 32), given.cols, given.eps);
    if (given.rstd && blockIdx.x == 0 && threadIdx.x == 0) given.rstd[blockIdx.y] = rstd;
    write_chunk<VALUES, VECTORS>(given, blockIdx.y, static_cast<long long>(blockIdx.x) * blockDim.x * VALUES, rstd);
}

extern "C" __global__ void __launch_bounds__(BLOCK) NAME(
    const ELEMENT* x, long long row_stride, long long col_stride, const ELEMENT* weight, long long weight_stride,
    ELEMENT* out, float* rstd, long long rows, long long cols, float eps, float* sums, long long count
) {
    const Tensors<ELEMENT> given{x, row_stride, col_stride, weight, weight_stride, out, rstd, rows, cols, eps};
    BODY(given, sums, count);
}
