// Kernels of stages: structures with the numbers of inputs and outputs, `body`, for each input what it is known for, and
// for each input and output whether it only goes from stage to stage: those are not rounded to the tensors' type.

typedef unsigned long long Index;
#define SIDE 16
enum Axes { X, Y, PAIR, DEPTH };

struct Operands { void *data[OPERANDS]; };
struct Sizes { Index n, m, p; };

template <class S> DEVICE Number number(const Operands &operands, int input, Index at) {
    const void *data = operands.data[input];
    return S::between(input) ? ((const Number *)data)[at] : load(((const Stored *)data)[at]);
}
template <class S> DEVICE void result(const Operands &operands, int output, Index at, Number value) {
    void *data = operands.data[S::INPUTS + output];
    if (S::between(S::INPUTS + output)) ((Number *)data)[at] = value;
    else ((Stored *)data)[at] = store(value);
}

// Every element of arrays of one size.
template <class S> DEVICE void elements(const Operands &operands, const Attributes &attributes, const Sizes &sizes) {
    const Index count = S::SPACE == X ? sizes.n * sizes.p : S::SPACE == Y ? sizes.m * sizes.p : sizes.n * sizes.m;
    for (Index at = (Index)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (Index)gridDim.x * blockDim.x) {
        Number in[S::INPUTS + 1], out[S::OUTPUTS];
#pragma unroll
        for (int t = 0; t < S::INPUTS; t++) in[t] = S::axes(t) == DEPTH ? (Number)sizes.p : number<S>(operands, t, at);
        S::body(in, out, attributes);
#pragma unroll
        for (int o = 0; o < S::OUTPUTS; o++) result<S>(operands, o, at, out[o]);
    }
}

// Folds over the elements of pairs of rows: blocks of SIDE x SIDE threads, one for a pair, with tiles of the rows in
// shared memory.
template <class S, int OUTPUT, int FOLD>
DEVICE void fold_pairs(const Operands &operands, const Attributes &attributes, const Sizes &sizes) {
    __shared__ Number tiles[S::INPUTS + 1][SIDE][SIDE + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    for (Index i0 = (Index)blockIdx.y * SIDE; i0 < sizes.n; i0 += (Index)gridDim.y * SIDE)
        for (Index j0 = (Index)blockIdx.x * SIDE; j0 < sizes.m; j0 += (Index)gridDim.x * SIDE) {
            const Index i = i0 + ty, j = j0 + tx;
            const bool inside = i < sizes.n && j < sizes.m;
            Number in[S::INPUTS + 1], out[S::OUTPUTS], total = identity<FOLD>();
#pragma unroll
            for (int t = 0; t < S::INPUTS; t++) {
                if (S::axes(t) == DEPTH) in[t] = (Number)sizes.p;
                if (S::axes(t) == PAIR) in[t] = inside ? number<S>(operands, t, i * sizes.m + j) : Number(0);
            }
            for (Index k0 = 0; k0 < sizes.p; k0 += SIDE) {
#pragma unroll
                for (int t = 0; t < S::INPUTS; t++) {
                    if (S::axes(t) == PAIR || S::axes(t) == DEPTH) continue;
                    const Index row = (S::axes(t) == X ? i0 : j0) + ty, rows = S::axes(t) == X ? sizes.n : sizes.m;
                    const bool there = row < rows && k0 + tx < sizes.p;
                    tiles[t][ty][tx] = there ? number<S>(operands, t, row * sizes.p + k0 + tx) : Number(0);
                }
                __syncthreads();
                const int len = sizes.p - k0 < SIDE ? (int)(sizes.p - k0) : SIDE;
                Number part = identity<FOLD>();
                for (int k = 0; k < len; k++) {
#pragma unroll
                    for (int t = 0; t < S::INPUTS; t++) {
                        if (S::axes(t) == X) in[t] = tiles[t][ty][k];
                        if (S::axes(t) == Y) in[t] = tiles[t][tx][k];
                    }
                    S::body(in, out, attributes);
                    part = fold<FOLD>(part, out[OUTPUT]);
                }
                total = fold<FOLD>(total, part);
                __syncthreads();
            }
            if (inside) result<S>(operands, OUTPUT, i * sizes.m + j, total);
        }
}

// Sums over the rows of the other matrix: blocks of SIDE x SIDE threads, one for an element of a row, with tiles of the
// other rows and of the pairs in shared memory. OUTER is X or Y.
template <class S, int OUTPUT, int OUTER>
DEVICE void sum_rows(const Operands &operands, const Attributes &attributes, const Sizes &sizes) {
    __shared__ Number tiles[S::INPUTS + 1][SIDE][SIDE + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const Index outer = OUTER == X ? sizes.n : sizes.m, inner = OUTER == X ? sizes.m : sizes.n;
    for (Index a0 = (Index)blockIdx.y * SIDE; a0 < outer; a0 += (Index)gridDim.y * SIDE)
        for (Index k0 = (Index)blockIdx.x * SIDE; k0 < sizes.p; k0 += (Index)gridDim.x * SIDE) {
            const Index a = a0 + ty, k = k0 + tx;
            const bool inside = a < outer && k < sizes.p;
            Number in[S::INPUTS + 1], out[S::OUTPUTS], total = 0;
#pragma unroll
            for (int t = 0; t < S::INPUTS; t++) {
                if (S::axes(t) == DEPTH) in[t] = (Number)sizes.p;
                if (S::axes(t) == OUTER) in[t] = inside ? number<S>(operands, t, a * sizes.p + k) : Number(0);
            }
            for (Index b0 = 0; b0 < inner; b0 += SIDE) {
#pragma unroll
                for (int t = 0; t < S::INPUTS; t++) {
                    if (S::axes(t) == OUTER || S::axes(t) == DEPTH) continue;
                    if (S::axes(t) == PAIR) {
                        const Index b = b0 + tx, at = OUTER == X ? a * sizes.m + b : b * sizes.m + a;
                        tiles[t][ty][tx] = a < outer && b < inner ? number<S>(operands, t, at) : Number(0);
                    } else {
                        const bool there = b0 + ty < inner && k < sizes.p;
                        tiles[t][ty][tx] = there ? number<S>(operands, t, (b0 + ty) * sizes.p + k) : Number(0);
                    }
                }
                __syncthreads();
                const int len = inner - b0 < SIDE ? (int)(inner - b0) : SIDE;
                Number part = 0;
                for (int b = 0; b < len; b++) {
#pragma unroll
                    for (int t = 0; t < S::INPUTS; t++) {
                        if (S::axes(t) == PAIR) in[t] = tiles[t][ty][b];
                        else if (S::axes(t) != OUTER && S::axes(t) != DEPTH) in[t] = tiles[t][b][tx];
                    }
                    S::body(in, out, attributes);
                    part += out[OUTPUT];
                }
                total += part;
                __syncthreads();
            }
            if (inside) result<S>(operands, OUTPUT, a * sizes.p + k, total);
        }
}
