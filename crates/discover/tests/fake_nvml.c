/* A small libnvidia-ml for tests: answers from the file DESCRIPTION, given when it is compiled.
 *
 *   init CODE                           what nvmlInit_v2 returns
 *   gpu BUS_ID UUID BYTES MIG NAME      the next device; NAME has no blanks
 *   links COUNT ACTIVE TYPE BUS_ID      COUNT more links of that device: state, remote type, remote address
 *   level A B LEVEL                     common ancestor of two devices on PCIe
 *
 * Numbers of states, types, levels and errors are those of nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, GPUS = 64, LINKS = 36 };

struct link { int active, type; char bus[32]; };
struct gpu { char bus[32], uuid[96], name[96]; unsigned long long bytes; unsigned mig; int links; struct link link[LINKS]; };
static struct gpu gpus[GPUS];
static int count, level[GPUS][GPUS];

int nvmlInit_v2(void) {
    int code = OK;
    char line[512];
    FILE *file = fopen(DESCRIPTION, "r");
    count = 0;
    memset(gpus, 0, sizeof gpus);
    memset(level, 0, sizeof level);
    if (!file) return 999;
    while (fgets(line, sizeof line, file)) {
        struct gpu *g = &gpus[count < GPUS ? count : GPUS - 1];
        struct link l;
        int n, a, b, v;
        if (sscanf(line, "init %d", &v) == 1) code = v;
        if (sscanf(line, "gpu %31s %95s %llu %u %95s", g->bus, g->uuid, &g->bytes, &g->mig, g->name) == 5) count++;
        if (count && sscanf(line, "links %d %d %d %31s", &n, &l.active, &l.type, l.bus) == 4)
            for (g = &gpus[count - 1]; n > 0 && g->links < LINKS; n--) g->link[g->links++] = l;
        if (sscanf(line, "level %d %d %d", &a, &b, &v) == 3) level[a][b] = level[b][a] = v;
    }
    fclose(file);
    return code;
}

int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)count; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **g) {
    if ((int)i >= count) return INVALID;
    *g = &gpus[i];
    return (*g)->bytes == 0 ? 15 : OK; /* 15: the device is lost */
}
int nvmlDeviceGetName(struct gpu *g, char *to, unsigned n) { snprintf(to, n, "%s", g->name); return OK; }
int nvmlDeviceGetUUID(struct gpu *g, char *to, unsigned n) { snprintf(to, n, "%s", g->uuid); return OK; }

struct pci { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(struct gpu *g, struct pci *p) {
    memset(p, 0, sizeof *p);
    strcpy(p->bus_id, g->bus);
    return OK;
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(struct gpu *g, struct memory *m) { m->total = g->bytes; return OK; }
int nvmlDeviceGetMigMode(struct gpu *g, unsigned *now, unsigned *next) { *now = *next = g->mig; return OK; }

int nvmlDeviceGetNvLinkState(struct gpu *g, unsigned i, unsigned *active) {
    if (g->links == 0) return NOT_SUPPORTED;
    if ((int)i >= g->links) return INVALID;
    *active = (unsigned)g->link[i].active;
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *g, unsigned i, struct pci *p) {
    if ((int)i >= g->links) return INVALID;
    memset(p, 0, sizeof *p);
    strcpy(p->bus_id, g->link[i].bus);
    return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *g, unsigned i, unsigned *type) {
    if ((int)i >= g->links) return INVALID;
    *type = (unsigned)g->link[i].type;
    return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(struct gpu *a, struct gpu *b, unsigned *at) {
    *at = (unsigned)level[a - gpus][b - gpus];
    return OK;
}
