// A negative argument is mirrored, a small one moved to where the series counts.
DEVICE Number digamma(Number x) {
    Number sum = 0;
    if (x < 0) {
        if (x == floor@(x)) return (x - x) / (x - x);
        sum = Number(-3.141592653589793) / tan@(Number(3.141592653589793) * (x - rint@(x)));
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum -= 1 / x;
    Number z = 1 / (x * x);
    Number series = Number(1.0 / 240) - z * (Number(1.0 / 132) - z * (Number(691.0 / 32760) - z * Number(1.0 / 12)));
    series = z * (Number(1.0 / 12) - z * (Number(1.0 / 120) - z * (Number(1.0 / 252) - z * series)));
    return sum + (log@(x) - Number(0.5) / x - series);
}
