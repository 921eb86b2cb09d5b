// Lanes along a dim, sorted: short ones, and tiles of long ones, in shared memory, after which tiles are merged.
#include "opsmith.cuh"

using opsmith::Space;

enum { THREADS = 256, TILE = 2048, EACH = 8 };

// A number as an integer of the same order, the largest for NaN; both zeros are one. Of what has up to 32 bits it has 32.
typedef unsigned long long Key;

OPSMITH_INLINE Key key_of(double x) {
    if (x != x) return ~0ull;
    const Key bits = (Key)__double_as_longlong(x + 0.0);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
OPSMITH_INLINE Key key_of(float x) {
    if (x != x) return ~0u;
    const unsigned bits = __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
OPSMITH_INLINE Key key_of(opsmith::half x) { return key_of((float)x); }
OPSMITH_INLINE Key key_of(opsmith::bfloat16 x) { return key_of((float)x); }
template <typename T> OPSMITH_INLINE Key key_of(T x) {
    if constexpr (sizeof(T) == sizeof(Key)) return (Key)x ^ (T(-1) < T(0) ? 1ull << 63 : 0);
    else return (unsigned)x ^ (T(-1) < T(0) ? 1u << 31 : 0u);
}

// A position along a dim. One that is not there is behind all others.
struct Place {
    long long at;
};
OPSMITH_INLINE Key key_of(Place x) { return x.at < 0 ? ~0ull : (Key)x.at; }

// A key and the position of its number, in the order of keys, which may be turned, then of positions. No two are alike, and all are
// before the last.
struct Entry {
    Key key, position;

    static OPSMITH_INLINE Entry of(Key key, Key at, bool turned) { return {turned ? ~key : key, at}; }
    static OPSMITH_INLINE Entry last() { return {~0ull, ~0ull}; }
    OPSMITH_INLINE long long at() const { return (long long)position; }
    OPSMITH_INLINE bool is_before(const Entry &other) const {
        return key < other.key || (key == other.key && position < other.position);
    }
};

// Both in one integer, of keys of 32 bits: a larger one is as good as the largest. Positions are below the largest such number.
struct Packed {
    Key both;

    static OPSMITH_INLINE Packed of(Key key, Key at, bool turned) {
        const unsigned own = key < 0xffffffffull ? (unsigned)key : 0xffffffffu;
        return {(Key)(turned ? ~own : own) << 32 | at};
    }
    static OPSMITH_INLINE Packed last() { return {~0ull}; }
    OPSMITH_INLINE long long at() const { return (long long)(both & 0xffffffffull); }
    OPSMITH_INLINE bool is_before(const Packed &other) const { return both < other.both; }
};

// How many numbers a lane has, how many of them are shown, how many lanes lie side by side in what is dense, how far the numbers of a lane
// are apart, in how many tiles it is cut, and how long those are, a power of two. Neighbouring threads read neighbouring lanes if these
// lie `across` memory.
template <typename Index> struct Sizes {
    Index length, shown, inner, step, tiles;
    int size, across, turned;
};

template <typename T, typename E, typename Index>
OPSMITH_INLINE void put(const T *x, T *values, long long *indices, const E &entry, Index lane, Index at, const Sizes<Index> &sizes, const Space<Index, 1> &lanes) {
    const Index place = (lane / sizes.inner * sizes.shown + at) * sizes.inner + lane % sizes.inner;
    indices[place] = entry.at();
    if (values) values[place] = x[lanes[lane].at[0] + (Index)entry.at() * sizes.step];
}

// Sorts tiles, as many at a time as shared memory has room for. Where lanes have several, the entries are left in `runs`.
template <typename T, typename E, typename Index>
__global__ void sorted(const T *x, T *values, long long *indices, E *runs, Sizes<Index> sizes, Space<Index, 1> lanes) {
    __shared__ E all[TILE];
    const int size = sizes.size, rows = TILE / size;
    const long long total = (long long)lanes.count * sizes.tiles;
    for (long long begin = (long long)blockIdx.x * rows; begin < total; begin += (long long)gridDim.x * rows) {
        // Each place of shared memory, with its lane and the position there: −1 where there is no number.
        auto for_each = [&](auto take) {
            for (int n = threadIdx.x; n < TILE; n += THREADS) {
                const int row = sizes.across ? n % rows : n / size, own = sizes.across ? n / rows : n % size;
                const long long tile = begin + row, at = tile % sizes.tiles * size + own;
                const bool is_there = tile < total && at < sizes.length;
                take(all[row * size + own], is_there ? (Index)(tile / sizes.tiles) : 0, is_there ? (Index)at : -1);
            }
        };
        for_each([&](E &entry, Index lane, Index at) {
            if (at < 0) entry = E::last();
            else entry = E::of(key_of(x[lanes[lane].at[0] + at * sizes.step]), (Key)at, sizes.turned != 0);
        });
        // Bitonic: at last every tile is in order, and before that every other part of it in the opposite one.
        for (int width = 2; width <= size; width *= 2) {
            for (int step = width / 2; step > 0; step /= 2) {
                __syncthreads();
                for (int n = threadIdx.x; n < TILE / 2; n += THREADS) {
                    const int low = 2 * n - n % step, high = low + step;
                    const bool in_order = (low & (size - 1) & width) == 0;
                    const E a = all[low], b = all[high];
                    if (b.is_before(a) == in_order) all[low] = b, all[high] = a;
                }
            }
        }
        __syncthreads();
        for_each([&](E &entry, Index lane, Index at) {
            if (at < 0) return;
            if (runs) runs[lane * sizes.length + at] = entry;
            else if (at < sizes.shown) put(x, values, indices, entry, lane, at, sizes, lanes);
        });
        __syncthreads();
    }
}

// Merges each two runs of entries that follow each other in a lane. A thread looks for where its part begins in both.
template <typename E, typename Index> __global__ void merged(const E *from, E *to, Index count, Index length, Index width) {
    const Index parts = opsmith::ceil_div(length, (Index)EACH);
    OPSMITH_GRID_LOOP(Index, i, count * parts) {
        const Index base = i / parts * length, begin = i % parts * EACH, first = begin / width / 2 * 2 * width;
        const Index middle = length - first < width ? length : first + width;
        const Index end = length - middle < width ? length : middle + width;
        const E *const a = from + base + first, *const b = from + base + middle;
        const Index of_a = middle - first, of_b = end - middle, skipped = begin - first;
        Index low = skipped > of_b ? skipped - of_b : 0, high = skipped < of_a ? skipped : of_a;
        while (low < high) {
            const Index half = low + (high - low) / 2;
            if (a[half].is_before(b[skipped - 1 - half])) low = half + 1;
            else high = half;
        }
        Index at_a = low, at_b = skipped - low;
        for (int n = 0; n < EACH && end - begin > n; n++) {
            const bool is_a = at_b >= of_b || (at_a < of_a && a[at_a].is_before(b[at_b]));
            to[base + begin + n] = is_a ? a[at_a++] : b[at_b++];
        }
    }
}

// Shows the first entries of each lane.
template <typename T, typename E, typename Index>
__global__ void shown(const T *x, T *values, long long *indices, const E *runs, Sizes<Index> sizes, Space<Index, 1> lanes) {
    OPSMITH_GRID_LOOP(Index, i, lanes.count * sizes.shown) {
        const Index row = i / sizes.inner, lane = row / sizes.shown * sizes.inner + i % sizes.inner, at = row % sizes.shown;
        put(x, values, indices, runs[lane * sizes.length + at], lane, at, sizes, lanes);
    }
}

// Sums of the terms at each place along a dim, in their order. `places` are sorted, and `order` has the term of each.
template <typename T, typename Index>
__global__ void summed(const T *terms, const Place *places, const long long *order, T *z, Index dim, Index length, Index inner, Index step, Space<Index, 1> lanes) {
    OPSMITH_GRID_LOOP(Index, i, lanes.count * dim) {
        const Index row = i / inner, lane = row / dim * inner + i % inner, at = row % dim;
        const Index base = row / dim * length * inner + i % inner;
        Index low = 0, high = length;
        while (low < high) {
            const Index half = low + (high - low) / 2;
            if (key_of(places[base + half * inner]) < (Key)at) low = half + 1;
            else high = half;
        }
        double sum = 0;
        for (Index n = low; n < length && places[base + n * inner].at == at; n++) {
            sum += (double)(opsmith::wide<T>)terms[lanes[lane].at[0] + (Index)order[base + n * inner] * step];
        }
        z[i] = opsmith::rounded<T>(sum);
    }
}
