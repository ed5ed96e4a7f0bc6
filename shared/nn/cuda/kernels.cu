// What a step of the language model does between its matrix products, one kernel each. The same functions in operators
// of libtorch, which the CPU runs and tests compare with, stand in src/fused.rs.
//
// Sums run in an order that depends on a slot's own rows only: neither the other slots of a batch nor the number of rows
// that a graph was made for change a slot's result.

typedef unsigned short bf16;
typedef long long i64;

#define INFINITE __int_as_float(0x7f800000)

__device__ inline float widen(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ inline float widen(float x) { return x; }
__device__ inline void narrow(float x, bf16& out) {
    unsigned bits = __float_as_uint(x);
    out = (x != x) ? (bf16)0x7fc0 : (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
__device__ inline void narrow(float x, float& out) { out = x; }
template <typename T>
__device__ inline float rounded(float x) {
    T y;
    narrow(x, y);
    return widen(y);
}

__device__ inline float warp_sum(float x) {
    for (int at = 16; at > 0; at >>= 1) x += __shfl_xor_sync(0xffffffffu, x, at);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int at = 16; at > 0; at >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, at));
    return x;
}
// Blocks are whole warps, at most 32 of them.
__device__ inline float block_sum(float x) {
    __shared__ float parts[32];
    x = warp_sum(x);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < (int)(blockDim.x >> 5); ++i) total += parts[i];
    __syncthreads();
    return total;
}

// x += y (where there is a y), out = norm(x) * alpha. One block a row.
template <typename X, typename T>
__device__ void add_norm(X* x, const T* y, const X* alpha, T* out, int width, int add, float eps) {
    x += (i64)blockIdx.x * width;
    y += (i64)blockIdx.x * width;
    out += (i64)blockIdx.x * width;
    float square = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        float value = widen(x[i]);
        if (add) {
            value = rounded<X>(value + widen(y[i]));
            narrow(value, x[i]);
        }
        square += value * value;
    }
    float scale = rsqrtf(block_sum(square) / width + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x) narrow(widen(x[i]) * (scale * widen(alpha[i])), out[i]);
}
extern "C" __global__ void add_norm_wide(float* x, const bf16* y, const float* alpha, bf16* out, int width, int add, float eps) {
    add_norm(x, y, alpha, out, width, add, eps);
}
extern "C" __global__ void add_norm_same(bf16* x, const bf16* y, const bf16* alpha, bf16* out, int width, int add, float eps) {
    add_norm(x, y, alpha, out, width, add, eps);
}
extern "C" __global__ void add_norm_full(float* x, const float* y, const float* alpha, float* out, int width, int add, float eps) {
    add_norm(x, y, alpha, out, width, add, eps);
}

// out[r][i] = silu(x[r][i]) * x[r][half + i]; both steps round.
template <typename T>
__device__ void gate(const T* x, T* out, int half, int total) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int row = i / half, at = i - row * half;
        float g = widen(x[(i64)row * 2 * half + at]), v = widen(x[(i64)row * 2 * half + half + at]);
        narrow(rounded<T>(g / (1.0f + expf(-g))) * v, out[i]);
    }
}
extern "C" __global__ void gate_bf16(const bf16* x, bf16* out, int half, int total, float) { gate(x, out, half, total); }
extern "C" __global__ void gate_f32(const float* x, float* out, int half, int total, float) { gate(x, out, half, total); }

// Splits qkv [B, 3, H, D], rotates q and k to the slot's position, writes k and v into the ring [B, H, rows, D]. A slot
// that sits out writes into the scratch row `capacity`. Grid (H, B), a thread a pair.
template <typename T>
__device__ void rotate_write(const T* qkv, const float* frequencies, const i64* seen, const i64* active, i64 stride,
                             T* q, T* ring_k, T* ring_v, int heads, int width, int rows, int capacity) {
    int h = blockIdx.x, b = blockIdx.y, pair = threadIdx.x;
    i64 position = seen[b * stride];
    const T* from = qkv + ((i64)b * 3 * heads + h) * width;
    i64 part = (i64)heads * width;
    float angle = (float)position * frequencies[pair];
    float c = cosf(angle), s = sinf(angle);
    i64 row = active[b * stride] ? position % capacity : capacity;
    i64 to = (((i64)b * heads + h) * rows + row) * width;
    T* q_out = q + ((i64)b * heads + h) * width;
    float re = widen(from[2 * pair]), im = widen(from[2 * pair + 1]);
    narrow(re * c - im * s, q_out[2 * pair]);
    narrow(re * s + im * c, q_out[2 * pair + 1]);
    re = widen(from[part + 2 * pair]), im = widen(from[part + 2 * pair + 1]);
    narrow(re * c - im * s, ring_k[to + 2 * pair]);
    narrow(re * s + im * c, ring_k[to + 2 * pair + 1]);
    ring_v[to + 2 * pair] = from[2 * part + 2 * pair];
    ring_v[to + 2 * pair + 1] = from[2 * part + 2 * pair + 1];
}
extern "C" __global__ void rotate_write_bf16(const bf16* qkv, const float* f, const i64* seen, const i64* active, bf16* q,
                                             bf16* k, bf16* v, int stride, int heads, int width, int rows, int capacity, float) {
    rotate_write(qkv, f, seen, active, stride, q, k, v, heads, width, rows, capacity);
}
extern "C" __global__ void rotate_write_f32(const float* qkv, const float* f, const i64* seen, const i64* active, float* q,
                                            float* k, float* v, int stride, int heads, int width, int rows, int capacity, float) {
    rotate_write(qkv, f, seen, active, stride, q, k, v, heads, width, rows, capacity);
}

// Rows of a part of the attention: fixed, so that a slot's sums do not depend on anything else.
#define PART 128
// Threads of an attention block: 8 groups of 16, each group a row at a time.
#define THREADS 128
#define GROUP 16
#define GROUPS (THREADS / GROUP)

template <typename T, int N>
__device__ inline void load(const T* from, float* to);
template <>
__device__ inline void load<bf16, 8>(const bf16* from, float* to) {
    uint4 raw = *(const uint4*)from;
    unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        to[2 * i] = __uint_as_float(words[i] << 16);
        to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}
template <>
__device__ inline void load<float, 8>(const float* from, float* to) {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = from[i];
}

// One part of one head of one slot: largest score, sum of weights, weighted sum of values. Grid (parts, H, B). Width 128.
template <typename T>
__device__ void attend_part(const T* q, const T* ring_k, const T* ring_v, const i64* seen, const i64* active, i64 stride,
                            float* sums, float* values, int heads, int rows, int capacity, float scale) {
    const int width = 128;
    int part = blockIdx.x, h = blockIdx.y, b = blockIdx.z, parts = gridDim.x;
    i64 held = active[b * stride] ? seen[b * stride] + 1 : 0;
    int n = (int)(held < capacity ? held : capacity), first = part * PART;
    if (first >= n) return;
    int count = min(PART, n - first);
    int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP;
    i64 head = (i64)b * heads + h;
    __shared__ float scores[PART];
    __shared__ float gathered[GROUPS][128];
    float mine[8], other[8];
    load<T, 8>(q + head * width + lane * 8, mine);
    const T* keys = ring_k + (head * rows + first) * width + lane * 8;
#pragma unroll 4
    for (int r = group; r < PART; r += GROUPS) {
        float dot = 0;
        if (r < count) {
            load<T, 8>(keys + (i64)r * width, other);
#pragma unroll
            for (int i = 0; i < 8; ++i) dot += mine[i] * other[i];
        }
#pragma unroll
        for (int at = GROUP / 2; at > 0; at >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, at, GROUP);
        if (lane == 0) scores[r] = r < count ? dot * scale : -INFINITE;
    }
    __syncthreads();
    float score = scores[threadIdx.x];
    __shared__ float tops[THREADS / 32];
    float top = warp_max(score);
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = top;
    __syncthreads();
    top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    float weight = expf(score - top);
    scores[threadIdx.x] = weight;
    float total = block_sum(weight);
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    const T* vals = ring_v + (head * rows + first) * width + lane * 8;
#pragma unroll 4
    for (int r = group; r < PART; r += GROUPS) {
        if (r < count) {
            load<T, 8>(vals + (i64)r * width, other);
            float w = scores[r];
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] += w * other[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) gathered[group][lane * 8 + i] = sum[i];
    __syncthreads();
    float value = 0;
    for (int g = 0; g < GROUPS; ++g) value += gathered[g][threadIdx.x];
    i64 at = head * parts + part;
    values[at * width + threadIdx.x] = value;
    if (threadIdx.x == 0) {
        sums[2 * at] = top;
        sums[2 * at + 1] = total;
    }
}
extern "C" __global__ void attend_part_bf16(const bf16* q, const bf16* k, const bf16* v, const i64* seen, const i64* active,
                                            float* sums, float* values, int stride, int heads, int rows, int capacity, float scale) {
    attend_part(q, k, v, seen, active, stride, sums, values, heads, rows, capacity, scale);
}
extern "C" __global__ void attend_part_f32(const float* q, const float* k, const float* v, const i64* seen, const i64* active,
                                           float* sums, float* values, int stride, int heads, int rows, int capacity, float scale) {
    attend_part(q, k, v, seen, active, stride, sums, values, heads, rows, capacity, scale);
}

// Joins the parts of every head: out [B, H * 128]. Grid (H, B).
template <typename T>
__device__ void join_parts(const float* sums, const float* values, const i64* seen, const i64* active, i64 stride, T* out,
                           int parts, int capacity) {
    const int width = 128;
    int h = blockIdx.x, b = blockIdx.y, heads = gridDim.x;
    i64 held = active[b * stride] ? seen[b * stride] + 1 : 0;
    int n = (int)(held < capacity ? held : capacity), used = (n + PART - 1) / PART;
    i64 head = (i64)b * heads + h, first = head * parts;
    float top = -INFINITE;
    for (int p = 0; p < used; ++p) top = fmaxf(top, sums[2 * (first + p)]);
    float total = 0, value = 0;
    for (int p = 0; p < used; ++p) {
        float share = expf(sums[2 * (first + p)] - top);
        total += share * sums[2 * (first + p) + 1];
        value += share * values[(first + p) * width + threadIdx.x];
    }
    narrow(used > 0 ? value / total : 0.0f, out[head * width + threadIdx.x]);
}
extern "C" __global__ void join_parts_bf16(const float* sums, const float* values, const i64* seen, const i64* active, bf16* out,
                                           int stride, int parts, int capacity, float) {
    join_parts(sums, values, seen, active, stride, out, parts, capacity);
}
extern "C" __global__ void join_parts_f32(const float* sums, const float* values, const i64* seen, const i64* active, float* out,
                                          int stride, int parts, int capacity, float) {
    join_parts(sums, values, seen, active, stride, out, parts, capacity);
}

// Attention of step `step` of a row on the steps before it and itself; keeps its keys and values. qkv [B, 3, H, D],
// caches [B, H, S, D]. Grid (H, B), a thread an element; D at most 128.
template <typename T>
__device__ void attend_step(const T* qkv, T* cache_k, T* cache_v, T* out, int step, int steps, int width, float scale) {
    int h = blockIdx.x, b = blockIdx.y, heads = gridDim.x, i = threadIdx.x;
    i64 part = (i64)heads * width, head = (i64)b * heads + h;
    const T* from = qkv + ((i64)b * 3 * heads + h) * width;
    float q = widen(from[i]);
    T* keys = cache_k + head * steps * width;
    T* vals = cache_v + head * steps * width;
    keys[step * width + i] = from[part + i];
    vals[step * width + i] = from[2 * part + i];
    float scores[16], top = -INFINITE;
    for (int s = 0; s <= step; ++s) {
        scores[s] = block_sum(q * widen(keys[s * width + i])) * scale;
        top = fmaxf(top, scores[s]);
    }
    float total = 0, value = 0;
    for (int s = 0; s <= step; ++s) {
        float weight = expf(scores[s] - top);
        total += weight;
        value += weight * widen(vals[s * width + i]);
    }
    narrow(value / total, out[head * width + i]);
}
extern "C" __global__ void attend_step_bf16(const bf16* qkv, bf16* k, bf16* v, bf16* out, int step, int steps, int width, float scale) {
    attend_step(qkv, k, v, out, step, steps, width, scale);
}
extern "C" __global__ void attend_step_f32(const float* qkv, float* k, float* v, float* out, int step, int steps, int width, float scale) {
    attend_step(qkv, k, v, out, step, steps, width, scale);
}

// Draws an id a row: of the `k` largest logits the i-th largest with probability p and noise e_i, the one with the
// largest p / e_i; the largest logit where the temperature is not above zero. One block of 1,024 threads a row; k at most
// 1,024. Equal logits are taken in the order of their ids.
#define MOST 1024
__device__ inline unsigned order(float x) {
    unsigned bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
template <typename T>
__device__ void draw(const T* logits, const float* temperature, const float* noise, i64* out, int vocabulary, int k,
                     int temperature_stride, int noise_stride) {
    logits += (i64)blockIdx.x * vocabulary;
    noise += (i64)blockIdx.x * noise_stride;
    float heat = temperature[(i64)blockIdx.x * temperature_stride];
    if (!(heat > 0)) k = 1;
    __shared__ unsigned counts[256];
    __shared__ unsigned long long found[MOST];
    __shared__ unsigned prefix, wanted, taken, level;
    if (threadIdx.x == 0) prefix = 0, wanted = k, taken = 0, level = 0;
    // The value of the k-th largest, eight bits at a time.
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
            unsigned key = order(widen(logits[i]));
            if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(&counts[(key >> shift) & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            while (counts[digit] < wanted) wanted -= counts[digit--];
            prefix |= (unsigned)digit << shift;
        }
        __syncthreads();
    }
    // Those above it, then as many equal ones as are wanted, lowest ids first.
    for (int i = threadIdx.x; i < MOST; i += blockDim.x) found[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        unsigned key = order(widen(logits[i]));
        if (key > prefix) found[atomicAdd(&taken, 1)] = ((unsigned long long)key << 32) | (0xffffffffu - i);
    }
    __syncthreads();
    for (int from = 0; from < vocabulary && level < wanted; from += blockDim.x) {
        int i = from + threadIdx.x;
        bool equal = i < vocabulary && order(widen(logits[i])) == prefix;
        unsigned votes = __ballot_sync(0xffffffffu, equal);
        if ((threadIdx.x & 31) == 0) counts[threadIdx.x >> 5] = __popc(votes);
        __syncthreads();
        unsigned before = level;
        for (int w = 0; w < (int)(threadIdx.x >> 5); ++w) before += counts[w];
        before += __popc(votes & ((1u << (threadIdx.x & 31)) - 1));
        if (equal && before < wanted) found[taken + before] = ((unsigned long long)prefix << 32) | (0xffffffffu - i);
        __syncthreads();
        if (threadIdx.x == 0)
            for (int w = 0; w < (int)(blockDim.x >> 5); ++w) level += counts[w];
        __syncthreads();
    }
    int size = 1;
    while (size < k) size <<= 1;
    for (int run = 2; run <= size; run <<= 1)
        for (int step = run >> 1; step > 0; step >>= 1) {
            __syncthreads();
            int i = threadIdx.x, j = i ^ step;
            if (i < size && j > i) {
                bool falling = (i & run) == 0;
                unsigned long long a = found[i], b = found[j];
                if ((a < b) == falling) found[i] = b, found[j] = a;
            }
        }
    __syncthreads();
    // The race: a thread a rank, then the best of all, lowest rank first.
    __shared__ float rates[MOST];
    int i = threadIdx.x;
    float best = -1;
    if (i < k) {
        unsigned key = (unsigned)(found[i] >> 32), first = (unsigned)(found[0] >> 32);
        float x = __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
        float m = __uint_as_float(first & 0x80000000u ? first & 0x7fffffffu : ~first);
        best = heat > 0 ? expf(x / heat - m / heat) / noise[i] : 1.0f;
    }
    rates[i] = best;
    __syncthreads();
    if (i < 32) {
        float rate = -1;
        int rank = 0;
        for (int r = i; r < k; r += 32)
            if (rates[r] > rate) rate = rates[r], rank = r;
        for (int at = 16; at > 0; at >>= 1) {
            float other = __shfl_xor_sync(0xffffffffu, rate, at);
            int other_rank = __shfl_xor_sync(0xffffffffu, rank, at);
            if (other > rate || (other == rate && other_rank < rank)) rate = other, rank = other_rank;
        }
        if (i == 0) out[blockIdx.x] = 0xffffffffu - (unsigned)(found[rank] & 0xffffffffu);
    }
}
extern "C" __global__ void draw_bf16(const bf16* logits, const float* t, const float* noise, i64* out, int vocabulary, int k, int ts, int ns, float) {
    draw(logits, t, noise, out, vocabulary, k, ts, ns);
}
extern "C" __global__ void draw_f32(const float* logits, const float* t, const float* noise, i64* out, int vocabulary, int k, int ts, int ns, float) {
    draw(logits, t, noise, out, vocabulary, k, ts, ns);
}
