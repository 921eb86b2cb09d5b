// By the tail, so that nothing cancels: accurate far below zero, and -0 at the end.
DEVICE Number gelu(Number x) {
    Number t = fmin@(fabs@(x), Number(40));
    Number tail = t * normcdf@(-t);
    return x < 0 ? -tail : x - tail;
}
