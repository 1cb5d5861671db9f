// matmul: tiles of the product in grouped order, summed in float32, finished by bias and activation before rounding.
//
// 16 bits: tensor cores by mma.sync, operands copied to shared memory a few blocks of k ahead by cp.async. float32: plain
// multiplications, since tensor cores would round its values to TF32.
//
// One function is compiled at a time: NAME, its ELEMENT, its threads (BLOCK) and its BODY, product_float32 or product<...>,
// are macros that Python defines.
#include "_elements.cuh"

constexpr int GROUP = 8;  // rows of tiles walked together, so that their columns of b are in L2
enum Activation { NONE, RELU, SILU, GELU, GELU_TANH };

// A matrix and the elements between neighbours of a column and of a row.
template <class T>
struct Matrix {
    const T* at;
    long long row, col;
};

struct Place {
    long long row, col;
};

// The first row and column of this block's tile: down GROUP rows of tiles, then to the next column.
__device__ __forceinline__ Place my_tile(long long m, long long n, int rows, int cols) {
    const long long tiles_m = (m + rows - 1) / rows, tiles_n = (n + cols - 1) / cols;
    const long long group = GROUP * tiles_n, first = blockIdx.x / group * GROUP;
    const long long height = min(tiles_m - first, static_cast<long long>(GROUP));
    const long long within = blockIdx.x % group;
    return {(first + within % height) * rows, within / height * cols};
}

__device__ __forceinline__ float activated(float x, int activation) {
    switch (activation) {
        case RELU: return x < 0.0f ? 0.0f : x;  // NaN stays
        case SILU: return x / (1.0f + __expf(-x));
        case GELU: return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
        // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
        case GELU_TANH: return x / (1.0f + __expf(-1.5957691216057308f * x * (1.0f + 0.044715f * x * x)));
        default: return x;
    }
}

// --- 16 bits ---------------------------------------------------------------------------------------------------------

// A block of an operand in shared memory: OUTER lines of INNER neighbours, in vectors of 8. Vectors of a line change
// places by the line's number, so that neither the copy nor ldmatrix, which takes 8 lines at once, meets a bank twice.
template <int INNER>
__device__ __forceinline__ unsigned swizzled(int line, int vector) {
    return (line * (INNER / 8) + (vector ^ line % 8)) * 16;
}

// Copies a vector of 16 bytes, of which the first `bytes` are read and the others become 0. It arrives later.
__device__ __forceinline__ void copy_later(unsigned target, const void* source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}

// Begins to copy a block of OUTER lines to shared memory by THREADS threads. Lines are `outer_stride` apart, elements of
// a line `inner_stride`; those beyond `outers` and `inners` become 0. VECTORS: a line's elements are neighbours, and its
// vectors lie at multiples of 16 bytes.
template <int OUTER, int INNER, int THREADS, bool VECTORS, class T>
__device__ __forceinline__ void copy_block(
    unsigned target, const T* source, long long outer_stride, long long inner_stride, long long outers, long long inners
) {
    constexpr int PER_LINE = INNER / 8, LINES = THREADS / PER_LINE;
    static_assert(THREADS % PER_LINE == 0 && OUTER % LINES == 0);
    const int vector = threadIdx.x % PER_LINE, inner = vector * 8;
    const int there = static_cast<int>(max(0ll, min(8ll, inners - inner)));
#pragma unroll
    for (int i = 0; i < OUTER / LINES; ++i) {
        const int line = threadIdx.x / PER_LINE + i * LINES;
        const int valid = line < outers ? there : 0;
        const T* place = source + line * outer_stride + inner * inner_stride;
        const unsigned at = target + swizzled<INNER>(line, vector);
        if constexpr (VECTORS) {
            copy_later(at, valid ? place : source, valid * 2);
        } else {
            Vector<T> value;
#pragma unroll
            for (int j = 0; j < 8; ++j) value.at[j].bits = j < valid ? place[j * inner_stride].bits : 0;
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(value.bits.x), "r"(value.bits.y),
                         "r"(value.bits.z), "r"(value.bits.w) : "memory");
        }
    }
}

// Loads four matrices of 8 x 8; each thread gives the address of one line of 8.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned address) {
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
    }
}

#define MULTIPLY(T, NAME)                                                                                             \
    __device__ __forceinline__ void multiply(                                                                         \
        float(&sum)[4], const unsigned(&a)[4], unsigned b_low, unsigned b_high, T                                     \
    ) {                                                                                                               \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME                                           \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));                          \
    }
MULTIPLY(float16, "f16")
MULTIPLY(bfloat16, "bf16")

// A tile of ROWS x COLS by warps of 32 or 64 rows (WARP_ROWS) and WARP_COLS columns. A_ROWS: elements of a row of a are
// neighbours, else those of a column, and B_ROWS likewise: shared memory has the operand as it lies in memory.
template <class T, int ROWS, int COLS, int WARP_ROWS, int WARP_COLS, int STAGES, bool A_ROWS, bool B_ROWS, bool VECTORS>
__device__ __forceinline__ void product(
    Matrix<T> a, Matrix<T> b, T* out, const T* bias, long long bias_stride, long long m, long long n, long long k,
    int activation
) {
    constexpr int DEPTH = 64;  // of k at a time
    constexpr int THREADS = ROWS / WARP_ROWS * (COLS / WARP_COLS) * 32;
    constexpr int A_BYTES = ROWS * DEPTH * 2, STAGE = A_BYTES + COLS * DEPTH * 2;
    constexpr int DOWN = WARP_ROWS / 16, ALONG = WARP_COLS / 8;
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const Place tile = my_tile(m, n, ROWS, COLS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / (COLS / WARP_COLS) * WARP_ROWS, warp_col = warp % (COLS / WARP_COLS) * WARP_COLS;

    const T* a_place = a.at + tile.row * a.row;
    const T* b_place = b.at + tile.col * b.col;
    auto copy_stage = [&](int stage, long long start) {
        const unsigned target = shared + stage * STAGE;
        const T *a_from = a_place + start * a.col, *b_from = b_place + start * b.row;
        if constexpr (A_ROWS) {
            copy_block<ROWS, DEPTH, THREADS, VECTORS>(target, a_from, a.row, a.col, m - tile.row, k - start);
        } else {
            copy_block<DEPTH, ROWS, THREADS, VECTORS>(target, a_from, a.col, a.row, k - start, m - tile.row);
        }
        if constexpr (B_ROWS) {
            copy_block<DEPTH, COLS, THREADS, VECTORS>(target + A_BYTES, b_from, b.row, b.col, k - start, n - tile.col);
        } else {
            copy_block<COLS, DEPTH, THREADS, VECTORS>(target + A_BYTES, b_from, b.col, b.row, n - tile.col, k - start);
        }
    };

    float sum[DOWN][ALONG][4] = {};
    const long long steps = (k + DEPTH - 1) / DEPTH;
#pragma unroll
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        if (ahead < steps) copy_stage(ahead, static_cast<long long>(ahead) * DEPTH);
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one too, so that one group is one step
    }
    int stage = 0, next = STAGES - 1;
    for (long long step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // everyone's copies are there, and nobody reads the stage that is written next
        if (step + STAGES - 1 < steps) copy_stage(next, (step + STAGES - 1) * DEPTH);
        asm volatile("cp.async.commit_group;" ::: "memory");
        const unsigned a_block = shared + stage * STAGE, b_block = a_block + A_BYTES;
#pragma unroll
        for (int inner = 0; inner < DEPTH; inner += 16) {
            // Fragments of 16 x 16: matrices in the order (first rows, first k), (last rows, first k), (first, last),
            // (last, last) for a; for b two fragments of 8 columns, each its first and its last k.
            unsigned left[DOWN][4], right[ALONG / 2][4];
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
                const int row = warp_row + i * 16;
                if constexpr (A_ROWS) {
                    load_matrices<false>(
                        left[i], a_block + swizzled<DEPTH>(row + lane % 16, inner / 8 + lane / 16)
                    );
                } else {
                    load_matrices<true>(
                        left[i],
                        a_block + swizzled<ROWS>(inner + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2)
                    );
                }
            }
#pragma unroll
            for (int j = 0; j < ALONG / 2; ++j) {
                const int col = warp_col + j * 16;
                if constexpr (B_ROWS) {
                    load_matrices<true>(
                        right[j], b_block + swizzled<COLS>(inner + lane % 16, col / 8 + lane / 16)
                    );
                } else {
                    load_matrices<false>(
                        right[j],
                        b_block + swizzled<DEPTH>(col + lane % 8 + lane / 16 * 8, inner / 8 + lane / 8 % 2)
                    );
                }
            }
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
#pragma unroll
                for (int j = 0; j < ALONG; ++j) {
                    multiply(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1], T());
                }
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();

    // The sums through shared memory, so that rows are finished and written in vectors. Lines have a vector more than they
    // need, so that the rows of a fragment meet no bank twice.
    constexpr int LINE = COLS + 8;
    static_assert(ROWS * LINE * 4 <= STAGES * STAGE);
    float* sums = reinterpret_cast<float*>(memory);
#pragma unroll
    for (int i = 0; i < DOWN; ++i) {
#pragma unroll
        for (int j = 0; j < ALONG; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + i * 16 + half * 8 + lane / 4, col = warp_col + j * 8 + lane % 4 * 2;
                const float2 pair = {sum[i][j][half * 2], sum[i][j][half * 2 + 1]};
                *reinterpret_cast<float2*>(sums + row * LINE + col) = pair;
            }
        }
    }
    __syncthreads();
    const bool whole = n % 8 == 0;
#pragma unroll 1
    for (int at = threadIdx.x; at < ROWS * (COLS / 8); at += THREADS) {
        const int row = at / (COLS / 8), near = at % (COLS / 8) * 8;
        const long long col = tile.col + near;
        if (tile.row + row >= m || col >= n) continue;
        const int count = static_cast<int>(min(8ll, n - col));
        float value[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) value[j] = sums[row * LINE + near + j];
        if (bias) {
#pragma unroll
            for (int j = 0; j < 8; ++j) value[j] += j < count ? widen(bias[(col + j) * bias_stride]) : 0.0f;
        }
        if (activation) {
#pragma unroll
            for (int j = 0; j < 8; ++j) value[j] = activated(value[j], activation);
        }
        Vector<T> finished;
#pragma unroll
        for (int j = 0; j < 8; ++j) narrow(finished.at[j], value[j]);
        T* place = out + (tile.row + row) * n + col;
        if (whole) {
            *reinterpret_cast<uint4*>(place) = finished.bits;
        } else {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (j < count) place[j] = finished.at[j];
            }
        }
    }
}

// --- float32 ---------------------------------------------------------------------------------------------------------

// A tile of 64 x 64 by 256 threads, each with 4 rows and 4 columns, 16 apart. a_first and b_first: neighbouring threads
// load neighbours of a row of the operand, else of a column.
__device__ __forceinline__ void product_float32(
    Matrix<float> a, Matrix<float> b, float* out, const float* bias, long long bias_stride, long long m, long long n,
    long long k, int activation
) {
    constexpr int SIDE = 64, DEPTH = 16;
    __shared__ float left[DEPTH][SIDE + 1], right[DEPTH][SIDE + 1];
    const Place tile = my_tile(m, n, SIDE, SIDE);
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const bool a_rows = a.col <= a.row, b_rows = b.col <= b.row;
    float sum[4][4] = {};
    for (long long start = 0; start < k; start += DEPTH) {
#pragma unroll
        for (int i = 0; i < SIDE * DEPTH / 256; ++i) {
            const int at = threadIdx.x + i * 256;
            const int row = a_rows ? at / DEPTH : at % SIDE, a_inner = a_rows ? at % DEPTH : at / SIDE;
            const int col = b_rows ? at % SIDE : at / DEPTH, b_inner = b_rows ? at / SIDE : at % DEPTH;
            const long long a_k = start + a_inner, b_k = start + b_inner, r = tile.row + row, c = tile.col + col;
            left[a_inner][row] = r < m && a_k < k ? a.at[r * a.row + a_k * a.col] : 0.0f;
            right[b_inner][col] = c < n && b_k < k ? b.at[b_k * b.row + c * b.col] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int inner = 0; inner < DEPTH; ++inner) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] += left[inner][y + i * 16] * right[inner][x + j * 16];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const long long col = tile.col + x + j * 16;
        const float added = bias && col < n ? bias[col * bias_stride] : 0.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const long long row = tile.row + y + i * 16;
            if (row < m && col < n) out[row * n + col] = activated(sum[i][j] + added, activation);
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) NAME(
    const ELEMENT* a_at, long long a_row, long long a_col, const ELEMENT* b_at, long long b_row, long long b_col,
    ELEMENT* out, const ELEMENT* bias, long long bias_stride, long long m, long long n, long long k, int activation
) {
    BODY({a_at, a_row, a_col}, {b_at, b_row, b_col}, out, bias, bias_stride, m, n, k, activation);
}
