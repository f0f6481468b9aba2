#ifndef LLMC_REAL_H
#define LLMC_REAL_H

/* Logarithms and powers whose every bit is the same wherever double is IEEE 754's: they are sums, products and
 * quotients alone.  Those of a C library may differ in the last bit from another's, and from its own on a processor
 * that can multiply and add at once; plans made on two machines would then differ. */

/* Within 3 units of the last place; exact for powers of two by real_log2().  Require 0 < x < infinity. */
double real_log2(double x);
double real_log(double x);
/* x to the power n, by n - 1 products at most */
double real_power(double x, unsigned n);

#endif
