// Means over run-length-encoded masks, and their gradient: an embedding is read once for each mask that a place is in, and there
// is no dense mask. Sums go in an order that the sizes alone decide.
//
// No kernel can make a call fail. A run that leaves its column makes the mask's numbers NaN, and reaches no other memory.
#include "opsmith.cuh"

using opsmith::PackedAccessor;

#define THREADS 256   // of a block

// The places of a run, cut off at the ends of the column; `count` is NaN from the first run on that leaves its column.
template <typename S, typename Index> struct Run {
    Index start, end;

    OPSMITH_INLINE Run(const PackedAccessor<const S, 4, Index> &masks, Index b, Index m, Index x, Index y, double &count) {
        const auto run = masks[b][m][x];
        const long long first = run[0], last = run[1], most = y;
        if (first < 0 || first > most || last < 0 || last > most) count = __longlong_as_double(0x7ff8000000000000LL);
        start = (Index)(first < 0 ? 0 : first > most ? most : first);
        end = (Index)(last < start ? start : last > most ? most : last);
        count += (double)(end - start);
    }
};

// Sums over a part of the columns, for each mask and each part of up to THREADS of the embedding's numbers: a block. Threads take
// neighbouring numbers of neighbouring places.
template <typename T, typename S, typename Index>
__global__ void __launch_bounds__(THREADS) sums(
    PackedAccessor<const T, 4, Index> embedding, PackedAccessor<const S, 4, Index> masks, Index parts, double *sums,
    double *counts) {
    __shared__ double all[THREADS];
    const Index columns = embedding.size(1), y = embedding.size(2), d = embedding.size(3);
    const Index chunks = opsmith::ceil_div(d, (Index)THREADS);
    const Index chunk = (Index)blockIdx.x % chunks, part = (Index)blockIdx.x / chunks % parts;
    const Index mask = (Index)blockIdx.x / chunks / parts, b = mask / masks.size(1), m = mask % masks.size(1);
    const Index c0 = chunk * THREADS;
    const int width = d - c0 < THREADS ? (int)(d - c0) : THREADS, side = THREADS / width;
    const int c = threadIdx.x % width, place = threadIdx.x / width;
    double sum = 0, count = 0;
    const Index end = (Index)((long long)columns * (part + 1) / parts);
    for (Index x = (Index)((long long)columns * part / parts); x < end; x++) {
        const Run<S, Index> run(masks, b, m, x, y, count);
        T own = 0;
        if (place < side)
            for (Index at = place; at < run.end - run.start; at += side) own += embedding[b][x][run.start + at][c0 + c];
        sum += own;
    }
    all[threadIdx.x] = sum;
    __syncthreads();
    if (place > 0) return;
    for (int other = 1; other < side; other++) sum += all[other * width + c];
    const Index row = mask * parts + part;
    sums[row * d + c0 + c] = sum;
    if (c == 0 && chunk == 0) counts[row] = count;
}

// The means, of the sums and counts of all parts; 0 of a mask without places.
template <typename T, typename Index>
__global__ void means(const double *sums, const double *counts, Index parts, Index masks, Index d, T *mean) {
    OPSMITH_GRID_LOOP(Index, at, masks * d) {
        const Index first = at / d * parts;
        double sum = 0, count = 0;
        for (Index part = 0; part < parts; part++) sum += sums[(first + part) * d + at % d], count += counts[first + part];
        mean[at] = (T)(count == 0 ? 0 : sum / count);
    }
}

// What each place of a mask gets of the mean's gradient: a block for each mask.
template <typename T, typename S, typename Index>
__global__ void __launch_bounds__(THREADS) shares(
    PackedAccessor<const S, 4, Index> masks, PackedAccessor<const T, 3, Index> mean_grad, Index y, T *shares) {
    const Index b = (Index)blockIdx.x / masks.size(1), m = (Index)blockIdx.x % masks.size(1), d = mean_grad.size(2);
    double count = 0;
    for (Index x = threadIdx.x; x < masks.size(2); x += THREADS) {
        Run<S, Index>(masks, b, m, x, y, count);
        if (masks.size(2) - x <= THREADS) break;
    }
    count = opsmith::block_sum(count);
    for (Index c = threadIdx.x; c < d; c += THREADS) {
        shares[(Index)blockIdx.x * d + c] = (T)(mean_grad[b][m][c] / count);
        if (d - c <= THREADS) break;
    }
}

// The gradient of a part of a column, a block: the sum over the masks that a place is in, which are looked up once for many
// places.
template <typename T, typename S, typename Index>
__global__ void __launch_bounds__(THREADS) spread(
    PackedAccessor<const S, 4, Index> masks, const T *shares, Index parts, PackedAccessor<T, 4, Index> embedding_grad) {
    __shared__ Index starts[THREADS], ends[THREADS];
    const Index columns = embedding_grad.size(1), y = embedding_grad.size(2), d = embedding_grad.size(3);
    const Index part = (Index)blockIdx.x % parts, column = (Index)blockIdx.x / parts;
    const Index b = column / columns, x = column % columns, size = opsmith::ceil_div(y, parts);
    const Index first = part * size, count = y - first < size ? y - first : size;
    T *own = embedding_grad[b][x].data() + first * d;
    for (Index m0 = 0; m0 == 0 || m0 < masks.size(1); m0 += THREADS) {
        const int some = masks.size(1) - m0 < THREADS ? (int)(masks.size(1) - m0) : THREADS;
        if (threadIdx.x < some) {
            double ignored = 0;
            const Run<S, Index> run(masks, b, m0 + threadIdx.x, x, y, ignored);
            starts[threadIdx.x] = run.start, ends[threadIdx.x] = run.end;
        }
        __syncthreads();
        for (Index at = threadIdx.x; at < count * d; at += THREADS) {
            const Index place = first + at / d, c = at % d;
            T sum = m0 == 0 ? T(0) : own[at];
            for (int m = 0; m < some; m++)
                if (place >= starts[m] && place < ends[m]) sum += shares[(b * masks.size(1) + m0 + m) * d + c];
            own[at] = sum;
            if (count * d - at <= THREADS) break;
        }
        __syncthreads();
        if (masks.size(1) - m0 <= THREADS) break;
    }
}
