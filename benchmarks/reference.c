/* Sweeps over a grid in plain C, to compare the solvers' sweeps with.
 *
 * The same algorithms on the same numbers in double precision, with the arrays that fit a grid of 4
 * neighbours: they are found by adding to an index, and every pixel has k labels. Pixel (r, c) has
 * number r * width + c. Terms are weight * [a != b] (cap = 0) or weight * min(|a - b|, cap). Unlike
 * the solvers, the code neither measures changes of messages nor skips settled pixels.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int height, width, k;
    const double *unary;
    const double *right; /* weight of the edge from (r, c) to (r, c + 1), row by row */
    const double *down;  /* weight of the edge from (r, c) to (r + 1, c) */
    double cap;
} Grid;

static double least(int k, const double *restrict v) {
    double best = v[0];
    for (int a = 1; a < k; a++)
        best = v[a] < best ? v[a] : best;
    return best;
}

/* The first label of least value. */
static long label_of(int k, const double *restrict v) {
    double low = v[0];
    long best = 0;
    for (int a = 1; a < k; a++) {
        best = v[a] < low ? a : best;
        low = v[a] < low ? v[a] : low;
    }
    return best;
}

/* The min-sum message through one term, normalised to minimum zero; returns the subtracted minimum.
 * A distance transform in two passes for truncated linear terms. */
static double send(int k, double weight, double cap, double *restrict from, double *restrict to) {
    double best = least(k, from);
    if (cap == 0.0) {
        for (int a = 0; a < k; a++) {
            double v = from[a] - best;
            to[a] = v < weight ? v : weight;
        }
        return best;
    }
    for (int a = 1; a < k; a++) {
        double v = from[a - 1] + weight;
        from[a] = v < from[a] ? v : from[a];
    }
    for (int a = k - 2; a >= 0; a--) {
        double v = from[a + 1] + weight;
        from[a] = v < from[a] ? v : from[a];
    }
    double limit = cap * weight;
    for (int a = 0; a < k; a++) {
        double v = from[a] - best;
        to[a] = v < limit ? v : limit;
    }
    return best;
}

static void add(int k, const double *restrict message, double *restrict sum) {
    for (int a = 0; a < k; a++)
        sum[a] += message[a];
}

/* Min-sum belief propagation, one pass in the order of the pixels or back: every pixel adds up its
 * messages, notes its best label, and sends to the two neighbours that come after it.
 * messages[0..3]: those that arrive from the left, the right, above and below. */
void bp_pass(const Grid *g, int forward, double *restrict const messages[4],
             long *restrict labels) {
    int k = g->k, w = g->width;
    double sum[k], cavity[k];
    long n = (long)g->height * w;
    for (long step = 0; step < n; step++) {
        long i = forward ? step : n - 1 - step;
        long r = i / w, c = i % w;
        memcpy(sum, g->unary + i * k, k * sizeof(double));
        for (int s = 0; s < 4; s++)
            add(k, messages[s] + i * k, sum);
        labels[i] = label_of(k, sum);
        if (forward) {
            if (c + 1 < w) {
                for (int a = 0; a < k; a++) cavity[a] = sum[a] - messages[1][i * k + a];
                send(k, g->right[r * (w - 1) + c], g->cap, cavity, messages[0] + (i + 1) * k);
            }
            if (r + 1 < g->height) {
                for (int a = 0; a < k; a++) cavity[a] = sum[a] - messages[3][i * k + a];
                send(k, g->down[i], g->cap, cavity, messages[2] + (i + w) * k);
            }
        } else {
            if (c > 0) {
                for (int a = 0; a < k; a++) cavity[a] = sum[a] - messages[0][i * k + a];
                send(k, g->right[r * (w - 1) + c - 1], g->cap, cavity, messages[1] + (i - 1) * k);
            }
            if (r > 0) {
                for (int a = 0; a < k; a++) cavity[a] = sum[a] - messages[2][i * k + a];
                send(k, g->down[i - w], g->cap, cavity, messages[3] + (i - w) * k);
            }
        }
    }
}

/* The same at temperature t > 0, for Potts terms: k exponentials and k logarithms a message. */
void soft_pass(const Grid *g, double t, int forward, double *restrict const messages[4],
               long *restrict labels) {
    int k = g->k, w = g->width;
    double sum[k], cavity[k];
    long n = (long)g->height * w;
    for (long step = 0; step < n; step++) {
        long i = forward ? step : n - 1 - step;
        long r = i / w, c = i % w;
        memcpy(sum, g->unary + i * k, k * sizeof(double));
        for (int s = 0; s < 4; s++)
            add(k, messages[s] + i * k, sum);
        labels[i] = label_of(k, sum);
        for (int s = 0; s < 2; s++) {
            int there;
            double weight, *to;
            if (s == 0) {
                if (forward ? c + 1 == w : c == 0) continue;
                there = forward ? 1 : 0;
                weight = g->right[r * (w - 1) + c - !forward];
                to = messages[1 - there] + (forward ? i + 1 : i - 1) * k;
            } else {
                if (forward ? r + 1 == g->height : r == 0) continue;
                there = forward ? 3 : 2;
                weight = g->down[forward ? i : i - w];
                to = messages[5 - there] + (forward ? i + w : i - w) * k;
            }
            for (int a = 0; a < k; a++) cavity[a] = sum[a] - messages[there][i * k + a];
            double low = least(k, cavity), total = 0.0, q = exp(-weight / t);
            for (int a = 0; a < k; a++) {
                cavity[a] = exp((low - cavity[a]) / t);
                total += cavity[a];
            }
            for (int a = 0; a < k; a++)
                to[a] = -t * log(q * total + (1.0 - q) * cavity[a]);
            low = least(k, to);
            for (int a = 0; a < k; a++) to[a] -= low;
        }
    }
}

/* TRW-S (Kolmogorov 2006), one pass; returns its bound. One message an edge, to the end visited
 * later: right + i * k to or from the pixel right of i, down + i * k for the one below. */
double trws_pass(const Grid *g, int forward, double *restrict right, double *restrict down) {
    int k = g->k, w = g->width, h = g->height;
    double sum[k], cavity[k], bound = 0.0;
    long n = (long)h * w;
    for (long step = 0; step < n; step++) {
        long i = forward ? step : n - 1 - step;
        long r = i / w, c = i % w;
        int ahead = (c + 1 < w) + (r + 1 < h), behind = (c > 0) + (r > 0);
        int chains = ahead > behind ? ahead : behind;
        int go = forward ? ahead : behind;
        memcpy(sum, g->unary + i * k, k * sizeof(double));
        if (c + 1 < w) add(k, right + i * k, sum);
        if (r + 1 < h) add(k, down + i * k, sum);
        if (c > 0) add(k, right + (i - 1) * k, sum);
        if (r > 0) add(k, down + (i - w) * k, sum);
        double share = 1.0 / chains;
        if (go < chains) bound += (chains - go) * share * least(k, sum);
        for (int s = 0; s < 2; s++) {
            double weight, *message;
            if (s == 0) {
                if (forward ? c + 1 == w : c == 0) continue;
                weight = g->right[r * (w - 1) + c - !forward];
                message = right + (forward ? i : i - 1) * k;
            } else {
                if (forward ? r + 1 == h : r == 0) continue;
                weight = g->down[forward ? i : i - w];
                message = down + (forward ? i : i - w) * k;
            }
            for (int a = 0; a < k; a++) cavity[a] = share * sum[a] - message[a];
            bound += send(k, weight, g->cap, cavity, message);
        }
    }
    return bound;
}

/* Iterated conditional modes, one pass over all pixels; returns the number of changes. */
long icm_pass(const Grid *g, long *restrict labels) {
    int k = g->k, w = g->width;
    double cost[k];
    long changes = 0, n = (long)g->height * w;
    for (long i = 0; i < n; i++) {
        long r = i / w, c = i % w, neighbour[4];
        double weight[4];
        int d = 0;
        if (c + 1 < w) neighbour[d] = i + 1, weight[d++] = g->right[r * (w - 1) + c];
        if (c > 0) neighbour[d] = i - 1, weight[d++] = g->right[r * (w - 1) + c - 1];
        if (r + 1 < g->height) neighbour[d] = i + w, weight[d++] = g->down[i];
        if (r > 0) neighbour[d] = i - w, weight[d++] = g->down[i - w];
        memcpy(cost, g->unary + i * k, k * sizeof(double));
        for (int s = 0; s < d; s++) {
            long b = labels[neighbour[s]];
            if (g->cap == 0.0) {
                cost[b] -= weight[s];
            } else {
                for (int a = 0; a < k; a++) {
                    double apart = abs(a - (int)b);
                    cost[a] += weight[s] * (apart < g->cap ? apart : g->cap);
                }
            }
        }
        long best = label_of(k, cost);
        if (cost[best] < cost[labels[i]]) {
            changes++;
            labels[i] = best;
        }
    }
    return changes;
}
