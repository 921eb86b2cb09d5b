// Elements by their positions along a dim. A position that is not there gives zeros: a card cannot refuse it.
#include "opsmith.cuh"

using opsmith::Space;

// A position along `dim`, counted from its end where negative; −1 where it is not there.
template <typename P> OPSMITH_INLINE long long from_start(P given, long long dim) {
    const long long at = given < 0 ? given + dim : given;
    return at >= 0 && at < dim ? at : -1;
}

// Elements are bytes here, of a type as large as theirs. The operands are the tensor, but for its own dim, and the positions.
template <typename T, typename P, typename Index>
__global__ void taken(const T *x, const P *positions, T *y, Index dim, Index step, Space<Index, 2> space) {
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        const auto places = space[i];
        const long long at = from_start(positions[places.at[1]], dim);
        y[i] = at < 0 ? T(0) : x[places.at[0] + (Index)at * step];
    }
}

// What follows sorts positions by their places along the dim, by 4 bits at a time from the lowest on, so that equal ones stay in
// their order; then each place has its own side by side. The operands of `terms` are what is put back and the positions.
enum { THREADS = 256, EACH = 16, CHUNK = THREADS * EACH, DIGITS = 16, FEW = 32 };

// The place that position `term` says; `dim`, behind all others, for one that is not there.
template <typename P, typename Index>
OPSMITH_INLINE Index place_of(const P *positions, Index term, Index dim, const Space<Index, 2> &terms) {
    const long long at = from_start(positions[terms[term].at[1]], dim);
    return at < 0 ? dim : (Index)at;
}

// The positions of a thread, in the order so far, which is their own where it is null: `take(position, digit)` for each.
template <typename P, typename Index, typename Take>
OPSMITH_INLINE void for_own(const P *positions, const Index *order, Index dim, int shift, const Space<Index, 2> &terms, const Take &take) {
    const long long first = (long long)blockIdx.x * CHUNK + threadIdx.x * EACH;
    for (int n = 0; n < EACH && first + n < terms.count; n++) {
        const Index term = order ? order[first + n] : (Index)(first + n);
        take(term, (int)(place_of(positions, term, dim, terms) >> shift & (DIGITS - 1)));
    }
}

// How many of its positions each thread of a block has of each digit, and how many each 16 threads have.
template <typename P, typename Index>
OPSMITH_INLINE void count_own(const P *positions, const Index *order, Index dim, int shift, const Space<Index, 2> &terms, unsigned short (*own)[DIGITS], unsigned short (*parts)[DIGITS]) {
    for (int digit = 0; digit < DIGITS; digit++) own[threadIdx.x][digit] = 0;
    for_own(positions, order, dim, shift, terms, [&](Index, int digit) { own[threadIdx.x][digit]++; });
    __syncthreads();
    const int part = threadIdx.x / DIGITS, digit = threadIdx.x % DIGITS;
    unsigned short sum = 0;
    for (int n = 0; n < DIGITS; n++) sum += own[part * DIGITS + n][digit];
    parts[part][digit] = sum;
    __syncthreads();
}

// How many positions each block has of each digit; all blocks of a digit are side by side.
template <typename P, typename Index>
__global__ void counted(const P *positions, const Index *order, Index *counts, Index dim, int shift, Space<Index, 2> terms) {
    __shared__ unsigned short own[THREADS][DIGITS], parts[DIGITS][DIGITS];
    count_own(positions, order, dim, shift, terms, own, parts);
    if (threadIdx.x >= DIGITS) return;
    Index sum = 0;
    for (int part = 0; part < DIGITS; part++) sum += parts[part][threadIdx.x];
    counts[(Index)threadIdx.x * gridDim.x + blockIdx.x] = sum;
}

// The sums of all counts before each one, by one block.
template <typename Index> __global__ void added(Index *counts, Index count) {
    __shared__ Index sums[THREADS];
    const Index each = (count + THREADS - 1) / THREADS, begin = each * threadIdx.x;
    const Index from = begin < count ? begin : count, to = count - from < each ? count : from + each;
    Index own = 0;
    for (Index n = from; n < to; n++) own += counts[n];
    sums[threadIdx.x] = own;
    for (int step = 1; step < THREADS; step *= 2) {
        __syncthreads();
        const Index before = (int)threadIdx.x < step ? 0 : sums[threadIdx.x - step];
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    Index before = sums[threadIdx.x] - own;
    for (Index n = from; n < to; n++) {
        const Index here = counts[n];
        counts[n] = before;
        before += here;
    }
}

// Puts positions in the order of a digit. `begins` has where those of each digit and block begin.
template <typename P, typename Index>
__global__ void ordered(const P *positions, const Index *order, Index *to, const Index *begins, Index dim, int shift, Space<Index, 2> terms) {
    __shared__ unsigned short own[THREADS][DIGITS], parts[DIGITS][DIGITS];
    count_own(positions, order, dim, shift, terms, own, parts);
    const int part = threadIdx.x / DIGITS, digit = threadIdx.x % DIGITS;
    unsigned short before = 0;
    for (int n = 0; n < part; n++) before += parts[n][digit];
    for (int n = 0; n < DIGITS; n++) {
        const unsigned short here = own[part * DIGITS + n][digit];
        own[part * DIGITS + n][digit] = before;
        before += here;
    }
    __syncthreads();
    for_own(positions, order, dim, shift, terms, [&](Index term, int digit) {
        to[begins[(Index)digit * gridDim.x + blockIdx.x] + own[threadIdx.x][digit]++] = term;
    });
}

// Where the positions of each place begin in the order, and where those of the last one end.
template <typename P, typename Index>
__global__ void bounds(const P *positions, const Index *order, Index *begins, Index dim, Space<Index, 2> terms) {
    OPSMITH_GRID_LOOP(Index, at, dim + 1) {
        Index low = 0, high = terms.count;
        while (low < high) {
            const Index middle = low + (high - low) / 2;
            if (place_of(positions, order[middle], dim, terms) < at) low = middle + 1;
            else high = middle;
        }
        begins[at] = low;
    }
}

// Sums of what was taken from each place, in the order of the positions, but for places that were taken from more than a few times.
// `kept` has the places before and behind.
template <typename T, typename Index>
__global__ void put_back(const T *gradient, const Index *order, const Index *begins, T *x, Index dim, Index inner, Space<Index, 1> kept, Space<Index, 2> terms) {
    OPSMITH_GRID_LOOP(Index, i, dim * kept.count) {
        const Index at = i / kept.count, own = i % kept.count, begin = begins[at], end = begins[at + 1];
        if (end - begin > FEW) continue;
        const Index base = kept[own].at[0];
        opsmith::wide<T> sum = 0;
        for (Index n = begin; n < end; n++) sum += (opsmith::wide<T>)gradient[base + terms[order[n]].at[0]];
        x[(own / inner * dim + at) * inner + own % inner] = T(sum);
    }
}

// The same of the other places: a block goes through 256 of them, and along y its threads share the sums.
template <typename T, typename Index>
__global__ void put_many_back(const T *gradient, const Index *order, const Index *begins, T *x, Index dim, Index inner, Space<Index, 1> kept, Space<Index, 2> terms) {
    __shared__ bool many[THREADS];
    __shared__ opsmith::wide<T> sums[THREADS];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, lanes = blockDim.y;
    for (long long begun = (long long)blockIdx.x * THREADS; begun < dim; begun += (long long)gridDim.x * THREADS) {
        const Index first = (Index)begun;
        many[thread] = dim - first > thread && begins[first + thread + 1] - begins[first + thread] > FEW;
        if (!__syncthreads_or(many[thread])) continue;
        for (int n = 0; n < THREADS; n++) {
            if (!many[n]) continue;
            const Index at = first + n, begin = begins[at], end = begins[at + 1];
            for (Index slab = (Index)blockIdx.y * blockDim.x; slab < kept.count; slab += (Index)gridDim.y * blockDim.x) {
                const Index own = slab + threadIdx.x;
                opsmith::wide<T> sum = 0;
                if (own < kept.count) {
                    const Index base = kept[own].at[0];
                    for (Index term = begin + threadIdx.y; term < end; term += lanes) sum += (opsmith::wide<T>)gradient[base + terms[order[term]].at[0]];
                }
                sums[thread] = sum;
                for (int half = lanes / 2; half > 0; half /= 2) {
                    __syncthreads();
                    if ((int)threadIdx.y < half) sums[thread] += sums[thread + half * blockDim.x];
                }
                if (threadIdx.y == 0 && own < kept.count) x[(own / inner * dim + at) * inner + own % inner] = T(sums[thread]);
                __syncthreads();
            }
        }
        __syncthreads();
    }
}

// The operands are the positions, and how far an element is along the new dim.
template <typename P, typename Z, typename Index> __global__ void marked(const P *positions, Z *y, Space<Index, 2> space) {
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        const auto places = space[i];
        y[i] = (long long)positions[places.at[0]] == (long long)places.at[1] ? (Z)1 : (Z)0;
    }
}
