//! [`Vector`] for the registers of AVX2 with FMA and of AVX-512.

use std::arch::x86_64::*;

use crate::kernels::simd::{Kernel, Vector};

macro_rules! x86_vector {
    (
        $vector:ident of $lanes:literal $elem:ident,
        splat $splat:ident, load $load:ident, store $store:ident, add $add:ident, sub $sub:ident,
        fma $fma:ident, fnma $fnma:ident, max $max:ident, mul $mul:ident,
        abs $abs:expr, sign $sign:expr, all_ge $all_ge:expr $(,)?
    ) => {
        // SAFETY: the trait's methods ask the caller for the instruction set these intrinsics need.
        unsafe impl Vector for $vector {
            type Elem = $elem;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(value: $elem) -> Self {
                // SAFETY: the caller vouches for the instruction set, here and below.
                unsafe { $splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $elem) -> Self {
                // SAFETY: the caller vouches for the pointer.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $elem) {
                // SAFETY: the caller vouches for the pointer.
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $sub(self, other) }
            }
            #[inline(always)]
            unsafe fn add_signed(self, a: Self, b: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $fma(a, b, self) }
            }
            #[inline(always)]
            unsafe fn sub_signed(self, a: Self, b: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $fnma(a, b, self) }
            }
            #[inline(always)]
            unsafe fn add_by_multiplier(self, one: Self, term: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $fma(one, term, self) }
            }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $max(self, other) }
            }
            #[inline(always)]
            unsafe fn abs(self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $abs(self) }
            }
            #[inline(always)]
            unsafe fn sign(self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $sign(self) }
            }
            #[inline(always)]
            unsafe fn outweighs(self, other: Self) -> bool {
                // SAFETY: as for `splat`.
                unsafe { $all_ge($mul(self, $splat(<$elem>::CONDITION)), other) }
            }
        }
    };
}

/// What `vfixupimm` answers per class of number, four bits each from the right: quiet NaN, signalling
/// NaN: itself, quiet (2); zero: +0 (8); one: +1 (10); −∞: −1 (9); +∞: +1; negative: −1; positive: +1.
const SIGN_TABLE: i64 = 0xA9A9_A822;

x86_vector! {
    __m512 of 16 f32,
    splat _mm512_set1_ps, load _mm512_loadu_ps, store _mm512_storeu_ps, add _mm512_add_ps, sub _mm512_sub_ps,
    fma _mm512_fmadd_ps, fnma _mm512_fnmadd_ps, max _mm512_max_ps, mul _mm512_mul_ps,
    abs _mm512_abs_ps,
    sign |v| _mm512_fixupimm_ps::<0>(v, v, _mm512_set1_epi32(SIGN_TABLE as i32)),
    all_ge |a, b| _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b) == u16::MAX,
}

x86_vector! {
    __m512d of 8 f64,
    splat _mm512_set1_pd, load _mm512_loadu_pd, store _mm512_storeu_pd, add _mm512_add_pd, sub _mm512_sub_pd,
    fma _mm512_fmadd_pd, fnma _mm512_fnmadd_pd, max _mm512_max_pd, mul _mm512_mul_pd,
    abs _mm512_abs_pd,
    sign |v| _mm512_fixupimm_pd::<0>(v, v, _mm512_set1_epi64(SIGN_TABLE)),
    all_ge |a, b| _mm512_cmp_pd_mask::<_CMP_GE_OQ>(a, b) == u8::MAX,
}

x86_vector! {
    __m256 of 8 f32,
    splat _mm256_set1_ps, load _mm256_loadu_ps, store _mm256_storeu_ps, add _mm256_add_ps, sub _mm256_sub_ps,
    fma _mm256_fmadd_ps, fnma _mm256_fnmadd_ps, max _mm256_max_ps, mul _mm256_mul_ps,
    abs |v| _mm256_andnot_ps(_mm256_set1_ps(-0.0), v),
    // ±1 by the sign bit where the number is not zero and not NaN, else the number itself.
    sign |v| _mm256_blendv_ps(
        v,
        _mm256_or_ps(_mm256_and_ps(v, _mm256_set1_ps(-0.0)), _mm256_set1_ps(1.0)),
        _mm256_cmp_ps::<_CMP_NEQ_OQ>(v, _mm256_setzero_ps()),
    ),
    all_ge |a, b| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(a, b)) == 0xff,
}

x86_vector! {
    __m256d of 4 f64,
    splat _mm256_set1_pd, load _mm256_loadu_pd, store _mm256_storeu_pd, add _mm256_add_pd, sub _mm256_sub_pd,
    fma _mm256_fmadd_pd, fnma _mm256_fnmadd_pd, max _mm256_max_pd, mul _mm256_mul_pd,
    abs |v| _mm256_andnot_pd(_mm256_set1_pd(-0.0), v),
    sign |v| _mm256_blendv_pd(
        v,
        _mm256_or_pd(_mm256_and_pd(v, _mm256_set1_pd(-0.0)), _mm256_set1_pd(1.0)),
        _mm256_cmp_pd::<_CMP_NEQ_OQ>(v, _mm256_setzero_pd()),
    ),
    all_ge |a, b| _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(a, b)) == 0xf,
}
