// Vectors of SAN_VL floats, by the compiler's vector extensions. Included once per CPU level, inside its namespace.

typedef float V __attribute__((vector_size(4 * SAN_VL)));
typedef int32_t VI __attribute__((vector_size(4 * SAN_VL)));
typedef uint32_t VU __attribute__((vector_size(4 * SAN_VL)));
typedef float VMem __attribute__((vector_size(4 * SAN_VL), aligned(4), may_alias));
typedef uint32_t VUMem __attribute__((vector_size(4 * SAN_VL), aligned(4), may_alias));

constexpr int VL = SAN_VL;
#define SAN_INLINE static inline __attribute__((always_inline))
#define SAN_INLINE_MEMBER inline __attribute__((always_inline))
// For inner loops that need all registers: inlined into their callers they would share them.
#define SAN_ALONE static __attribute__((noinline))

// A vector that is used several times: without this the compiler may read it from memory each time.
#if (defined(__AVX512F__) && SAN_VL == 16) || (defined(__AVX2__) && SAN_VL == 8)
SAN_INLINE V in_register(V v) {
  asm("" : "+v"(v));
  return v;
}
#else
SAN_INLINE V in_register(V v) { return v; }
#endif

SAN_INLINE V load(const float* p) { return *reinterpret_cast<const VMem*>(p); }
SAN_INLINE void store(float* p, V v) { *reinterpret_cast<VMem*>(p) = v; }
// The first `count` of a vector; the rest is zero, and not written.
#if defined(__AVX512F__) && SAN_VL == 16
SAN_INLINE V load_some(const float* p, int64_t count) {
  return (V)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p);
}
SAN_INLINE void store_some(float* p, V v, int64_t count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << count) - 1), (__m512)v);
}
#else
SAN_INLINE V load_some(const float* p, int64_t count) {
  V v{};
  for (int i = 0; i < VL; ++i) v[i] = i < count ? p[i] : 0;
  return v;
}
SAN_INLINE void store_some(float* p, V v, int64_t count) {
  for (int i = 0; i < VL; ++i) {
    if (i < count) p[i] = v[i];
  }
}
#endif
SAN_INLINE VU load_u(const uint32_t* p) { return *reinterpret_cast<const VUMem*>(p); }
SAN_INLINE void store_u(uint32_t* p, VU v) { *reinterpret_cast<VUMem*>(p) = v; }
// x - 0 is x for every x, so this is one broadcast; 0 + x is not, for -0.
SAN_INLINE V splat(float x) { return x - V{}; }
SAN_INLINE VU splat_u(uint32_t x) { return x - VU{}; }
SAN_INLINE V select(VI mask, V a) { return (V)((VI)a & mask); }
// Of two of which one is not a number: b. What a network computed belongs there, so that a NaN is not lost in a ReLU or a clamp
// and the outcome does not look like a result.
#if defined(__AVX512F__) && SAN_VL == 16
SAN_INLINE V maximum(V a, V b) { return (V)_mm512_max_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__) && SAN_VL == 8
SAN_INLINE V maximum(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
#else
SAN_INLINE V maximum(V a, V b) { return a > b ? a : b; }
#endif
SAN_INLINE VU lane_numbers() {
  VU v{};
  for (int i = 0; i < VL; ++i) v[i] = static_cast<uint32_t>(i);
  return v;
}

SAN_INLINE float sum_of(V v) {
  float s = 0;
  for (int i = 0; i < VL; ++i) s += v[i];
  return s;
}

// The sum of the lanes, in each of them.
#if defined(__AVX512F__) && SAN_VL == 16
SAN_INLINE V sum_everywhere(V v) {
  v += (V)_mm512_shuffle_f32x4((__m512)v, (__m512)v, 0x4E);
  v += (V)_mm512_shuffle_f32x4((__m512)v, (__m512)v, 0xB1);
  v += (V)_mm512_permute_ps((__m512)v, 0x4E);
  return v + (V)_mm512_permute_ps((__m512)v, 0xB1);
}
#elif defined(__AVX2__) && SAN_VL == 8
SAN_INLINE V sum_everywhere(V v) {
  v += (V)_mm256_permute2f128_ps((__m256)v, (__m256)v, 1);
  v += (V)_mm256_permute_ps((__m256)v, 0x4E);
  return v + (V)_mm256_permute_ps((__m256)v, 0xB1);
}
#else
SAN_INLINE V sum_everywhere(V v) { return splat(sum_of(v)); }
#endif

// A bit per lane of a comparison's outcome, the first lane's the lowest.
#if defined(__AVX512F__) && SAN_VL == 16
SAN_INLINE uint32_t lane_bits(VI v) { return _mm512_movepi32_mask((__m512i)v); }
#elif defined(__AVX2__) && SAN_VL == 8
SAN_INLINE uint32_t lane_bits(VI v) { return static_cast<uint32_t>(_mm256_movemask_ps((__m256)v)); }
#else
SAN_INLINE uint32_t lane_bits(VI v) {
  uint32_t bits = 0;
  for (int i = 0; i < VL; ++i) bits |= (static_cast<uint32_t>(v[i]) >> 31) << i;
  return bits;
}
#endif

// exp(x) for |x| <= 87, relative error 2e-7; x below -87 gives about 1e-38.
SAN_INLINE V exponential(V x) {
  x = maximum(splat(-87.0F), x);
  const V t = x * 1.44269504088896341F + 12582912.0F;
  const V n = t - 12582912.0F;
  const V r = x - n * 0.693359375F + n * 2.12194440e-4F;
  V p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const VI exponent = (VI)t - 0x4B400000 + 127;
  return p * (V)(exponent << 23);
}

SAN_INLINE VU hash_vector(uint32_t key, VU index) {
  VU x = index * 0x9e3779b1U + key;
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

// All ones where the element is kept (see mask_number): the upper 16 bits of a word against the threshold.
SAN_INLINE VI keep_odd(VU mixed, uint32_t threshold) {
  return (VI)(mixed >= (threshold << 16));
}
SAN_INLINE VI keep_even(VU mixed, uint32_t threshold) {
  return (VI)((mixed << 11) >= (threshold << 16));
}
// Rows are lanes; one column.
SAN_INLINE VI keep_column(VU row_bits, const Dropout& d, uint32_t column) {
  const VU mixed = (row_bits ^ mask_column(d.key, column / 2)) * kMaskMultiplier;
  return (column & 1) != 0 ? keep_odd(mixed, d.threshold) : keep_even(mixed, d.threshold);
}
