// x / (1 + exp(-u)) with u = t (linear + cubic t^2), the rounding errors of u included, as far tails need them.
DEVICE Number gelu_tanh(Number x) {
    const Number linear = Number(1.5957691216057308), cubic = Number(0.07135481627260025);
    const Number linear_low = Number((1.5957691216057308 - linear) - 9.96930880911092e-17);
    const Number cubic_low = Number((0.07135481627260025 - cubic) - 6.175149918155315e-19);
    Number t = fmin@(fabs@(x), Number(40));
    Number square = t * t, square_low = fma@(t, t, -square);
    Number term = cubic * square;
    Number term_low = fma@(cubic, square, -term) + fma@(cubic, square_low, cubic_low * square);
    Number factor = linear + term, back = factor - linear;
    Number factor_low = ((linear - (factor - back)) + (term - back)) + (linear_low + term_low);
    Number u = factor * t, u_low = fma@(factor, t, -u) + factor_low * t;
    Number e = exp@(-u);
    e = fma@(e, -u_low, e);
    Number tail = t * e / (1 + e);
    return x < 0 ? -tail : x - tail;
}
