/* A small libnvidia-ml for tests. It answers from a description: the file that the environment variable
 * FAKE_NVML names, or else DESCRIPTION, given when it is compiled. src/nvml/answers.rs documents the form of a
 * description. Every call reads the file again if another file has replaced it. After a call failed because of
 * `init N`, all calls fail until nvmlInit_v2 succeeds, as with a driver that was unloaded and loaded again.
 *
 * What a line does not tell is "not supported". Symbols that a driver lacks are renamed when compiling
 * (-DnvmlFoo=lacks_nvmlFoo). Numbers of states, types, fields and errors are those of nvml.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { GPUS = 64, TEXT = 96, LINKS = 18, SLICES = 7, FIELD_REPLAYS = 161, FIELD_CRC = 163, FIELD_SPEED = 164 };

typedef unsigned char *handle; /* &handles[gpu * 16], or for slice s: &handles[gpu * 16 + 1 + s] */
static unsigned char handles[GPUS * 16];
static int gpu_of(handle h) { return (int)(h - handles) / 16; }
static int slice_of(handle h) { return (int)(h - handles) % 16 - 1; }

static char *description;
static struct stat read_from;
static int is_stopped;

/* Earlier texts stay where they are: another thread may still read them. */
static int refresh(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    FILE *file;
    char *text;
    if (!path) path = DESCRIPTION;
    if (stat(path, &now)) return 999;
    if (description && now.st_ino == read_from.st_ino && now.st_size == read_from.st_size &&
        now.st_mtim.tv_sec == read_from.st_mtim.tv_sec && now.st_mtim.tv_nsec == read_from.st_mtim.tv_nsec)
        return OK;
    if (!(file = fopen(path, "r"))) return 999;
    text = calloc(1, 1 << 18);
    text[fread(text, 1, (1 << 18) - 1, file)] = 0;
    fclose(file);
    read_from = now;
    description = text;
    return OK;
}

/* What follows the key in the next line that begins with it; after `from`, or in the first line where that is 0. */
static char *line_of(const char *head, char *from) {
    size_t length = strlen(head);
    for (char *line = from ? strchr(from, '\n') : description; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, head, length) && strchr(" \n", line[length])) return line + length;
    }
    return 0;
}

/* Why no call can be answered: OK, or an error. */
static int stopped(void) {
    char *init = line_of("init", 0);
    if (init && atoi(init)) {
        is_stopped = 1;
        return atoi(init);
    }
    return is_stopped ? UNINITIALIZED : OK;
}

static int ready(void) {
    int code = refresh();
    return code == OK ? stopped() : code;
}

/* The error that the line `gpuN lost` gives a device; OK without one. */
static int lost(int gpu) {
    char head[32];
    snprintf(head, sizeof head, "gpu%d lost", gpu);
    char *line = line_of(head, 0);
    return !line ? OK : atoi(line) && *line == ' ' ? atoi(line) : IS_LOST;
}

/* Field `at` of the line that begins with a key, the last one to the end of the line: its text, or the error
 * that it stands for. */
static int field(char to[TEXT], int at, int is_last, const char *key, ...) {
    char head[64];
    va_list args;
    va_start(args, key);
    vsnprintf(head, sizeof head, key, args);
    va_end(args);
    int gpu, code = ready();
    if (code == OK && sscanf(head, "gpu%d ", &gpu) == 1 && !strstr(head, " at")) code = lost(gpu) ? IS_LOST : OK;
    if (code != OK) return code;
    char *from = line_of(head, 0);
    if (!from || *from != ' ') return NOT_SUPPORTED;
    for (from++; at > 0; at--) from += strcspn(from, " \n") + 1;
    snprintf(to, TEXT, "%.*s", (int)strcspn(from, is_last ? "\n" : " \n"), from);
    return *to == '!' ? atoi(to + 1) : OK;
}

static int number(unsigned *to, int at, const char *key, int a, int b) {
    char text[TEXT];
    int code = field(text, at, 0, key, a, b);
    if (code == OK) *to = (unsigned)strtoul(text, 0, 10);
    return code;
}

/* The value of `name=`, or part `at` of it, in a line `gpuN vitals`. */
static int vital(handle h, unsigned long long *to, const char *name, int at) {
    char head[32], word[32];
    int code = ready();
    if (code != OK || lost(gpu_of(h))) return code != OK ? code : IS_LOST;
    snprintf(head, sizeof head, "gpu%d vitals", gpu_of(h));
    snprintf(word, sizeof word, " %s=", name);
    for (char *line = line_of(head, 0); line; line = line_of(head, line)) {
        char *value = strstr(line, word);
        if (!value || value > line + strcspn(line, "\n")) continue;
        for (value += strlen(word); at > 0; at--) value += strcspn(value, ",\n") + 1;
        if (*value == '!') return atoi(value + 1);
        *to = strtoull(value, 0, 0);
        return OK;
    }
    return NOT_SUPPORTED;
}
static int vital_32(handle h, unsigned *to, const char *name, int at) {
    unsigned long long value = 0;
    int code = vital(h, &value, name, at);
    if (code == OK) *to = (unsigned)value;
    return code;
}

static int words(char *to, unsigned room, int at, int is_last, const char *key, int a, int b) {
    char text[TEXT];
    int code = field(text, at, is_last, key, a, b);
    if (code == OK) snprintf(to, room, "%s", text);
    return code;
}

int nvmlInit_v2(void) {
    is_stopped = 0;
    return ready();
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlSystemGetDriverVersion(char *to, unsigned n) { return words(to, n, 0, 1, "driver", 0, 0); }

int nvmlDeviceGetCount_v2(unsigned *n) {
    char text[TEXT];
    int code = ready();
    if (code != OK) return code;
    for (*n = 0; *n < GPUS && field(text, 0, 1, "gpu%d at", *n) != NOT_SUPPORTED; ++*n) {}
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle *to) {
    char text[TEXT];
    int code = field(text, 0, 1, "gpu%d at", i);
    *to = &handles[i * 16];
    return code == OK ? lost((int)i) : code;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *to) {
    char text[TEXT];
    int code = ready();
    if (code != OK) return code;
    for (unsigned i = 0; i < GPUS && field(text, 0, 1, "gpu%d at", i) != NOT_SUPPORTED; i++)
        if (!strcasecmp(text, bus_id)) return nvmlDeviceGetHandleByIndex_v2(i, to);
    return NOT_FOUND;
}
int nvmlDeviceGetName(handle h, char *to, unsigned n) {
    if (slice_of(h) >= 0) return words(to, n, 7, 1, "gpu%d slice%d", gpu_of(h), slice_of(h));
    return words(to, n, 0, 1, "gpu%d name", gpu_of(h), 0);
}
int nvmlDeviceGetUUID(handle h, char *to, unsigned n) {
    if (slice_of(h) >= 0) return words(to, n, 6, 0, "gpu%d slice%d", gpu_of(h), slice_of(h));
    return words(to, n, 0, 1, "gpu%d uuid", gpu_of(h), 0);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(handle h, struct pci *p) {
    memset(p, 0, sizeof *p);
    return words(p->bus_id, sizeof p->bus_id, 0, 1, "gpu%d at", gpu_of(h), 0);
}
static int memory(handle h, unsigned long long *total, unsigned long long *used) {
    char text[TEXT];
    int code = field(text, 0, 1, "gpu%d memory", gpu_of(h));
    if (code == OK) *total = strtoull(text, 0, 10);
    return code == OK ? vital(h, used, "memory", 0) == IS_LOST ? IS_LOST : OK : code;
}
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(handle h, struct memory *m) { return memory(h, &m->total, &m->used); }
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(handle h, struct memory_v2 *m) {
    return m->version == (sizeof *m | 2 << 24) ? memory(h, &m->total, &m->used) : VERSION_MISMATCH;
}
int nvmlDeviceGetMemoryAffinity(handle h, unsigned n, unsigned long *set, unsigned scope) {
    char text[TEXT];
    int code = field(text, 0, 1, "gpu%d nodes", gpu_of(h));
    if (n != 1 || scope != 0) return INVALID;
    if (code == OK) *set = strtoul(text, 0, 16);
    return code;
}
int nvmlDeviceGetPerformanceState(handle h, unsigned *to) { return number(to, 0, "gpu%d power", gpu_of(h), 0); }
int nvmlDeviceGetCurrPcieLinkGeneration(handle h, unsigned *to) { return number(to, 0, "gpu%d pcie", gpu_of(h), 0); }
int nvmlDeviceGetMaxPcieLinkGeneration(handle h, unsigned *to) { return number(to, 1, "gpu%d pcie", gpu_of(h), 0); }
int nvmlDeviceGetCurrPcieLinkWidth(handle h, unsigned *to) { return number(to, 2, "gpu%d pcie", gpu_of(h), 0); }
int nvmlDeviceGetMaxPcieLinkWidth(handle h, unsigned *to) { return number(to, 3, "gpu%d pcie", gpu_of(h), 0); }

/* MIG */
int nvmlDeviceGetMigMode(handle h, unsigned *now, unsigned *next) {
    int code = number(now, 0, "gpu%d mig", gpu_of(h), 0);
    *next = *now;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *to) {
    unsigned mode;
    *to = SLICES;
    return number(&mode, 0, "gpu%d mig", gpu_of(h), 0);
}
int nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned i, handle *to) {
    char text[TEXT];
    *to = h + 1 + i;
    return field(text, 0, 1, "gpu%d slice%d", gpu_of(h), i) == NOT_SUPPORTED ? NOT_FOUND : OK;
}
static int slice(handle h, unsigned *to, int at) { return number(to, at, "gpu%d slice%d", gpu_of(h), slice_of(h)); }
int nvmlDeviceGetGpuInstanceId(handle h, unsigned *to) { return slice(h, to, 0); }
int nvmlDeviceGetComputeInstanceId(handle h, unsigned *to) { return slice(h, to, 1); }
struct attributes { unsigned counts[8]; unsigned long long memory_mib; };
int nvmlDeviceGetAttributes_v2(handle h, struct attributes *a) {
    unsigned mib = 0;
    int code = slice(h, &mib, 5);
    a->memory_mib = mib;
    return code;
}
int nvmlDeviceGetGpuInstanceById(handle h, unsigned id, handle *to) {
    unsigned found;
    for (*to = h + 1; *to <= h + SLICES; ++*to)
        if (slice(*to, &found, 0) == OK && found == id) return slice(*to, &found, 2);
    return NOT_FOUND;
}
struct instance { handle device; unsigned id, profile, start, size; };
int nvmlGpuInstanceGetInfo(handle h, struct instance *i) {
    slice(h, &i->start, 3);
    slice(h, &i->size, 4);
    return slice(h, &i->profile, 2);
}

/* The fabric between hosts. */
struct fabric { unsigned char uuid[16]; int status; unsigned clique; unsigned char state; };
static int fabric(handle h, struct fabric *f) {
    unsigned state = 0, status = 0;
    char text[TEXT], *at = text;
    int code = number(&state, 1, "gpu%d fabric", gpu_of(h), 0);
    if (code != OK) return code;
    number(&status, 2, "gpu%d fabric", gpu_of(h), 0);
    number(&f->clique, 3, "gpu%d fabric", gpu_of(h), 0);
    field(text, 6, 1, "gpu%d fabric", gpu_of(h));
    for (int i = 0; i < 16; i++, at += 2) {
        at += *at == '-';
        sscanf(at, "%2hhx", &f->uuid[i]);
    }
    f->status = (int)status;
    f->state = (unsigned char)state;
    return OK;
}
int nvmlDeviceGetGpuFabricInfo(handle h, struct fabric *f) { return fabric(h, f); }
struct fabric_v2 { unsigned version; struct fabric f; unsigned health; };
struct fabric_v3 { unsigned version; struct fabric f; unsigned health; unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(handle h, struct fabric_v3 *f) {
    unsigned known = 0, summary = 0, asked = f->version >> 24;
    int code = number(&known, 0, "gpu%d fabric", gpu_of(h), 0);
    if (code != OK) return code;
    if (asked > known || (f->version & 0xffffff) != (asked == 3 ? sizeof *f : sizeof(struct fabric_v2)))
        return VERSION_MISMATCH;
    number(&f->health, 4, "gpu%d fabric", gpu_of(h), 0);
    number(&summary, 5, "gpu%d fabric", gpu_of(h), 0);
    if (asked == 3) f->summary = (unsigned char)summary;
    return fabric(h, &f->f);
}

/* NVLink */
static int link(handle h, unsigned i, int at, unsigned *to) {
    return i >= LINKS ? INVALID : number(to, at, "gpu%d link%d", gpu_of(h), (int)i);
}
int nvmlDeviceGetNvLinkState(handle h, unsigned i, unsigned *to) { return link(h, i, 0, to); }
int nvmlDeviceGetNvLinkRemoteDeviceType(handle h, unsigned i, unsigned *to) { return link(h, i, 1, to); }
int nvmlDeviceGetNvLinkVersion(handle h, unsigned i, unsigned *to) { return link(h, i, 2, to); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle h, unsigned i, struct pci *p) {
    memset(p, 0, sizeof *p);
    return words(p->bus_id, sizeof p->bus_id, 4, 1, "gpu%d link%d", gpu_of(h), (int)i);
}
static int link_errors(handle h, unsigned i, int at, unsigned *to) {
    return i >= LINKS ? INVALID : number(to, at, "gpu%d errors%d", gpu_of(h), (int)i);
}
int nvmlDeviceGetNvLinkErrorCounter(handle h, unsigned i, int counter, unsigned long long *to) {
    unsigned value = 0;
    int code = counter > 2 ? INVALID : link_errors(h, i, counter, &value);
    if (code == OK) *to = value;
    return code;
}
struct value { unsigned field, scope; long long time, latency; unsigned type; int code; unsigned long long value; };
int nvmlDeviceGetFieldValues(handle h, int n, struct value *v) {
    for (; n > 0; n--, v++) {
        unsigned value = 0;
        v->code = NOT_SUPPORTED;
        if (v->field == FIELD_SPEED) v->code = link(h, v->scope, 3, &value);
        if (v->field >= FIELD_REPLAYS && v->field <= FIELD_CRC)
            v->code = link_errors(h, v->scope, (int)(v->field - FIELD_REPLAYS), &value);
        v->value = value;
    }
    return OK;
}

/* Vitals */
struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(handle h, struct rates *to) { return vital_32(h, &to->gpu, "busy", 0); }
int nvmlDeviceGetTemperature(handle h, int sensor, unsigned *to) {
    return sensor ? INVALID : vital_32(h, to, "temperature", 0);
}
int nvmlDeviceGetPersistenceMode(handle h, unsigned *to) { return vital_32(h, to, "persistence", 0); }
int nvmlDeviceGetPowerUsage(handle h, unsigned *to) { return vital_32(h, to, "power", 0); }
int nvmlDeviceGetTotalEnergyConsumption(handle h, unsigned long long *to) { return vital(h, to, "energy", 0); }
int nvmlDeviceGetClockInfo(handle h, int clock, unsigned *to) { return clock == 1 ? vital_32(h, to, "sm", 0) : INVALID; }
int nvmlDeviceGetCurrentClocksEventReasons(handle h, unsigned long long *to) { return vital(h, to, "throttle", 0); }
int nvmlDeviceGetCurrentClocksThrottleReasons(handle h, unsigned long long *to) { return vital(h, to, "throttle", 0); }
int nvmlDeviceGetTotalEccErrors(handle h, int is_uncorrected, int is_aggregate, unsigned long long *to) {
    return is_aggregate ? INVALID : vital(h, to, "ecc", is_uncorrected);
}
int nvmlDeviceGetRemappedRows(handle h, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    int code = vital_32(h, correctable, "rows", 0);
    if (code != OK) return code;
    vital_32(h, uncorrectable, "rows", 1);
    vital_32(h, pending, "rows", 2);
    return vital_32(h, failed, "rows", 3);
}
int nvmlDeviceGetRetiredPagesPendingStatus(handle h, unsigned *to) { return vital_32(h, to, "retirement", 0); }
int nvmlDeviceGetPcieReplayCounter(handle h, unsigned *to) { return vital_32(h, to, "replays", 0); }

/* Pairs */
static int pair(handle a, handle b, int at, unsigned *to) { return number(to, at, "gpu%d-gpu%d", gpu_of(a), gpu_of(b)); }
int nvmlDeviceGetTopologyCommonAncestor(handle a, handle b, unsigned *to) { return pair(a, b, 0, to); }
int nvmlDeviceGetP2PStatus(handle a, handle b, unsigned what, unsigned *to) {
    return what > 2 ? INVALID : pair(a, b, 1 + (int)what, to);
}
