// Elements of tensors: float32, float16 or bfloat16 in memory, always float32 in registers. It takes no header of CUDA's,
// which would make compiling several times as long.
#pragma once

#define INFINITE __int_as_float(0x7f800000)

typedef float float32;
struct float16 {
    unsigned short bits;
};
struct bfloat16 {
    unsigned short bits;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(float16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
__device__ __forceinline__ float widen(bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

__device__ __forceinline__ void narrow(float& out, float x) { out = x; }
__device__ __forceinline__ void narrow(float16& out, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
}
__device__ __forceinline__ void narrow(bfloat16& out, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
}

// What a thread loads or stores at once: 16 bytes.
template <class T>
union Vector {
    static constexpr int SIZE = 16 / sizeof(T);
    uint4 bits;
    T at[SIZE];
};

// e to the power of x, to about 2 units in the last place for x near 0; 0 instead of a denormal number.
__device__ __forceinline__ float power(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
    return result;
}

constexpr bool vectors = true, elements = false;  // how rows are read and written

// --- rows ------------------------------------------------------------------------------------------------------------

// The threads of a row are those of one threadIdx.y, a power of two. A thread's values of a row lie at the columns
//     start + i * blockDim.x + threadIdx.x                     elements, at any stride
//     start + (i * blockDim.x + threadIdx.x) * SIZE + j        vectors, if rows are made of whole ones
// so that neighbouring threads take neighbours. `start` and `cols` may be beyond 2^31.

// Widens COUNT values of a row; those beyond its end are `other`.
template <bool VECTORS, int COUNT, class T>
__device__ __forceinline__ void load(
    float (&value)[COUNT], const T* row, long long stride, long long start, long long cols, float other
) {
    if constexpr (VECTORS) {
        constexpr int SIZE = Vector<T>::SIZE;
        static_assert(COUNT % SIZE == 0);
        Vector<T> loaded[COUNT / SIZE];
#pragma unroll
        for (int i = 0; i < COUNT / SIZE; ++i) {  // all loads before the first use
            const long long col = start + static_cast<long long>(i * blockDim.x + threadIdx.x) * SIZE;
            if (col < cols) loaded[i].bits = *reinterpret_cast<const uint4*>(row + col);
        }
#pragma unroll
        for (int i = 0; i < COUNT / SIZE; ++i) {
            const long long col = start + static_cast<long long>(i * blockDim.x + threadIdx.x) * SIZE;
#pragma unroll
            for (int j = 0; j < SIZE; ++j) value[i * SIZE + j] = col < cols ? widen(loaded[i].at[j]) : other;
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const long long col = start + static_cast<long long>(i * blockDim.x + threadIdx.x);
            value[i] = col < cols ? widen(row[col * stride]) : other;
        }
    }
}

// Rounds and stores COUNT values of a row of neighbours.
template <bool VECTORS, int COUNT, class T>
__device__ __forceinline__ void store(const float (&value)[COUNT], T* row, long long start, long long cols) {
    if constexpr (VECTORS) {
        constexpr int SIZE = Vector<T>::SIZE;
#pragma unroll
        for (int i = 0; i < COUNT / SIZE; ++i) {
            const long long col = start + static_cast<long long>(i * blockDim.x + threadIdx.x) * SIZE;
            Vector<T> rounded;
#pragma unroll
            for (int j = 0; j < SIZE; ++j) narrow(rounded.at[j], value[i * SIZE + j]);
            if (col < cols) *reinterpret_cast<uint4*>(row + col) = rounded.bits;
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const long long col = start + static_cast<long long>(i * blockDim.x + threadIdx.x);
            if (col < cols) narrow(row[col], value[i]);
        }
    }
}

struct Add {
    __device__ __forceinline__ static float neutral() { return 0.0f; }
    __device__ __forceinline__ static float of(float x, float y) { return x + y; }
};
struct Most {
    __device__ __forceinline__ static float neutral() { return -INFINITE; }
    __device__ __forceinline__ static float of(float x, float y) { return fmaxf(x, y); }
};

// Joins one number of each of `threads` neighbours within a warp, a power of two; all of them get the answer.
template <class Join>
__device__ __forceinline__ float join_warp(float x, int threads) {
    for (int apart = threads / 2; apart > 0; apart /= 2) x = Join::of(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

// Joins one number of each of a row's threads; all of them get the answer. Every thread of the block has to call it. A
// row of more than a warp is alone in its block, and `between` has a place for each warp. Before a second call with the
// same `between` the block has to wait for itself, as it does in a call with another.
template <class Join>
__device__ __forceinline__ float join_row(float x, float* between) {
    x = join_warp<Join>(x, min(blockDim.x, 32u));
    if (blockDim.x > 32) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) between[threadIdx.x / 32] = x;
        __syncthreads();
        x = join_warp<Join>(lane < blockDim.x / 32 ? between[lane] : Join::neutral(), 32);
    }
    return x;
}
