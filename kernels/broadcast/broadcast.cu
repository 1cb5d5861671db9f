// broadcast: one row, written to every row of the output.
//
// One function is compiled at a time: NAME, its ELEMENT, that of the row (BIAS) and its BODY, whole_vectors or any_rows,
// are macros that Python defines.
#include "_elements.cuh"

// Rows of whole vectors. A thread keeps one vector of the row and writes it to `depth` rows, blockDim.y apart. The
// blocks of a row are neighbours: those that run at once share few rows.
template <class T, class B>
__device__ __forceinline__ void whole_vectors(
    const B* bias, T* out, long long rows, long long cols, long long stride, long long blocks, int depth
) {
    constexpr int SIZE = Vector<T>::SIZE;
    const long long col = (blockIdx.x % blocks * blockDim.x + threadIdx.x) * SIZE;
    if (col >= cols) return;
    Vector<T> value;
    if (sizeof(B) == sizeof(T) && stride == 1 && reinterpret_cast<unsigned long long>(bias) % 16 == 0) {
        Vector<B> given;
        given.bits = *reinterpret_cast<const uint4*>(bias + col);
#pragma unroll
        for (int j = 0; j < SIZE; ++j) narrow(value.at[j], widen(given.at[j]));
    } else {
#pragma unroll
        for (int j = 0; j < SIZE; ++j) narrow(value.at[j], widen(bias[(col + j) * stride]));
    }
    long long row = blockIdx.x / blocks * blockDim.y * depth + threadIdx.y;
    T* place = out + row * cols + col;
    for (int i = 0; i < depth && row < rows; ++i, row += blockDim.y, place += blockDim.y * cols) {
        *reinterpret_cast<uint4*>(place) = value.bits;
    }
}

// Rows of any length. Vectors of the output, whose elements may be of two rows; its last one may not be whole.
template <class T, class B>
__device__ __forceinline__ void any_rows(
    const B* bias, T* out, long long rows, long long cols, long long stride, long long, int
) {
    constexpr int SIZE = Vector<T>::SIZE;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x * SIZE, total = rows * cols;
    long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * SIZE;
    for (; first < total; first += step) {
        Vector<T> value;
        long long col = first % cols;
#pragma unroll
        for (int j = 0; j < SIZE; ++j) {
            narrow(value.at[j], widen(bias[col * stride]));
            col = col + 1 == cols ? 0 : col + 1;
        }
        if (first + SIZE <= total) {
            *reinterpret_cast<uint4*>(out + first) = value.bits;
        } else {
            for (int j = 0; j < SIZE && first + j < total; ++j) out[first + j] = value.at[j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) NAME(
    const BIAS* bias, ELEMENT* out, long long rows, long long cols, long long stride, long long blocks, int depth
) {
    BODY(bias, out, rows, cols, stride, blocks, depth);
}
