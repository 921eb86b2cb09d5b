// Steps of products of tensors that are no products of matrices. Sums and products of integers wrap around, so types without a sign
// stand for those as large with one.
#include "opsmith.cuh"

using opsmith::Space;

// What numbers are computed in: small integers would be as others with a sign, which must not overflow.
template <typename T> struct Number { typedef opsmith::wide<T> type; };
template <> struct Number<unsigned char> { typedef unsigned type; };
template <> struct Number<unsigned short> { typedef unsigned type; };

// The products of each two elements. The operands are the factors and the product.
template <typename X, typename Y, typename Z, typename Index>
__global__ void multiplied(const X *x, const Y *y, Z *z, Space<Index, 3> space) {
    typedef typename Number<Z>::type W;
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        const auto places = space[i];
        z[places.at[2]] = Z((W)x[places.at[0]] * (W)y[places.at[1]]);
    }
}

// Puts elements in their places, or adds them to what is there; zeros where `x` is null.
template <typename X, typename Z, typename Index>
__global__ void placed(const X *x, Z *z, bool added, Space<Index, 2> space) {
    typedef typename Number<Z>::type W;
    OPSMITH_GRID_LOOP(Index, i, space.count) {
        const auto places = space[i];
        const W number = x ? (W)x[places.at[0]] : W(0);
        z[places.at[1]] = Z(added ? (W)z[places.at[1]] + number : number);
    }
}
