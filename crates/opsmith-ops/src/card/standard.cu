// Kernels of the standard operators that are not bodies: functions of elements, folds, positions.
#include "opsmith_fold.cuh"

using opsmith::Pack;
using opsmith::Space;

// A number as an integer of the same order, the largest for NaN; both zeros are one.
typedef unsigned long long Key;

OPSMITH_INLINE Key key_of(double x) {
    if (x != x) return ~0ull;
    const Key bits = (Key)__double_as_longlong(x + 0.0);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
OPSMITH_INLINE Key key_of(float x) {
    if (x != x) return ~0ull;
    const unsigned bits = __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
OPSMITH_INLINE Key key_of(opsmith::half x) { return key_of((float)x); }
OPSMITH_INLINE Key key_of(opsmith::bfloat16 x) { return key_of((float)x); }
template <typename T> OPSMITH_INLINE Key key_of(T x) { return (Key)(long long)x ^ (T(-1) < T(0) ? 1ull << 63 : 0); }

template <typename T> struct Kind { static const bool is_float = false, is_half = false, is_bool = false; };
template <> struct Kind<float> { static const bool is_float = true, is_half = false, is_bool = false; };
template <> struct Kind<double> : Kind<float> {};
template <> struct Kind<opsmith::half> { static const bool is_float = true, is_half = true, is_bool = false; };
template <> struct Kind<opsmith::bfloat16> : Kind<opsmith::half> {};
template <> struct Kind<bool> { static const bool is_float = false, is_half = false, is_bool = true; };

template <typename T> OPSMITH_INLINE constexpr T least_integer() {
    return T(-1) < T(0) ? (T)(1ull << (8 * sizeof(T) - 1)) : (T)0;
}
template <typename T> OPSMITH_INLINE constexpr T largest_integer() { return (T)~least_integer<T>(); }

using opsmith::odd_float;
OPSMITH_INLINE float odd_float(unsigned long long x) {
    const unsigned long long cut = (1 << 11) - 1;
    return odd_float((double)(x >> 53 ? (x & ~cut) | (x & cut ? 1 << 11 : 0) : x));
}
OPSMITH_INLINE float odd_float(long long x) {
    return x < 0 ? -odd_float(0ull - (unsigned long long)x) : odd_float((unsigned long long)x);
}
template <typename T> OPSMITH_INLINE float odd_float(T x) { return odd_float((double)x); }

// The number in another dtype. Floats become integers towards zero, the nearest one there is; NaN becomes 0.
template <typename Z, typename X> OPSMITH_INLINE Z converted(X given) {
    const opsmith::wide<X> x = given;
    if constexpr (Kind<Z>::is_bool) {
        return x != 0;
    } else if constexpr (Kind<Z>::is_half) {
        return Z(odd_float(x));
    } else if constexpr (Kind<Z>::is_float || !Kind<X>::is_float) {
        return (Z)x;
    } else {
        const opsmith::wide<X> least = (opsmith::wide<X>)least_integer<Z>();
        const opsmith::wide<X> beyond = 2 * (opsmith::wide<X>)(1ull << (8 * sizeof(Z) - 2)) * (least < 0 ? 1 : 2);
        return x != x ? (Z)0 : x >= beyond ? largest_integer<Z>() : x <= least ? least_integer<Z>() : (Z)x;
    }
}

template <typename Op, typename W, typename X, typename Y, typename Z, typename Index> struct Each {
    const W *w;
    const X *x;
    const Y *y;
    Z *z;
    const Space<Index, 3> &space;

    template <int Lanes> struct Held {
        Pack<W, Lanes> w;
        Pack<X, Lanes> x;
        Pack<Y, Lanes> y;
    };

    template <int Lanes> OPSMITH_INLINE Held<Lanes> read(Index i) const {
        const auto places = space[i];
        return {opsmith::read<Lanes>(w, places.at[0], space.strides[0][0]), opsmith::read<Lanes>(x, places.at[1], space.strides[1][0]),
                opsmith::read<Lanes>(y, places.at[2], space.strides[2][0])};
    }

    template <int Lanes> OPSMITH_INLINE void write(Index i, const Held<Lanes> &held) const {
        Pack<Z, Lanes> pack;
#pragma unroll
        for (int l = 0; l < Lanes; l++) pack.lane[l] = Op::template of<Z>(held.w.lane[l], held.x.lane[l], held.y.lane[l]);
        opsmith::write(z, i, pack);
    }
};

template <typename Op, typename W, typename X, typename Y, typename Z, typename Index>
__global__ void each(const W *w, const X *x, const Y *y, Z *z, Space<Index, 3> space) {
    opsmith::in_packs<opsmith::lanes_of<W, X, Y, Z>()>(space, Each<Op, W, X, Y, Z, Index>{w, x, y, z, space});
}

#define OPSMITH_EACH(name, body)                                            \
    struct name {                                                           \
        template <typename Z, typename W, typename X, typename Y>           \
        static OPSMITH_INLINE Z of(W a, X b, Y c) { return body; }          \
    }

OPSMITH_EACH(is_equal, a == b);
OPSMITH_EACH(is_not_equal, a != b);
OPSMITH_EACH(is_less, a < b);
OPSMITH_EACH(is_at_most, a <= b);
OPSMITH_EACH(is_greater, a > b);
OPSMITH_EACH(is_at_least, a >= b);
OPSMITH_EACH(both, a && b);
OPSMITH_EACH(one_of, a || b);
OPSMITH_EACH(not_so, !a);
OPSMITH_EACH(chosen, a ? b : c);
OPSMITH_EACH(cast, converted<Z>(a));
// Of integers, which wrap around.
OPSMITH_EACH(plus, (Z)((unsigned long long)a + (unsigned long long)b));
OPSMITH_EACH(minus, (Z)((unsigned long long)a - (unsigned long long)b));
OPSMITH_EACH(times, (Z)((unsigned long long)a * (unsigned long long)b));
OPSMITH_EACH(negative, (Z)(0ull - (unsigned long long)a));
OPSMITH_EACH(squared, (Z)((unsigned long long)a * (unsigned long long)a));
OPSMITH_EACH(magnitude, a < W(0) ? (Z)(0ull - (unsigned long long)a) : a);
OPSMITH_EACH(direction, (Z)((a > W(0)) - (a < W(0))));
OPSMITH_EACH(larger, a > b ? a : b);
OPSMITH_EACH(smaller, a < b ? a : b);

// Folds of `opsmith_fold.cuh`.

// A fold of integers.
#define OPSMITH_FOLD(name, begin, body)                                                                       \
    struct name {                                                                                             \
        template <typename X> using State = X;                                                                \
        template <typename X> static OPSMITH_INLINE X first() { return begin; }                               \
        template <typename X, typename C, typename Index>                                                     \
        static OPSMITH_INLINE X take(X a, X b, C, Index) { return merge(a, b); }                              \
        template <typename X> static OPSMITH_INLINE X merge(X a, X b) { return body; }                        \
        template <typename Z> static OPSMITH_INLINE Z show(Z x) { return x; }                                 \
    }

OPSMITH_FOLD(wrapped_sum, X(0), (X)((unsigned long long)a + (unsigned long long)b));
OPSMITH_FOLD(largest, least_integer<X>(), a > b ? a : b);
OPSMITH_FOLD(smallest, largest_integer<X>(), a < b ? a : b);

// A key and where it is. No two have the same place.
struct Entry {
    Key key, at;

    OPSMITH_INLINE bool is_before(Entry other) const {
        return key < other.key || (key == other.key && at < other.at);
    }
};

// The position of the number with the largest or the smallest key, NaN before all, of equal ones the first.
template <bool Largest> struct position {
    template <typename X> using State = Entry;
    template <typename X> static OPSMITH_INLINE Entry first() { return {~0ull, ~0ull}; }
    template <typename X, typename C, typename Index> static OPSMITH_INLINE Entry take(Entry found, X x, C, Index at) {
        const Key key = key_of(x);
        return merge(found, {Largest || x != x ? ~key : key, (Key)at});
    }
    static OPSMITH_INLINE Entry merge(Entry a, Entry b) { return b.is_before(a) ? b : a; }
    template <typename Z> static OPSMITH_INLINE Z show(Entry found) { return (Z)found.at; }
};
