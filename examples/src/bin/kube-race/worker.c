/* One rank of data-parallel training, as Horovod would run it: a phase that computes, then an all-reduce of gradients.
 *
 * usage: worker COMPUTE_MS [NAME BYTES ITERATIONS STEPS ...]
 *
 * If COMPUTE_MS is not 0, it first finds how many iterations fill that time while all ranks compute. The ring visits the
 * ranks of a node one after the other, as NCCL's does: pods of a node have addresses of one /24. Rank 0 prints JSON, one
 * object a line.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 96, RING_ROUNDS = 6, RING_BYTES = 4 << 20 };

static float a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
static MPI_Comm ranks;
static int rank, size;

/* Products of matrices, one after the other. */
static void compute(long iterations) {
    for (long i = 0; i < iterations; i++)
        for (int y = 0; y < SIDE; y++)
            for (int k = 0; k < SIDE; k++)
                for (int x = 0; x < SIDE; x++)
                    c[y][x] += a[y][k] * b[k][x];
}

/* Without keeping a core busy that another rank computes on. */
static void meet(void) {
    MPI_Request request;
    MPI_Ibarrier(ranks, &request);
    for (int done = 0; !done;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done) usleep(200);
    }
}

static double timed_compute(long iterations) {
    double began = MPI_Wtime();
    compute(iterations);
    meet();
    return MPI_Wtime() - began;
}

/* The address on the network of pods: all but its last byte is the node's. */
static int node_of(void) {
    struct ifaddrs *all, *one;
    int node = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && strcmp(one->ifa_name, "eth0") == 0)
            node = (int)(ntohl(((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr) >> 8 & 0xffff);
    freeifaddrs(all);
    return node;
}

/* What each rank sends to the next while all do, in MB/s: what a ring has of the links. */
static double ring_mb_per_s(void) {
    char *out = calloc(1, RING_BYTES), *in = calloc(1, RING_BYTES);
    double sum = 0;
    for (int round = 0; round < RING_ROUNDS; round++) {
        meet();
        double began = MPI_Wtime(), took, slowest;
        MPI_Sendrecv(out, RING_BYTES, MPI_BYTE, (rank + 1) % size, 0, in, RING_BYTES, MPI_BYTE,
                     (rank + size - 1) % size, 0, ranks, MPI_STATUS_IGNORE);
        took = MPI_Wtime() - began;
        MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, ranks);
        /* The first opens the connections. */
        if (round > 0) sum += slowest;
    }
    free(out);
    free(in);
    return RING_BYTES * (RING_ROUNDS - 1) / sum / 1e6;
}

static void train(const char *name, long bytes, long iterations, int steps) {
    int count = (int)(bytes / (long)sizeof(float));
    float *gradients = calloc((size_t)count, sizeof(float)), *sum = calloc((size_t)count, sizeof(float));
    int right = 1;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < count; i++) gradients[i] = (float)(rank + 1);
        meet();
        double computed = timed_compute(iterations), began = MPI_Wtime();
        MPI_Allreduce(gradients, sum, count, MPI_FLOAT, MPI_SUM, ranks);
        meet();
        double reduced = MPI_Wtime() - began;
        for (int i = 0; i < count; i++) right &= sum[i] == (float)(size * (size + 1) / 2);
        if (rank == 0) {
            printf("{\"model\":\"%s\",\"compute_s\":%.6f,\"all_reduce_s\":%.6f}\n", name, computed, reduced);
            fflush(stdout);
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, ranks);
    if (!right) {
        fprintf(stderr, "the sum of gradients is wrong\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(gradients);
    free(sum);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_split(MPI_COMM_WORLD, 0, node_of(), &ranks);
    MPI_Comm_rank(ranks, &rank);
    MPI_Comm_size(ranks, &size);
    if (argc < 2 || (argc - 2) % 4 != 0) {
        fprintf(stderr, "usage: %s COMPUTE_MS [NAME BYTES ITERATIONS STEPS ...]\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int at = 0; at < SIDE * SIDE; at++) a[at / SIDE][at % SIDE] = b[at / SIDE][at % SIDE] = 0.5F;
    long iterations = 0;
    if (atof(argv[1]) > 0) {
        timed_compute(100);
        long probe = (long)(100 * 0.2 / timed_compute(100)) + 1;
        double took = 1e9;
        /* The machine's noise only ever makes it slower. */
        for (int round = 0; round < 8; round++) {
            double once = timed_compute(probe);
            if (once < took) took = once;
        }
        iterations = (long)((double)probe * atof(argv[1]) / 1e3 / took) + 1;
        MPI_Bcast(&iterations, 1, MPI_LONG, 0, ranks);
    }
    double ring = ring_mb_per_s();
    if (rank == 0) {
        printf("{\"ranks\":%d,\"iterations\":%ld,\"ring_mb_per_s\":%.3f}\n", size, iterations, ring);
        fflush(stdout);
    }
    for (int at = 2; at < argc; at += 4)
        train(argv[at], atol(argv[at + 1]), atol(argv[at + 2]), atoi(argv[at + 3]));
    MPI_Finalize();
    return 0;
}
