// The shape of each matrix unit, for its kernels (KM_UNIT_... is defined) and for their host.
//
// A wave (AMD) or sub-group (Intel) multiplies KM_W fragments of the weight by fragments of x, 16 k
// at a time. A panel of the weight lies in memory as [k][8 columns], 16 bytes a k:
//
//            lanes  fragments of the weight               rows of x  chips
//   mfma     64     c: column c of 16 panels, lane % 16   16         gfx90a, gfx942
//   wmma     32     c: the same                           16         gfx11..
//   wmma12   32     c: the same                           16         gfx12..
//   dpas16   16     i: the 8 columns of panel i           16         Xe HPC, Xe2
//   dpas8    8      i: the same                           8          Xe HPG
#ifndef PGD_KERNELS_MATRIX_UNITS_H
#define PGD_KERNELS_MATRIX_UNITS_H

// X(unit, lanes, panels of a wave, items of a group of gemm_few, of gemm_many)
#define PGD_MATRIX_UNITS(X)    \
    X(mfma, 64, 16, 64, 256)   \
    X(wmma, 32, 16, 64, 256)   \
    X(wmma12, 32, 16, 64, 256) \
    X(dpas16, 16, 4, 16, 64)   \
    X(dpas8, 8, 4, 16, 64)

// KM_A, KM_B   words of a lane in a fragment of the weight, of x
// KM_N         sums of a lane
// KM_PER       k that a lane reads of a panel in a step of 16; KM_FIRST: the first of them
// KM_OWN(o)    panel of the wave whose 8 columns are among the sums of a lane, o < KM_OWNED
// KM_X_FEW, KM_X_MANY  fragments of x of a wave; KM_AHEAD_..: steps whose loads go out together
#if defined(KM_UNIT_MFMA)
#define KM_LANES      64
#define KM_A          2
#define KM_B          2
#define KM_N          4
#define KM_PER        4
#define KM_FIRST      (KM_LANE / 16 * 4)
#define KM_OWN(o)     (KM_LANE / 16 * 4 + (o))
#define KM_X_MANY     2
#define KM_AHEAD_FEW  4
#define KM_AHEAD_MANY 2
#elif defined(KM_UNIT_WMMA)
#define KM_LANES      32
#define KM_A          8
#define KM_B          8
#define KM_N          8
#define KM_PER        16
#define KM_FIRST      0
#define KM_OWN(o)     ((o)*2 + KM_LANE / 16)
#define KM_X_MANY     1
#define KM_AHEAD_FEW  1
#define KM_AHEAD_MANY 1
#elif defined(KM_UNIT_WMMA12)
#define KM_LANES      32
#define KM_A          4
#define KM_B          4
#define KM_N          8
#define KM_PER        8
#define KM_FIRST      (KM_LANE / 16 * 8)
#define KM_OWN(o)     (KM_LANE / 16 * 8 + (o))
#define KM_X_MANY     1
#define KM_AHEAD_FEW  2
#define KM_AHEAD_MANY 1
#elif defined(KM_UNIT_DPAS16)
#define KM_LANES      16
#define KM_A          4
#define KM_PER        1
#define KM_FIRST      KM_LANE
#define KM_X_FEW      1
#define KM_X_MANY     2
#define KM_AHEAD_FEW  2
#define KM_AHEAD_MANY 1
#elif defined(KM_UNIT_DPAS8)
#define KM_LANES      8
#define KM_A          8
#define KM_PER        2
#define KM_FIRST      (KM_LANE * 2)
#define KM_X_FEW      2
#define KM_X_MANY     2
#define KM_AHEAD_FEW  2
#define KM_AHEAD_MANY 1
#endif

#if defined(KM_UNIT_DPAS16) || defined(KM_UNIT_DPAS8)
#define KM_PANELS         4
#define KM_W              4
#define KM_B              8
#define KM_N              8
#define KM_ROWS           KM_LANES // of x in a fragment
#define KM_SOURCES        4        // panels that a lane reads, and which
#define KM_SOURCE(s)      (s)
#define KM_OWNED          4
#define KM_OWN(o)         (o)
#define KM_AT(s, x, c, o) (s)[o][x][c] // column c of own panel o among the sums
#define KM_ITEMS_FEW      16
#define KM_ITEMS_MANY     64
#else
#define KM_PANELS         16
#define KM_W              8
#define KM_ROWS           16
#define KM_SOURCES        1
#define KM_SOURCE(s)      (KM_LANE & 15)
#define KM_OWNED          KM_N
#define KM_AT(s, x, c, o) (s)[c][x][o]
#define KM_X_FEW          1
#define KM_ITEMS_FEW      64
#define KM_ITEMS_MANY     256
#endif

#define KM_LANE  (K_ITEM & (KM_LANES - 1))
#define KM_WAVE  (K_ITEM / KM_LANES)
#define KM_LOADS (KM_SOURCES * KM_PER)
#define KM_ROW   (KM_LANE & (KM_ROWS - 1))

#endif
