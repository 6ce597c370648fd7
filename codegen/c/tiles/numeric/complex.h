/* Complex numbers with NumPy's semantics. A product uses the plain formula, while C's `*` treats
 * infinities specially and costs a call (C11, annex G); a quotient uses Smith's method, as in
 * NumPy. Functions are expressed by functions of the parts, without branches, so that loops that
 * call them become SIMD code. CUDA C has no complex numbers: there they are a struct. */

#if INSTANCE
#define C c64
#define R f32
#define T float
#define LARGE 88.0f
#define TANH_IS_ONE 11.0f
#else
#define C c128
#define R f64
#define T double
#define LARGE 709.0
#define TANH_IS_ONE 22.0
#endif

/* ---- Complex numbers ------------------------------------------------------------------------- */

#ifdef FX_ON_CUDA
struct fx_C {
    T re, im;
    fx_C() = default;
    __host__ __device__ fx_C(T real, T imag) : re(real), im(imag) {}
    template <typename Real> __host__ __device__ fx_C(Real real) : re((T)real), im(0) {}
    friend __device__ fx_C operator+(fx_C a, fx_C b) { return fx_C(a.re + b.re, a.im + b.im); }
    friend __device__ fx_C operator-(fx_C a, fx_C b) { return fx_C(a.re - b.re, a.im - b.im); }
    friend __device__ fx_C operator-(fx_C a) { return fx_C(-a.re, -a.im); }
    friend __device__ fx_C operator*(fx_C a, fx_C b) {
        return fx_C(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
    }
    friend __device__ bool operator==(fx_C a, fx_C b) { return a.re == b.re && a.im == b.im; }
    friend __device__ bool operator!=(fx_C a, fx_C b) { return a.re != b.re || a.im != b.im; }
    friend __device__ bool operator>=(fx_C a, fx_C b) {
        return (a.re > b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im >= b.im);
    }
    friend __device__ bool operator<=(fx_C a, fx_C b) { return b >= a; }
    __device__ fx_C &operator+=(fx_C b) { return *this = *this + b; }
    friend __device__ fx_C fx_shuffle(unsigned mask, fx_C z, int lane) {
        return fx_C(__shfl_sync(mask, z.re, lane), __shfl_sync(mask, z.im, lane));
    }
};
FX_FN fx_C fx_complex_R(T real, T imag) { return fx_C(real, imag); }
FX_FN T fx_real_C(fx_C z) { return z.re; }
FX_FN T fx_imag_C(fx_C z) { return z.im; }
#else
typedef T _Complex fx_C;
FX_FN fx_C fx_complex_R(T real, T imag) {
#ifdef __GNUC__
    return __builtin_complex(real, imag);
#else
    union { T part[2]; fx_C z; } number = {{real, imag}};
    return number.z;
#endif
}
FX_FN T fx_real_C(fx_C z) { return __real__ z; }
FX_FN T fx_imag_C(fx_C z) { return __imag__ z; }
#endif

FX_FN fx_C fx_neg_C(fx_C z) { return fx_complex_R(-fx_real_C(z), -fx_imag_C(z)); }

FX_FN fx_C fx_conj_C(fx_C z) { return fx_complex_R(fx_real_C(z), -fx_imag_C(z)); }

FX_FN fx_C fx_mul_C(fx_C a, fx_C b) {
    T x = fx_real_C(a), y = fx_imag_C(a), u = fx_real_C(b), v = fx_imag_C(b);
    return fx_complex_R(x * u - y * v, x * v + y * u);
}

/* R. L. Smith, Algorithm 116: complex division, Communications of the ACM 5(8), 1962: divides by
 * the larger part of the divisor. If the divisor is 0, both parts are divided by 0. */
FX_FN fx_C fx_div_C(fx_C a, fx_C b) {
    T u = fx_real_C(b), v = fx_imag_C(b);
    int swapped = fx_abs_R(v) > fx_abs_R(u);
    T large = swapped ? v : u, small = swapped ? u : v;
    T x = swapped ? fx_imag_C(a) : fx_real_C(a), y = swapped ? fx_real_C(a) : fx_imag_C(a);
    T ratio = small / large, scale = 1 / (large + small * ratio);
    T real = (x + y * ratio) * scale, imag = (y - x * ratio) * scale;
    T zero = fx_abs_R(large);
    real = zero == 0 ? fx_real_C(a) / zero : real;
    imag = zero == 0 ? fx_imag_C(a) / zero : swapped ? -imag : imag;
    return fx_complex_R(real, imag);
}

FX_FN fx_C fx_reciprocal_C(fx_C z) {
    T u = fx_real_C(z), v = fx_imag_C(z);
    int swapped = fx_abs_R(v) > fx_abs_R(u);
    T large = swapped ? v : u, small = swapped ? u : v;
    T ratio = small / large, size = large + small * ratio;
    T one = 1 / size, other = ratio / size;
    return fx_complex_R(swapped ? other : one, swapped ? -one : -other);
}

FX_FN float fx_abs_c64(fx_c64 z) { return fx_hypot_f32(fx_real_c64(z), fx_imag_c64(z)); }

/* Scaled by a power of two if squares would overflow or underflow. */
FX_FN double fx_abs_c128(fx_c128 z) {
    double x = fabs(fx_real_c128(z)), y = fabs(fx_imag_c128(z)), most = x > y ? x : y;
    double scale = most > 1e150 ? 0x1p-600 : most < 1e-140 ? 0x1p600 : 1.0;
    double back = most > 1e150 ? 0x1p600 : most < 1e-140 ? 0x1p-600 : 1.0;
    double u = x * scale, v = y * scale;
    double root = sqrt(u * u + v * v) * back;
    return fx_isinf_f64(x) || fx_isinf_f64(y) ? (double)INFINITY : root;
}

/* ---- Order: by the real part, then by the imaginary one; NaN wins ---------------------------- */

FX_FN int fx_isnan_C(fx_C z) { return fx_isnan_R(fx_real_C(z)) | fx_isnan_R(fx_imag_C(z)); }

FX_FN int fx_isinf_C(fx_C z) { return fx_isinf_R(fx_real_C(z)) | fx_isinf_R(fx_imag_C(z)); }

FX_FN int fx_gt_C(fx_C a, fx_C b) {
    T x = fx_real_C(a), y = fx_imag_C(a), u = fx_real_C(b), v = fx_imag_C(b);
    return (x > u && y == y && v == v) || (x == u && y > v);
}

FX_FN int fx_ge_C(fx_C a, fx_C b) {
    T x = fx_real_C(a), y = fx_imag_C(a), u = fx_real_C(b), v = fx_imag_C(b);
    return (x > u && y == y && v == v) || (x == u && y >= v);
}

FX_FN int fx_lt_C(fx_C a, fx_C b) { return fx_gt_C(b, a); }

FX_FN int fx_le_C(fx_C a, fx_C b) { return fx_ge_C(b, a); }

FX_FN fx_C fx_maximum_C(fx_C a, fx_C b) { return fx_isnan_C(a) || fx_ge_C(a, b) ? a : b; }

FX_FN fx_C fx_minimum_C(fx_C a, fx_C b) { return fx_isnan_C(a) || fx_ge_C(b, a) ? a : b; }

/* ---- Functions of complex numbers; at infinities they are what C11, annex G, says ------------ */

FX_FN fx_C fx_round_C(fx_C z) {
    return fx_complex_R(fx_round_R(fx_real_C(z)), fx_round_R(fx_imag_C(z)));
}

/* z / |z|, and 0 for 0 */
FX_FN fx_C fx_sign_C(fx_C z) {
    T x = fx_real_C(z), y = fx_imag_C(z), size = fx_abs_C(z);
    int far = fx_isinf_R(x) && !fx_isinf_R(y), high = fx_isinf_R(y) && !fx_isinf_R(x);
    T real = size == 0 ? 0 : x / size, imag = size == 0 ? 0 : y / size;
    real = far ? fx_sign_R(x) : high ? 0 : real;
    imag = high ? fx_sign_R(y) : far ? 0 : imag;
    int none = x != x || y != y;
    return fx_complex_R(none ? x + y : real, none ? x + y : imag);
}

/* e^x (cos y + i sin y); for large x in two steps, because e^x may overflow although the product
 * does not. */
FX_FN fx_C fx_exp_C(fx_C z) {
    T x = fx_real_C(z), y = fx_imag_C(z);
    int large = x > LARGE, nowhere = !(fx_abs_R(y) < (T)INFINITY);
    T size = fx_exp_R(large ? (T)0.5 * x : x), more = large ? size : 1;
    T real = size * fx_cos_R(y) * more, imag = size * fx_sin_R(y) * more;
    imag = y == 0 ? y : imag;
    real = nowhere && x == (T)INFINITY ? x : nowhere && size == 0 ? 0 : real;
    imag = nowhere && size == 0 ? 0 : imag;
    return fx_complex_R(y == 0 ? size * more : real, imag);
}

FX_FN fx_C fx_expm1_C(fx_C z) {
    T x = fx_real_C(z), y = fx_imag_C(z), half = fx_sin_R(y * (T)0.5);
    T real = fx_expm1_R(x) * fx_cos_R(y) - 2 * half * half;
    return fx_complex_R(real, fx_exp_R(x) * fx_sin_R(y));
}

FX_FN fx_c64 fx_log_c64(fx_c64 z) {
    double x = fx_real_c64(z), y = fx_imag_c64(z);
    double size = fx_isinf_c64(z) ? (double)INFINITY : 0.5 * log(x * x + y * y);
    return fx_complex_f32((float)size, fx_atan2_f32(fx_imag_c64(z), fx_real_c64(z)));
}

/* Near |z| = 1 by log1p of |z|^2 - 1. */
FX_FN fx_c128 fx_log_c128(fx_c128 z) {
    double x = fabs(fx_real_c128(z)), y = fabs(fx_imag_c128(z)), size = fx_abs_c128(z);
    double most = x > y ? x : y, least = x > y ? y : x;
    int near = size > 0.5 && size < 2.0;
    double rest = near ? (most - 1.0) * (most + 1.0) + least * least : 0.0;
    double real = near ? 0.5 * log1p(rest) : log(size);
    return fx_complex_f64(real, atan2(fx_imag_c128(z), fx_real_c128(z)));
}

FX_FN fx_C fx_log1p_C(fx_C z) { return fx_log_C(fx_complex_R(fx_real_C(z) + 1, fx_imag_C(z))); }

FX_FN fx_C fx_scaled_C(fx_C z, T factor) {
    return fx_complex_R(fx_real_C(z) * factor, fx_imag_C(z) * factor);
}

FX_FN fx_C fx_log2_C(fx_C z) { return fx_scaled_C(fx_log_C(z), (T)1.4426950408889634); }

FX_FN fx_C fx_log10_C(fx_C z) { return fx_scaled_C(fx_log_C(z), (T)0.43429448190325183); }

FX_FN fx_C fx_exp2_C(fx_C z) { return fx_exp_C(fx_scaled_C(z, (T)0.69314718055994531)); }

FX_FN fx_c64 fx_cast_c128_c64(fx_c128 z) {
    return fx_complex_f32((float)fx_real_c128(z), (float)fx_imag_c128(z));
}

FX_FN fx_c128 fx_cast_c64_c128(fx_c64 z) {
    return fx_complex_f64((double)fx_real_c64(z), (double)fx_imag_c64(z));
}

/* The larger part is sqrt((|x| + |z|) / 2), without cancellation; the product of both is y /
 * 2. */
FX_FN fx_c128 fx_sqrt_c128(fx_c128 z) {
    double x = fx_real_c128(z), y = fx_imag_c128(z), width = fabs(x), height = fabs(y);
    double most = width > height ? width : height;
    double scale = most > 0x1p1000 ? 0x1p-4 : most < 0x1p-1000 ? 0x1p104 : 1.0;
    double back = most > 0x1p1000 ? 0x1p2 : most < 0x1p-1000 ? 0x1p-52 : 1.0;
    double size = fx_abs_c128(fx_complex_f64(width * scale, height * scale));
    double large = sqrt(0.5 * (width * scale + size));
    double small = large == 0.0 ? 0.0 : height * scale * 0.5 / large;
    small = fx_isinf_f64(large) && !fx_isnan_f64(height) ? 0.0 : small;
    double real = (x < 0.0 ? small : large) * back, imag = (x < 0.0 ? large : small) * back;
    real = fx_isinf_f64(y) ? (double)INFINITY : real;
    imag = fx_isinf_f64(y) ? (double)INFINITY : imag;
    return fx_complex_f64(real, copysign(imag, y));
}

FX_FN fx_c64 fx_sqrt_c64(fx_c64 z) {
    float x = fx_real_c64(z), y = fx_imag_c64(z);
    double width = fabs((double)x), height = fabs((double)y);
    double size = sqrt(width * width + height * height), large = sqrt(0.5 * (width + size));
    double small = large == 0.0 ? 0.0 : height * 0.5 / large;
    small = fx_isinf_f32(x) && y == y ? 0.0 : small;
    large = fx_isinf_f32(x) ? (double)INFINITY : large;
    float real = (float)(x < 0.0f ? small : large), imag = (float)(x < 0.0f ? large : small);
    real = fx_isinf_f32(y) ? INFINITY : real;
    imag = fx_isinf_f32(y) ? INFINITY : imag;
    return fx_complex_f32(real, copysignf(imag, y));
}

FX_FN fx_C fx_rsqrt_C(fx_C z) { return fx_div_C(fx_complex_R(1, 0), fx_sqrt_C(z)); }

/* sinh x cos y + i cosh x sin y; for large |x| both are e^|x| / 2, computed in two steps. */
FX_FN fx_C fx_sinh_C(fx_C z) {
    T x = fx_real_C(z), y = fx_imag_C(z), size = fx_abs_R(x);
    int large = size > LARGE;
    T half = fx_exp_R((T)0.5 * size), more = large ? half : 1;
    T sine = large ? fx_copysign_R((T)0.5 * half, x) : fx_sinh_R(x);
    T cosine = large ? (T)0.5 * half : fx_cosh_R(x);
    T real = sine * fx_cos_R(y) * more, imag = cosine * fx_sin_R(y) * more;
    real = y == 0 ? sine * more : real;
    imag = y == 0 ? y : imag;
    int nowhere = !(fx_abs_R(y) < (T)INFINITY);
    return fx_complex_R(nowhere && (x == 0 || fx_isinf_R(x)) ? x : real, imag);
}

FX_FN fx_C fx_cosh_C(fx_C z) {
    T x = fx_real_C(z), y = fx_imag_C(z), size = fx_abs_R(x);
    int large = size > LARGE;
    T half = fx_exp_R((T)0.5 * size), more = large ? half : 1;
    T sine = large ? fx_copysign_R((T)0.5 * half, x) : fx_sinh_R(x);
    T cosine = large ? (T)0.5 * half : fx_cosh_R(x);
    T real = cosine * fx_cos_R(y) * more, imag = sine * fx_sin_R(y) * more;
    int nowhere = !(fx_abs_R(y) < (T)INFINITY), none = y == 0 || (x == 0 && nowhere);
    real = y == 0 ? cosine * more : nowhere && fx_isinf_R(x) ? size : real;
    T zero = y == 0 ? y * fx_copysign_R(1, x) : (T)0;
    return fx_complex_R(real, none ? zero : imag);
}

/* W. Kahan, Branch cuts for complex elementary functions, in The State of the Art in Numerical
 * Analysis, 1987: uses t = tan y and s = sinh x; for large |x| the real part is 1 up to its sign,
 * and the imaginary part is the leading term. */
FX_FN fx_C fx_tanh_C(fx_C z) {
    T x = fx_real_C(z), y = fx_imag_C(z), size = fx_abs_R(x);
    int large = size > TANH_IS_ONE, nowhere = !(fx_abs_R(y) < (T)INFINITY);
    T bounded = large ? fx_copysign_R(1, x) : x;
    T t = fx_tan_R(y), beta = 1 + t * t, s = fx_sinh_R(bounded), rho = fx_sqrt_R(1 + s * s);
    T scale = 1 / (1 + beta * s * s);
    T real = beta * rho * s * scale, imag = t * scale;
    T rest = 4 * fx_sin_R(y) * fx_cos_R(y) * fx_exp_R(-2 * size);
    imag = large ? nowhere ? 0 : rest : imag;
    real = large ? fx_copysign_R(1, x) : x == 0 && nowhere ? x : real;
    return fx_complex_R(real, y == 0 ? y : imag);
}

/* sin z = -i sinh iz, and so on. */
FX_FN fx_C fx_times_i_C(fx_C z) { return fx_complex_R(-fx_imag_C(z), fx_real_C(z)); }

FX_FN fx_C fx_over_i_C(fx_C z) { return fx_complex_R(fx_imag_C(z), -fx_real_C(z)); }

FX_FN fx_C fx_sin_C(fx_C z) { return fx_over_i_C(fx_sinh_C(fx_times_i_C(z))); }

FX_FN fx_C fx_cos_C(fx_C z) { return fx_cosh_C(fx_times_i_C(z)); }

FX_FN fx_C fx_tan_C(fx_C z) { return fx_over_i_C(fx_tanh_C(fx_times_i_C(z))); }

FX_FN double fx_asinh_of_parts(double x) {
    double size = fabs(x), root = size * size / (1.0 + sqrt(1.0 + size * size));
    double y = size > 1e8 ? log(size) + 0.69314718055994531 : log1p(size + root);
    return copysign(y, x);
}

/* Uses roots of 1 - z and 1 + z, whose products are as large as z (Kahan, as above). */
FX_FN fx_c128 fx_asin_c128(fx_c128 z) {
    double x = fx_real_c128(z), y = fx_imag_c128(z);
    fx_c128 below = fx_sqrt_c128(fx_complex_f64(1.0 - x, -y));
    fx_c128 above = fx_sqrt_c128(fx_complex_f64(1.0 + x, y));
    double real = atan2(x, fx_real_c128(fx_mul_c128(below, above)));
    double imag = fx_asinh_of_parts(fx_imag_c128(fx_mul_c128(fx_conj_c128(below), above)));
    int infinite = fx_isinf_c128(z);
    real = infinite ? atan2(x, fabs(y)) : x == 0.0 && x == x ? x : real;
    return fx_complex_f64(real, infinite ? copysign((double)INFINITY, y) : imag);
}

FX_FN fx_c128 fx_acos_c128(fx_c128 z) {
    double x = fx_real_c128(z), y = fx_imag_c128(z);
    fx_c128 below = fx_sqrt_c128(fx_complex_f64(1.0 - x, -y));
    fx_c128 above = fx_sqrt_c128(fx_complex_f64(1.0 + x, y));
    double real = 2.0 * atan2(fx_real_c128(below), fx_real_c128(above));
    double imag = fx_asinh_of_parts(fx_imag_c128(fx_mul_c128(fx_conj_c128(above), below)));
    int infinite = fx_isinf_c128(z);
    real = infinite ? atan2(fabs(y), x) : real;
    return fx_complex_f64(real, infinite ? copysign((double)INFINITY, -y) : imag);
}

/* The real part is log1p(4x / ((1 - x)^2 + y^2)) / 4; far away it is x / |z|^2. */
FX_FN fx_c128 fx_atanh_c128(fx_c128 z) {
    double x = fx_real_c128(z), y = fx_imag_c128(z), size = fx_abs_c128(z);
    int far = size > 1e100;
    double u = far ? 0.0 : fabs(x), v = far ? 0.0 : y;
    double real = 0.25 * log1p(4.0 * u / ((1.0 - u) * (1.0 - u) + v * v));
    double imag = 0.5 * atan2(2.0 * v, (1.0 - u) * (1.0 + u) - v * v);
    real = far ? fx_isinf_f64(size) ? 0.0 : fabs(x) / size / size : real;
    imag = far ? fx_isnan_f64(y) ? y : copysign(1.5707963267948966, y) : imag;
    return fx_complex_f64(copysign(real, x), y == 0.0 && u < 1.0 && !far ? y : imag);
}

FX_FN fx_c128 fx_atan_c128(fx_c128 z) { return fx_over_i_c128(fx_atanh_c128(fx_times_i_c128(z))); }

FX_FN fx_c128 fx_asinh_c128(fx_c128 z) {
    return fx_times_i_c128(fx_asin_c128(fx_over_i_c128(z)));
}

/* Whichever of i acos z and -i acos z is in the right half of the plane. */
FX_FN fx_c128 fx_acosh_c128(fx_c128 z) {
    fx_c128 angle = fx_acos_c128(z);
    double imag = copysign(fx_real_c128(angle), fx_imag_c128(z));
    return fx_complex_f64(fabs(fx_imag_c128(angle)), imag);
}

FX_FN fx_c64 fx_asinh_c64(fx_c64 z) { return fx_cast_c128_c64(fx_asinh_c128(fx_cast_c64_c128(z))); }

FX_FN fx_c64 fx_acosh_c64(fx_c64 z) { return fx_cast_c128_c64(fx_acosh_c128(fx_cast_c64_c128(z))); }

FX_FN fx_c64 fx_atanh_c64(fx_c64 z) { return fx_cast_c128_c64(fx_atanh_c128(fx_cast_c64_c128(z))); }

FX_FN fx_c64 fx_asin_c64(fx_c64 z) { return fx_cast_c128_c64(fx_asin_c128(fx_cast_c64_c128(z))); }

FX_FN fx_c64 fx_acos_c64(fx_c64 z) { return fx_cast_c128_c64(fx_acos_c128(fx_cast_c64_c128(z))); }

FX_FN fx_c64 fx_atan_c64(fx_c64 z) { return fx_cast_c128_c64(fx_atan_c128(fx_cast_c64_c128(z))); }

/* Whole exponents between -100 and 100 by repeated squaring, as in NumPy; others as exp(b log
 * a). */
FX_FN fx_C fx_pow_C(fx_C a, fx_C b) {
    T u = fx_real_C(b), v = fx_imag_C(b);
    if (u == 0 && v == 0) return fx_complex_R(1, 0);
    if (fx_real_C(a) == 0 && fx_imag_C(a) == 0)
        return u > 0 ? fx_complex_R(0, 0) : fx_complex_R((T)NAN, (T)NAN);
    if (v == 0 && u > -100 && u < 100 && u == fx_trunc_R(u)) {
        int count = (int)fx_abs_R(u);
        fx_C factor = a, result = (count & 1) != 0 ? a : fx_complex_R(1, 0);
        for (count >>= 1; count != 0; count >>= 1) {
            factor = fx_mul_C(factor, factor);
            if ((count & 1) != 0) result = fx_mul_C(result, factor);
        }
        return u < 0 ? fx_div_C(fx_complex_R(1, 0), result) : result;
    }
    return fx_exp_C(fx_mul_C(b, fx_log_C(a)));
}
