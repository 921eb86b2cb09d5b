// Windows over one to three dims of images: poolings, patches, convolutions. Every sum is in an order that the shapes alone decide.
#include "opsmith_gemm.cuh"

using opsmith::Space;
using opsmith::wide;

// A place along each of three dims.
template <typename Index> struct Place {
    Index at[3];
};

// The place of an index, where the last two dims are so long.
template <typename Index> OPSMITH_INLINE Place<Index> split(Index index, Index b, Index c) {
    typedef opsmith::plain<Index> Size;
    const Size line = (Size)index / (Size)c, first = line / (Size)b;
    return {(Index)first, (Index)(line - first * (Size)b), (Index)((Size)index - line * (Size)c)};
}

// A tensor: how far its channels, those of its other side in front of them, and its last dims are apart.
template <typename T, typename Index> struct Tensor {
    T *data;
    Index outer, channel, dim[3];

    OPSMITH_INLINE Index operator[](const Place<Index> &place) const {
        return place.at[0] * dim[0] + place.at[1] * dim[1] + place.at[2] * dim[2];
    }
};

// Places along a dim.
template <typename Index> struct Run {
    Index first, count, step;

    OPSMITH_INLINE Run backwards() const { return {first + (count - 1) * step, count, -step}; }
};

// Windows along a dim, which begin `before` it. Of those that have an element in common, the next is `turn` on.
template <typename Index> struct Along {
    Index dim, size, stride, dilation, before, count, turn;

    // The elements of a window.
    OPSMITH_INLINE Run<Index> elements(Index window) const {
        const Index begin = window * stride - before, skipped = begin < 0 ? (-begin - 1) / dilation + 1 : 0;
        const Index there = begin < dim ? (dim - begin - 1) / dilation + 1 : 0, end = there < size ? there : size;
        return {begin + skipped * dilation, end > skipped ? end - skipped : 0, dilation};
    }

    // The windows that have an element.
    OPSMITH_INLINE Run<Index> around(Index element) const {
        const Index place = element + before, beyond = place - (size - 1) * dilation;
        const Index most = place / stride, last = most < count ? most : count - 1;
        Index first = beyond > 0 ? (beyond - 1) / stride + 1 : 0, tries = turn;
        for (; tries > 0 && first <= last && (place - first * stride) % dilation != 0; tries--) first++;
        return {first, tries > 0 && first <= last ? (last - first) / turn + 1 : 0, turn};
    }
};

// Places along three dims, the last of which is gone through first.
template <typename Index> struct Box {
    Run<Index> along[3];

    OPSMITH_INLINE double count() const { return (double)along[0].count * along[1].count * along[2].count; }

    // From one place on, by so many.
    template <typename Act> OPSMITH_INLINE void each(Index from, Index by, const Act &act) const {
        if (count() == 0) return;
        Index at[3] = {0, 0, from};
        for (;; at[2] += by) {
#pragma unroll
            for (int d = 2; d > 0; d--) {
                if (at[d] < along[d].count) continue;
                at[d - 1] += at[d] / along[d].count;
                at[d] %= along[d].count;
            }
            if (at[0] >= along[0].count) return;
            Place<Index> place;
#pragma unroll
            for (int d = 0; d < 3; d++) place.at[d] = along[d].first + at[d] * along[d].step;
            act(place);
        }
    }
};

template <typename Index> struct Windows {
    Along<Index> along[3];

    // How many there are, and how many elements each and all dims have.
    OPSMITH_INLINE Index count() const { return along[0].count * along[1].count * along[2].count; }
    OPSMITH_INLINE Index size() const { return along[0].size * along[1].size * along[2].size; }
    OPSMITH_INLINE Index plane() const { return along[0].dim * along[1].dim * along[2].dim; }

    // By their indices: a window, a place in windows, an element.
    OPSMITH_INLINE Place<Index> window(Index index) const { return split(index, along[1].count, along[2].count); }
    OPSMITH_INLINE Place<Index> tap(Index index) const { return split(index, along[1].size, along[2].size); }
    OPSMITH_INLINE Place<Index> element(Index index) const { return split(index, along[1].dim, along[2].dim); }

    // The other way round.
    OPSMITH_INLINE Index index_of_window(const Place<Index> &window) const {
        return (window.at[0] * along[1].count + window.at[1]) * along[2].count + window.at[2];
    }
    OPSMITH_INLINE Index index_of_tap(const Place<Index> &tap) const {
        return (tap.at[0] * along[1].size + tap.at[1]) * along[2].size + tap.at[2];
    }
    OPSMITH_INLINE Index index_of_element(const Place<Index> &element) const {
        return (element.at[0] * along[1].dim + element.at[1]) * along[2].dim + element.at[2];
    }

    // The element of a window at a place in it: whether it is there.
    OPSMITH_INLINE bool has_element(const Place<Index> &window, const Place<Index> &tap, Place<Index> &element) const {
        bool is_there = true;
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const Along<Index> &own = along[d];
            const Index at = window.at[d] * own.stride + tap.at[d] * own.dilation - own.before;
            is_there = is_there && at >= 0 && at < own.dim;
            element.at[d] = at;
        }
        return is_there;
    }

    // The window that has an element at a place in it: whether there is one.
    OPSMITH_INLINE bool has_window(const Place<Index> &element, const Place<Index> &tap, Place<Index> &window) const {
        bool is_there = true;
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const Along<Index> &own = along[d];
            const Index begin = element.at[d] + own.before - tap.at[d] * own.dilation, at = begin / own.stride;
            is_there = is_there && begin >= 0 && at * own.stride == begin && at < own.count;
            window.at[d] = at;
        }
        return is_there;
    }

    OPSMITH_INLINE Box<Index> elements(const Place<Index> &window) const {
        return {{along[0].elements(window.at[0]), along[1].elements(window.at[1]), along[2].elements(window.at[2])}};
    }
    OPSMITH_INLINE Box<Index> around(const Place<Index> &element) const {
        return {{along[0].around(element.at[0]), along[1].around(element.at[1]), along[2].around(element.at[2])}};
    }
    OPSMITH_INLINE Box<Index> around_backwards(const Place<Index> &element) const {
        const Box<Index> box = around(element);
        return {{box.along[0].backwards(), box.along[1].backwards(), box.along[2].backwards()}};
    }

    // What the sum of a window is divided by: the given number, or that of its elements; of none it is 1 where the given one is negative.
    OPSMITH_INLINE double divisor(double given, const Place<Index> &window) const {
        if (given > 0) return given;
        const double own = elements(window).count();
        return own == 0 && given < 0 ? 1 : own;
    }
};

// Poolings. The threads of a block along x share the places of each result; what they find is put together in a fixed order.
enum { THREADS = 256 };

template <typename State, typename Index, typename Find, typename Merge, typename Show>
OPSMITH_INLINE void make(Index count, const Find &find, const Merge &merge, const Show &show) {
    __shared__ State all[THREADS];
    const int lane = threadIdx.x, lanes = blockDim.x, rows = blockDim.y, own = threadIdx.y * lanes + lane;
    for (long long begin = (long long)blockIdx.x * rows; begin < count; begin += (long long)gridDim.x * rows) {
        const long long result = begin + threadIdx.y;
        if (result < count) all[own] = find((Index)result, (Index)lane, (Index)lanes);
        for (int half = lanes / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) all[own] = merge(all[own], all[own + half]);
        }
        if (lane == 0 && result < count) show((Index)result, all[own]);
        __syncthreads();
    }
}

struct Sum {
    OPSMITH_INLINE double operator()(double a, double b) const { return a + b; }
};

// The mean of each window.
template <typename T, typename Index>
__global__ void means(Tensor<const T, Index> x, T *y, double divisor, Space<Index, 1> images, Windows<Index> windows) {
    const Index count = windows.count();
    make<double>(
        images.count * count,
        [&](Index result, Index lane, Index lanes) {
            const T *from = x.data + images[result / count].at[0];
            double sum = 0;
            windows.elements(windows.window(result % count)).each(lane, lanes, [&](const Place<Index> &at) {
                sum += (double)(wide<T>)from[x[at]];
            });
            return sum;
        },
        Sum(),
        [&](Index result, double sum) {
            y[result] = opsmith::rounded<T>(sum / windows.divisor(divisor, windows.window(result % count)));
        });
}

// The gradient of means: each element has shares of the windows that it is in. Backwards, they are in the order of places in windows.
template <typename T, typename Index>
__global__ void means_back(Tensor<const T, Index> gradient, T *x, double divisor, Space<Index, 1> images, Windows<Index> windows) {
    const Index plane = windows.plane();
    make<double>(
        images.count * plane,
        [&](Index result, Index lane, Index lanes) {
            const T *from = gradient.data + images[result / plane].at[0];
            double sum = 0;
            windows.around_backwards(windows.element(result % plane)).each(lane, lanes, [&](const Place<Index> &at) {
                sum += (double)(wide<T>)from[gradient[at]] / windows.divisor(divisor, at);
            });
            return sum;
        },
        Sum(), [&](Index result, double sum) { x[result] = opsmith::rounded<T>(sum); });
}

// The largest number of some and the index of its element; −1 of none. NaN comes before all, and of equal ones the first.
template <typename T, typename Index> struct Largest {
    T number;
    Index at;

    OPSMITH_INLINE bool is_before(const Largest &other) const {
        if (at < 0 || other.at < 0) return at >= 0;
        const wide<T> own = number, old = other.number;
        const bool is_nan = own != own, was_nan = old != old;
        if (is_nan || was_nan) return is_nan && (!was_nan || at < other.at);
        return own > old || (own == old && at < other.at);
    }
};

// Finds those of all windows, and shows them.
template <typename T, typename Index, typename Show>
OPSMITH_INLINE void find_largest(const Tensor<const T, Index> &x, const Space<Index, 2> &images, const Windows<Index> &windows, const Show &show) {
    typedef Largest<T, Index> Found;
    const Index count = windows.count();
    make<Found>(
        images.count * count,
        [&](Index result, Index lane, Index lanes) {
            const T *from = x.data + images[result / count].at[0];
            Found found = {T(), -1};
            windows.elements(windows.window(result % count)).each(lane, lanes, [&](const Place<Index> &at) {
                const Found own = {from[x[at]], windows.index_of_element(at)};
                if (own.is_before(found)) found = own;
            });
            return found;
        },
        [](const Found &a, const Found &b) { return b.is_before(a) ? b : a; }, show);
}

// What `given` has where `x` has the largest number of each window.
template <typename T, typename Index>
__global__ void largest(
    Tensor<const T, Index> x, Tensor<const T, Index> given, T *y, T none, Space<Index, 2> images, Windows<Index> windows) {
    find_largest(x, images, windows, [&](Index result, const Largest<T, Index> &found) {
        if (found.at < 0) y[result] = none;
        else y[result] = given.data[images[result / windows.count()].at[1] + given[windows.element(found.at)]];
    });
}

// Where it is.
template <typename T, typename Index>
__global__ void largest_at(
    Tensor<const T, Index> x, Tensor<const T, Index> gradient, Index *positions, Space<Index, 2> images, Windows<Index> windows) {
    find_largest(x, images, windows, [&](Index result, const Largest<T, Index> &found) { positions[result] = found.at; });
}

// The gradient of the largest: of the windows that each element is in, those whose position is its own.
template <typename T, typename Index>
__global__ void largest_back(
    Tensor<const T, Index> x, Tensor<const T, Index> gradient, const Index *positions, T *to, Space<Index, 2> images, Windows<Index> windows) {
    const Index plane = windows.plane(), count = windows.count();
    make<double>(
        images.count * plane,
        [&](Index result, Index lane, Index lanes) {
            const Index image = result / plane, own = result % plane;
            const T *from = gradient.data + images[image].at[1];
            const Index *found = positions + image * count;
            double sum = 0;
            windows.around(windows.element(own)).each(lane, lanes, [&](const Place<Index> &at) {
                if (found[windows.index_of_window(at)] == own) sum += (double)(wide<T>)from[gradient[at]];
            });
            return sum;
        },
        Sum(), [&](Index result, double sum) { to[result] = opsmith::rounded<T>(sum); });
}

// Windows as rows, the channels of a pixel together. Elements are bytes here, of a type as large as theirs.
template <typename T, typename Index>
__global__ void patches(Tensor<const T, Index> x, T *y, Index channels, Space<Index, 1> images, Windows<Index> windows) {
    const Index size = windows.size(), count = windows.count();
    OPSMITH_GRID_LOOP(Index, i, images.count * count * size * channels) {
        const Index pixel = i / channels, patch = pixel / size, image = patch / count;
        Place<Index> at;
        const bool is_there = windows.has_element(windows.window(patch - image * count), windows.tap(pixel - patch * size), at);
        y[i] = is_there ? x.data[images[image].at[0] + (i - pixel * channels) * x.channel + x[at]] : T(0);
    }
}

// Their gradient: each element has those of the windows that it is in, in their order.
template <typename T, typename Index>
__global__ void patches_back(Tensor<const T, Index> gradient, T *x, Index channels, Space<Index, 1> images, Windows<Index> windows) {
    const Index plane = windows.plane();
    OPSMITH_GRID_LOOP(Index, i, images.count * plane * channels) {
        const Index pixel = i / channels, image = pixel / plane, channel = i - pixel * channels;
        const T *from = gradient.data + images[image].at[0];
        const Place<Index> element = windows.element(pixel - image * plane);
        wide<T> sum = 0;
        windows.around(element).each(0, 1, [&](const Place<Index> &at) {
            Place<Index> tap;
#pragma unroll
            for (int d = 0; d < 3; d++) {
                const Along<Index> &own = windows.along[d];
                tap.at[d] = (element.at[d] + own.before - at.at[d] * own.stride) / own.dilation;
            }
            sum += (wide<T>)from[gradient[at] + (windows.index_of_tap(tap) * channels + channel) * gradient.channel];
        });
        x[i] = T(sum);
    }
}

// Convolutions: a product of matrices for each group of channels, whose factors are read from where they lie.

// The groups, the channels of each of `x` and of `y`, and how many terms each sum has.
template <typename Index> struct Sizes {
    Index groups, inside, outside, depth;
};

// The tile of a product that a block makes: where it begins, and how many rows and columns there are from there on.
template <typename T, int A, int B, typename Index> struct Tile {
    typedef opsmith::BlockProduct<wide<T>, A, B> Product;
    static_assert(256 % Product::COLUMNS == 0, "a thread reads the same column each time");
    Index row, column, rows, columns;

    OPSMITH_INLINE Tile(Index all_rows, Index all_columns) {
        const Index across = opsmith::ceil_div(all_columns, (Index)Product::COLUMNS);
        row = (Index)blockIdx.x / across * Product::ROWS, column = (Index)blockIdx.x % across * Product::COLUMNS;
        rows = all_rows - row, columns = all_columns - column;
    }

    // The column that this thread reads where neighbours read neighbouring columns.
    static OPSMITH_INLINE int own() { return (threadIdx.y * Product::SIDE + threadIdx.x) % Product::COLUMNS; }

    // Calls `write` with the row, the column and the sum of each number.
    template <typename Write> OPSMITH_INLINE void write(const Product &product, const Write &write) const {
#pragma unroll
        for (int i = 0; i < A; i++) {
            const int r = Product::row(i);
            if (r >= rows) break;
#pragma unroll
            for (int j = 0; j < B; j++) {
                const int c = Product::column(j);
                if (c >= columns) break;
                write(row + r, column + c, product.sums[i][j]);
            }
        }
    }
};

// The convolutions of one or two pairs, added up. Rows are the channels of a group of `y`, columns the windows of all images, terms the
// places in a window in each channel of `x`.
template <typename T, int A, int B, typename Index>
__global__ void __launch_bounds__(256) convolved(
    Tensor<const T, Index> x0, Tensor<const T, Index> filter0, Tensor<const T, Index> x1, Tensor<const T, Index> filter1, T *y, int pairs,
    Sizes<Index> sizes, Space<Index, 4> images, Windows<Index> windows) {
    typedef wide<T> W;
    const Index count = windows.count(), size = windows.size();
    const Tile<T, A, B, Index> tile(sizes.outside, images.count * count);
    const bool is_there = tile.own() < tile.columns;
    const Index own = is_there ? tile.column + tile.own() : 0;
    const Place<Index> window = windows.window(own % count);
    const auto places = images[own / count];
    for (Index group = blockIdx.y; group < sizes.groups; group += gridDim.y) {
        typename Tile<T, A, B, Index>::Product product;
#pragma unroll 1
        for (int pair = 0; pair < pairs; pair++) {
            const Tensor<const T, Index> &x = pair ? x1 : x0, &filter = pair ? filter1 : filter0;
            const T *from = x.data + (pair ? places.at[2] : places.at[0]) + group * sizes.inside * x.channel;
            const T *factors = filter.data + (group * sizes.outside + tile.row) * filter.outer;
            product.template add<false, true>(
                sizes.depth,
                [&](int r, Index k) {
                    const Index channel = k / size;
                    return r < tile.rows ? (W)factors[r * filter.outer + channel * filter.channel + filter[windows.tap(k - channel * size)]]
                                         : W(0);
                },
                [&](Index k, int) {
                    const Index channel = k / size;
                    Place<Index> at;
                    return is_there && windows.has_element(window, windows.tap(k - channel * size), at) ? (W)from[channel * x.channel + x[at]]
                                                                                                       : W(0);
                });
        }
        tile.write(product, [&](Index row, Index column, W sum) {
            const Index image = column / count;
            y[((image * sizes.groups + group) * sizes.outside + row) * count + column - image * count] = T(sum);
        });
    }
}

// The gradient of images. Rows are the channels of a group of `x`, columns the elements of all images, terms the places in a window in
// each channel of `y`.
template <typename T, int A, int B, typename Index>
__global__ void __launch_bounds__(256) images_back(
    Tensor<const T, Index> gradient, Tensor<const T, Index> filter, T *x, Sizes<Index> sizes, Space<Index, 2> images,
    Windows<Index> windows) {
    typedef wide<T> W;
    const Index plane = windows.plane(), size = windows.size();
    const Tile<T, A, B, Index> tile(sizes.inside, images.count * plane);
    const bool is_there = tile.own() < tile.columns;
    const Index own = is_there ? tile.column + tile.own() : 0;
    const Place<Index> element = windows.element(own % plane);
    const Index place = images[own / plane].at[0];
    for (Index group = blockIdx.y; group < sizes.groups; group += gridDim.y) {
        const T *from = gradient.data + place + group * sizes.outside * gradient.channel;
        const T *factors = filter.data + group * sizes.outside * filter.outer + tile.row * filter.channel;
        typename Tile<T, A, B, Index>::Product product;
        product.template add<false, true>(
            sizes.depth,
            [&](int r, Index k) {
                const Index channel = k / size;
                return r < tile.rows ? (W)factors[channel * filter.outer + r * filter.channel + filter[windows.tap(k - channel * size)]]
                                     : W(0);
            },
            [&](Index k, int) {
                const Index channel = k / size;
                Place<Index> at;
                return is_there && windows.has_window(element, windows.tap(k - channel * size), at)
                           ? (W)from[channel * gradient.channel + gradient[at]]
                           : W(0);
            });
        tile.write(product, [&](Index row, Index column, W sum) {
            const Index image = column / plane;
            x[((image * sizes.groups + group) * sizes.inside + row) * plane + column - image * plane] = T(sum);
        });
    }
}

// The gradient of filters. Rows are the channels of a group of `y`, columns the places in a window in each channel of `x`, terms the windows
// of all images. Blocks along z have `each` of the terms; where they are several, `Z` is the type of sums.
template <typename T, typename Z, int A, int B, typename Index>
__global__ void __launch_bounds__(256) filters_back(
    Tensor<const T, Index> x, Tensor<const T, Index> gradient, Z *filter, Index each, Sizes<Index> sizes, Space<Index, 2> images,
    Windows<Index> windows) {
    typedef wide<T> W;
    const Index count = windows.count(), size = windows.size(), columns = sizes.inside * size;
    const Tile<T, A, B, Index> tile(sizes.outside, columns);
    const Index begin = (Index)blockIdx.z * each, left = sizes.depth - begin;
    Z *part = filter + (size_t)blockIdx.z * sizes.groups * sizes.outside * columns;
    for (Index group = blockIdx.y; group < sizes.groups; group += gridDim.y) {
        const T *from = x.data + group * sizes.inside * x.channel;
        const T *factors = gradient.data + (group * sizes.outside + tile.row) * gradient.channel;
        typename Tile<T, A, B, Index>::Product product;
        product.template add<false, false>(
            left < each ? left : each,
            [&](int r, Index k) {
                if (r >= tile.rows) return W(0);
                const Index image = (begin + k) / count;
                const Place<Index> window = windows.window(begin + k - image * count);
                return (W)factors[images[image].at[1] + r * gradient.channel + gradient[window]];
            },
            [&](Index k, int c) {
                if (c >= tile.columns) return W(0);
                const Index image = (begin + k) / count, channel = (tile.column + c) / size;
                const Place<Index> window = windows.window(begin + k - image * count), tap = windows.tap(tile.column + c - channel * size);
                Place<Index> at;
                return windows.has_element(window, tap, at) ? (W)from[images[image].at[0] + channel * x.channel + x[at]] : W(0);
            });
        tile.write(product, [&](Index row, Index column, W sum) { part[(group * sizes.outside + row) * columns + column] = Z(sum); });
    }
}

// The sums of what blocks have left, in their order.
template <typename T, typename Index> __global__ void added(const wide<T> *parts, T *to, int count, Index length) {
    OPSMITH_GRID_LOOP(Index, i, length) {
        wide<T> sum = 0;
        for (int part = 0; part < count; part++) sum += parts[(size_t)part * length + i];
        to[i] = T(sum);
    }
}
