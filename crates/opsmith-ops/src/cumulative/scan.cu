// Scans of lanes along a dim: sums, products and extremes of all numbers up to each, and their gradients.
#include "opsmith.cuh"

using opsmith::Space;
using opsmith::wide;

enum { THREADS = 256, EACH = 8 };

// How lanes are gone through: how many numbers each has, how many lanes lie side by side in what is dense, how many numbers a row of the
// grid takes, and how far those of each tensor are apart.
template <typename Index> struct Along {
    Index length, inner, part, steps[3];
    int exclusive, reverse;
};

// A lane of up to three tensors, and of what an earlier scan has left.
template <typename T, typename Kept, typename Index> struct LaneOf {
    const T *x_, *y_, *v_;
    const Kept *kept_;
    Index base;
    const Along<Index> &along;

    OPSMITH_INLINE Index at(Index n) const { return along.reverse ? along.length - 1 - n : n; }
    OPSMITH_INLINE Index place(Index at) const { return base + at * along.inner; }
    OPSMITH_INLINE wide<T> x(Index at) const { return x_[at * along.steps[0]]; }
    OPSMITH_INLINE wide<T> y(Index at) const { return y_[at * along.steps[1]]; }
    OPSMITH_INLINE wide<T> v(Index at) const { return v_[at * along.steps[2]]; }
    OPSMITH_INLINE Kept kept(Index at) const { return kept_[place(at)]; }
};

// A scan is a structure of the state that it begins with, that of the number at a position in the order, how states that follow each
// other are merged, and what it shows at a position, of the states before and with it. What it begins with is only shown.
template <typename T, typename Index, typename Of, typename Left, typename Shown> struct Scan {
    typedef T Element;
    typedef Of State;
    typedef Left Kept;
    typedef Shown Result;
    typedef LaneOf<T, Left, Index> Lane;
};

// The type that numbers are added up and multiplied in: integers wrap around.
template <typename T> struct Running { typedef unsigned long long type; };
template <> struct Running<float> { typedef double type; };
template <> struct Running<double> { typedef double type; };
template <> struct Running<opsmith::half> { typedef float type; };
template <> struct Running<opsmith::bfloat16> { typedef float type; };

template <typename T, typename Index> struct Sum : Scan<T, Index, typename Running<T>::type, T, T> {
    typedef typename Running<T>::type State;
    typedef LaneOf<T, T, Index> Lane;

    static OPSMITH_INLINE State first() { return 0; }
    static OPSMITH_INLINE State item(const Lane &lane, Index n) { return (State)lane.x(lane.at(n)); }
    static OPSMITH_INLINE State merge(State a, State b) { return a + b; }
    // The sum of negative zeros, which begins with 0, is 0.
    static OPSMITH_INLINE T show(const Lane &lane, Index, State before, State after) {
        return T((lane.along.exclusive ? before : after) + State(0));
    }
};

// Of all floats in double precision: the product of a part of a lane soon leaves a float's range.
template <typename T> struct Multiplied : Running<T> {};
template <> struct Multiplied<opsmith::half> : Running<double> {};
template <> struct Multiplied<opsmith::bfloat16> : Running<double> {};

template <typename T, typename Index> struct Product : Scan<T, Index, typename Multiplied<T>::type, T, T> {
    typedef typename Multiplied<T>::type State;
    typedef LaneOf<T, T, Index> Lane;

    static OPSMITH_INLINE State first() { return 1; }
    static OPSMITH_INLINE State item(const Lane &lane, Index n) { return (State)lane.x(lane.at(n)); }
    static OPSMITH_INLINE State merge(State a, State b) { return a * b; }
    static OPSMITH_INLINE T show(const Lane &lane, Index, State before, State after) {
        const State product = lane.along.exclusive ? before : after;
        if constexpr ((State)0.5f != 0) return opsmith::rounded<T>(product);
        else return T(product);
    }
};

// A number, and where it is; nowhere for −1.
template <typename T, typename Index> struct Found {
    T value;
    Index at;
};

template <typename T, typename Index, bool Largest, typename Shown = T> struct Extreme : Scan<T, Index, Found<T, Index>, T, Shown> {
    typedef Found<T, Index> State;
    typedef LaneOf<T, T, Index> Lane;

    static OPSMITH_INLINE State first() { return {T(0), Index(-1)}; }
    static OPSMITH_INLINE State item(const Lane &lane, Index n) {
        const Index at = lane.at(n);
        return {lane.x_[at * lane.along.steps[0]], at};
    }
    // The first NaN comes before all.
    static OPSMITH_INLINE State merge(State a, State b) {
        const wide<T> old = a.value, given = b.value;
        return old == old && (given != given || (Largest ? given > old : given < old)) ? b : a;
    }
    static OPSMITH_INLINE State found(const Lane &lane, State before, State after) { return lane.along.exclusive ? before : after; }
    static OPSMITH_INLINE T show(const Lane &lane, Index, State before, State after) {
        const State own = found(lane, before, after);
        return own.at < 0 ? of_none() : own.value;
    }
    static OPSMITH_INLINE T of_none() {
        if constexpr ((wide<T>)0.5f != 0) {
            const float infinity = __uint_as_float(0x7f800000u);
            return T(Largest ? -infinity : infinity);
        } else {
            const T least = T(-1) < T(0) ? (T)(1ull << (8 * sizeof(T) - 1)) : (T)0;
            return Largest ? least : (T)~least;
        }
    }
};

// Where the extreme is.
template <typename T, typename Index, bool Largest> struct Position : Extreme<T, Index, Largest, Index> {
    typedef Found<T, Index> State;
    typedef LaneOf<T, T, Index> Lane;

    static OPSMITH_INLINE Index show(const Lane &lane, Index, State before, State after) {
        return (lane.along.exclusive ? before : after).at;
    }
};

// What `y` has there.
template <typename T, typename Index, bool Largest> struct Taken : Extreme<T, Index, Largest> {
    typedef Found<T, Index> State;
    typedef LaneOf<T, T, Index> Lane;

    static OPSMITH_INLINE T show(const Lane &lane, Index, State before, State after) {
        const Index at = (lane.along.exclusive ? before : after).at;
        return at < 0 ? T(0) : lane.y_[at * lane.along.steps[1]];
    }
};

// The sum since the last position that begins one.
struct Run {
    double sum;
    bool begins;
};

// Sums of what `y` has where an extreme is the same one, at that: those places follow each other. It goes the other way than the extremes.
template <typename T, typename Index> struct RunSum : Scan<T, Index, Run, Index, T> {
    typedef LaneOf<T, Index, Index> Lane;

    static OPSMITH_INLINE Run first() { return {0, true}; }
    static OPSMITH_INLINE Run item(const Lane &lane, Index n) {
        const Index at = lane.at(n);
        return {(double)lane.y(at), n == 0 || lane.kept(at) != lane.kept(lane.at(n - 1))};
    }
    static OPSMITH_INLINE Run merge(Run a, Run b) { return b.begins ? b : Run{a.sum + b.sum, a.begins}; }
    static OPSMITH_INLINE T show(const Lane &lane, Index n, Run before, Run after) {
        const Index at = lane.at(n);
        const bool is_own = lane.along.exclusive ? n > 0 && lane.kept(lane.at(n - 1)) == at : lane.kept(at) == at;
        return opsmith::rounded<T>(is_own ? (lane.along.exclusive ? before : after).sum + 0.0 : 0.0);
    }
};

// A number and how it changes. Of the gradients of products those of the second order have such, those of the first one plain numbers.
struct Dual {
    double value, change;
};
OPSMITH_INLINE Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.value * b.change + a.change * b.value}; }
OPSMITH_INLINE Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.change + b.change}; }

template <typename N> OPSMITH_INLINE N number(double value, double change) {
    if constexpr (sizeof(N) == sizeof(double)) return value;
    else return N{value, change};
}
OPSMITH_INLINE double last_of(double x) { return x; }
OPSMITH_INLINE double last_of(Dual x) { return x.change; }

template <typename N, typename Lane, typename Index> OPSMITH_INLINE N factor(const Lane &lane, Index at) {
    return number<N>((double)lane.x(at), (double)lane.v(at));
}

template <typename N> struct Affine {
    N times, plus;
};

// What the sum of all that is asked for depends on each product by, from behind: c ← c x + g, and its change in the direction v.
template <typename T, typename Index, typename N> struct Changes : Scan<T, Index, Affine<N>, T, N> {
    typedef Affine<N> State;
    typedef LaneOf<T, T, Index> Lane;

    static OPSMITH_INLINE State first() { return {number<N>(1, 0), number<N>(0, 0)}; }
    static OPSMITH_INLINE State item(const Lane &lane, Index n) {
        const Index at = lane.at(n), before = n == 0 ? at : lane.at(n - 1);
        const double own = !lane.along.exclusive ? (double)lane.y(at) : n == 0 ? 0.0 : (double)lane.y(before);
        return {n == 0 ? number<N>(1, 0) : factor<N>(lane, before), number<N>(own, 0)};
    }
    static OPSMITH_INLINE State merge(State a, State b) { return {b.times * a.times, b.times * a.plus + b.plus}; }
    static OPSMITH_INLINE N show(const Lane &, Index, State, State after) { return after.plus; }
};

// The gradient in `x`, with what `Changes` left.
template <typename T, typename Index, typename N> struct OfFactors : Scan<T, Index, N, N, T> {
    typedef LaneOf<T, N, Index> Lane;

    static OPSMITH_INLINE N first() { return number<N>(1, 0); }
    static OPSMITH_INLINE N item(const Lane &lane, Index n) { return factor<N>(lane, lane.at(n)); }
    static OPSMITH_INLINE N merge(N a, N b) { return a * b; }
    static OPSMITH_INLINE T show(const Lane &lane, Index n, N before, N) {
        return opsmith::rounded<T>(last_of(before * lane.kept(lane.at(n))));
    }
};

// How products change in the direction `v`.
template <typename T, typename Index> struct OfProducts : OfFactors<T, Index, Dual> {
    typedef LaneOf<T, Dual, Index> Lane;

    static OPSMITH_INLINE T show(const Lane &lane, Index, Dual before, Dual after) {
        return opsmith::rounded<T>((lane.along.exclusive ? before : after).change);
    }
};

// Threads along x share a lane, and those along y have lanes of their own; where neighbouring lanes lie `across` memory, the other way
// round. Where rows of the grid have parts of each lane, a first launch leaves the `totals` of these, and the second begins with them.
// Nothing is merged with what a scan begins with: 0 times infinity would be no number.
template <typename S, typename Index>
__global__ void scanned(const typename S::Element *x, const typename S::Element *y, const typename S::Element *v,
                        const typename S::Kept *kept, typename S::Result *z, typename S::State *left, Along<Index> along,
                        Space<Index, 3> lanes, bool across, bool totals) {
    typedef typename S::State State;
    static_assert(sizeof(State) <= 32, "launches have so much memory for a total");
    __shared__ State all[2][THREADS];
    const int own = threadIdx.y * blockDim.x + threadIdx.x, next = across ? blockDim.x : 1;
    const int row = across ? threadIdx.x : threadIdx.y, rows = across ? blockDim.x : blockDim.y;
    const int thread = across ? threadIdx.y : threadIdx.x, threads = across ? blockDim.y : blockDim.x;
    const Index from = (Index)blockIdx.y * along.part, end = along.length - from < along.part ? along.length : from + along.part;
    for (long long begin = (long long)blockIdx.x * rows; begin < lanes.count; begin += (long long)gridDim.x * rows) {
        const bool is_there = lanes.count - begin > row;
        const Index number = is_there ? (Index)begin + row : 0;
        const auto places = lanes[number];
        const Index base = number / along.inner * along.length * along.inner + number % along.inner;
        const typename S::Lane lane = {x + places.at[0], y + places.at[1], v + places.at[2], kept, base, along};
        State *const of_parts = left + (size_t)number * gridDim.y;
        bool begun = !totals && blockIdx.y > 0;
        State carry = {};
        if (begun) carry = of_parts[0];
        for (int part = 1; begun && part < (int)blockIdx.y; part++) carry = S::merge(carry, of_parts[part]);
        for (Index tile = from; tile < end; tile += threads * EACH) {
            const Index first = tile + thread * EACH;
            const int count = !is_there || first >= end ? 0 : end - first < EACH ? (int)(end - first) : EACH;
            State items[EACH], sum = {};
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                if (e >= count) break;
                items[e] = S::item(lane, first + e);
                sum = e == 0 ? items[e] : S::merge(sum, items[e]);
            }
            all[0][own] = sum;
            int half = 0;
            for (int step = 1; step < threads; step *= 2, half ^= 1) {
                __syncthreads();
                const State here = all[half][own];
                all[half ^ 1][own] = thread < step ? here : S::merge(all[half][own - step * next], here);
            }
            __syncthreads();
            State before = carry;
            bool has = begun;
            if (thread > 0) {
                before = begun ? S::merge(carry, all[half][own - next]) : all[half][own - next];
                has = true;
            }
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                if (e >= count) break;
                const State after = has ? S::merge(before, items[e]) : items[e];
                if (!totals) z[lane.place(lane.at(first + e))] = S::show(lane, first + e, has ? before : S::first(), after);
                else if (first + e == end - 1) of_parts[blockIdx.y] = after;
                before = after, has = true;
            }
            // Of the last tile, which may not be whole, nobody needs it.
            const State whole = all[half][own + (threads - 1 - thread) * next];
            carry = begun ? S::merge(carry, whole) : whole, begun = true;
            __syncthreads();
        }
    }
}
