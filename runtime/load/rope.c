// Rope frequencies and the table of their cosines and sines.
//
//   f_i = theta^(-2 i / d), d = rot_dim, i in 0 .. d / 2 - 1; s = factor; Lo = original_max
//   linear    f_i / s
//   dynamic   theta' = theta (s n / L - (s - 1))^(d / (d - 2)), L = max_position,
//             n = max(max_pos, L)
//   llama3    by wave length w = 2 pi / f_i: below Lo / high f_i, above Lo / low f_i / s, between
//             them (1 - t) f_i / s + t f_i with t = (Lo / w - low) / (high - low)
//   yarn      f_i / s times ramp_i plus f_i times (1 - ramp_i); ramp rises from 0 to 1 between the
//             pairs that turn beta_fast and beta_slow times in Lo positions
//   longrope  f_i / ext_i, ext = long_factor if max_pos > Lo else short_factor
//
// Source: modeling_rope_utils of transformers 5; "YaRN" (2309.00071); "LongRoPE" (2402.13753).
#include <math.h>

#include "base/fail.h"
#include "base/mem.h"
#include "load/config.h"

#define TWO_PI 6.283185307179586476925286766559

// Positions between two exact angles; those between come by adding angles.
#define STRIDE 64

static double max_of(double a, double b) {
    return a > b ? a : b;
}

static double min_of(double a, double b) {
    return a < b ? a : b;
}

static double llama3_frequency(const pgd_load_rope *r, double f) {
    double wave = TWO_PI / f;
    if (wave < r->original_max / r->high_freq_factor) {
        return f;
    }
    if (wave > r->original_max / r->low_freq_factor) {
        return f / r->factor;
    }
    double t =
        (r->original_max / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - t) * f / r->factor + t * f;
}

// The pair (as a real number) that turns `turns` times in Lo positions.
static double yarn_pair(const pgd_load_rope *r, double turns) {
    return r->rot_dim * log(r->original_max / (turns * TWO_PI)) / (2 * log(r->theta));
}

static double yarn_frequency(const pgd_load_rope *r, double f, int32_t i) {
    double low = yarn_pair(r, r->beta_fast);
    double high = yarn_pair(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = max_of(low, 0);
    high = min_of(high, r->rot_dim - 1);
    if (low == high) {
        high += 0.001;
    }
    double ramp = min_of(max_of((i - low) / (high - low), 0), 1);
    return f / r->factor * ramp + f * (1 - ramp);
}

static double yarn_scale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double attention_factor(const pgd_load_rope *r) {
    if (r->attention_factor > 0) {
        return r->attention_factor;
    }
    if (r->kind == PGD_ROPE_YARN) {
        return r->mscale > 0 && r->mscale_all_dim > 0
                   ? yarn_scale(r->factor, r->mscale) / yarn_scale(r->factor, r->mscale_all_dim)
                   : yarn_scale(r->factor, 1);
    }
    if (r->kind == PGD_ROPE_LONGROPE && r->factor > 1) {
        return sqrt(1 + log(r->factor) / log(r->original_max));
    }
    return 1;
}

static double theta_of(const pgd_load_config *c, int32_t max_pos) {
    const pgd_load_rope *r = &c->rope;
    if (r->kind != PGD_ROPE_DYNAMIC) {
        return r->theta;
    }
    double n = max_of(max_pos, c->max_position);
    double d = r->rot_dim;
    return r->theta * pow(r->factor * n / c->max_position - (r->factor - 1), d / (d - 2));
}

pgd_status pgd_load_rope_frequencies(const pgd_load_config *c, int32_t max_pos, double *inv_freq,
                                     double *out_attention_factor) {
    const pgd_load_rope *r = &c->rope;
    if (max_pos < 1 || max_pos > PGD_LOAD_MAX_POSITION) {
        return pgd_fail(PGD_INVALID, "rope table for %d positions; 1 to %d are allowed",
                        (int)max_pos, PGD_LOAD_MAX_POSITION);
    }
    double theta = theta_of(c, max_pos);
    const double *ext = max_pos > r->original_max ? r->long_factor : r->short_factor;
    for (int32_t i = 0; i < r->rot_dim / 2; i++) {
        double f = pow(theta, -2.0 * i / r->rot_dim);
        switch (r->kind) {
        case PGD_ROPE_LINEAR: f = f / r->factor; break;
        case PGD_ROPE_LLAMA3: f = llama3_frequency(r, f); break;
        case PGD_ROPE_YARN: f = yarn_frequency(r, f, i); break;
        case PGD_ROPE_LONGROPE: f = f / ext[i]; break;
        default: break;
        }
        inv_freq[i] = f;
    }
    *out_attention_factor = attention_factor(r);
    return PGD_OK;
}

// Writes `rows` positions from `from` on; near holds cos and sin of 0 .. STRIDE - 1.
static void write_rows(const double *inv_freq, const double *near, int64_t n_pairs, double scale,
                       int64_t from, int64_t rows, double *far, float *out) {
    for (int64_t i = 0; i < n_pairs; i++) {
        double angle = (double)from * inv_freq[i];
        far[2 * i] = scale * cos(angle);
        far[2 * i + 1] = scale * sin(angle);
    }
    for (int64_t row = 0; row < rows; row++) {
        const double *turn = near + row * n_pairs * 2;
        for (int64_t i = 0; i < n_pairs * 2; i += 2) {
            *out++ = (float)(far[i] * turn[i] - far[i + 1] * turn[i + 1]);
            *out++ = (float)(far[i + 1] * turn[i] + far[i] * turn[i + 1]);
        }
    }
}

pgd_status pgd_load_rope_table(const pgd_load_config *c, int32_t max_pos, float *out) {
    int64_t n_pairs = c->rope.rot_dim / 2;
    double scale = 0;
    size_t n_doubles = (size_t)n_pairs * (1 + 2 + 2 * STRIDE);
    double *inv_freq = pgd_mem_alloc(n_doubles, sizeof(double));
    if (inv_freq == NULL) {
        return PGD_MEM_FAIL("making the rope table", n_doubles * sizeof(double));
    }
    double *far = inv_freq + n_pairs;
    double *near = far + 2 * n_pairs;
    pgd_status status = pgd_load_rope_frequencies(c, max_pos, inv_freq, &scale);
    if (status != PGD_OK) {
        goto done;
    }
    for (int64_t row = 0; row < STRIDE; row++) {
        for (int64_t i = 0; i < n_pairs; i++) {
            near[(row * n_pairs + i) * 2] = cos((double)row * inv_freq[i]);
            near[(row * n_pairs + i) * 2 + 1] = sin((double)row * inv_freq[i]);
        }
    }
    for (int64_t from = 0; from < max_pos; from += STRIDE) {
        int64_t rows = max_pos - from < STRIDE ? max_pos - from : STRIDE;
        write_rows(inv_freq, near, n_pairs, scale, from, rows, far, out + from * n_pairs * 2);
    }
done:
    pgd_mem_free(inv_freq);
    return status;
}
