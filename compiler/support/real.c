/* log m = 2 artanh s with s = (m - 1) / (m + 1), for m between sqrt(1/2) and sqrt(2), where |s| < 0.1716: the
 * thirteenth term of artanh's series is below 2^-65 of the first. */

#include "compiler/support/real.h"

#include <math.h>

#define LN_2 0.69314718055994530942

/* x = m 2^e; returns log m */
static double split(double x, int *e)
{
    double m = frexp(x, e), sum = 0;
    if (m < 0.70710678118654752440) {
        m *= 2;
        --*e;
    }
    double s = (m - 1) / (m + 1), square = s * s;
    for (int k = 25; k >= 3; k -= 2)
        sum = square * (sum + 1.0 / k);
    return 2 * (s + s * sum);
}

double real_log2(double x)
{
    int e;
    double log_m = split(x, &e);
    return e + log_m / LN_2;
}

double real_log(double x)
{
    int e;
    double log_m = split(x, &e);
    return e * LN_2 + log_m;
}

double real_power(double x, unsigned n)
{
    double power = 1;
    for (; n; n--)
        power *= x;
    return power;
}
