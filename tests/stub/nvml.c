/*
 * A libnvidia-ml.so.1 without a GPU: the stable NVML ABI as far as the watchdog (and pynvml below it) calls it.
 *
 * NVML_STUB_FILE names the text file that says what the node looks like; it is looked at on each call (one stat) and
 * read again when it changed. NVML_STUB_READ=once reads it at nvmlInit alone, and `always` on each call, which costs
 * what a driver's call may cost. NVML_STUB_CALLS names a file that holds the number of calls of each function. All are
 * taken from the environment at nvmlInit. One statement a line, `word key=value ...`; `name=` takes the rest of its
 * line. tests/stub/__init__.py writes the file and describes the keys:
 *
 *   driver version=550.54.15
 *   gpu uuid= says= total= reserved= base= used= unified= null= mig= max_migs= virtual= util= moved= vary= name=
 *   mig parent= uuid= slot= gi= ci= profile= profile_id= start= total= reserved= base= null=
 *   process gpu= list=compute|graphics|mps pid= used=N|na holds= gi= ci= ghost= protected= util= encoder=
 *   return call=NAME|* code= gpu=          delay call=NAME|* ms= gpu=      (* is every call but nvmlShutdown)
 *   samples gpu= of=gpu|memory|encoder|decoder type= percents=N,N,...
 *   size_query_succeeds    sampled at_us=    pad_samples    grow by= calls=    free_delay ms=    handles epoch=
 *   device keep=no|open|mapped name=PATH
 *
 * `device` is a file that is opened with the first session, as the real library opens /dev/nvidiactl, and closed with
 * the last one; or kept, or mapped and kept so. It is not closed by an exec either. Its path is taken at nvmlInit.
 *
 * A card without util= reports no utilisation. With vary=1 each call finds another one, of the card and of its processes:
 * one of them per cent more, up to five. Processes with util= have a sample, even of 0; the others have none. Of the
 * card there is one sample of each type, unless `samples` has others: six a second, up to now; a card with such a line
 * does not support the types that have none. `sampled` is the time of the newest samples, which is now without it. With
 * pad_samples entries of PID 0 and an impossible figure fill the list up to 100 (nvtop#110).
 *
 * A process that is no ghost is listed while it lives, and for free_delay after its death was noticed: dead means that
 * its pidfd polls readable, so a zombie is dead. Symbols cannot be taken away at run time, so what depends on a symbol
 * being there is a variant of its own:
 *
 *   ENTRY32        drivers 535.43 to 535.86: `_v3` process lists have 32-byte entries
 *   NO_LISTS_V3    no `_v3` process lists         NO_LISTS_V2   none with instance ids, only the 16-byte ones
 *   NO_MEMORY_V2   no nvmlDeviceGetMemoryInfo_v2  NO_MPS        no MPS list    NO_MIG   no MIG functions
 *   NO_CONF        no nvmlDeviceGetConfComputeMemSizeInfo
 *   NO_DETAIL      no nvmlDeviceGetRunningProcessDetailList
 *   NO_UTIL_INFO   no nvmlDeviceGetProcessesUtilizationInfo     NO_UTIL    no utilisation of processes at all
 *   WITH_RESERVED  what _v2 counts as used includes what is reserved, as drivers up to 525 document it
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};
#define NO_INSTANCE 0xFFFFFFFFu
#define NOT_AVAILABLE UINT64_MAX

#define CALLS(X)                                                                                                       \
    X(nvmlInitWithFlags) X(nvmlShutdown) X(nvmlSystemGetDriverVersion) X(nvmlSystemGetNVMLVersion)                     \
    X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByUUID) X(nvmlDeviceGetUUID)        \
    X(nvmlDeviceGetName) X(nvmlDeviceGetIndex) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetMemoryInfo)                  \
    X(nvmlDeviceGetMemoryInfo_v2)                                                                                      \
    X(nvmlDeviceGetComputeRunningProcesses) X(nvmlDeviceGetComputeRunningProcesses_v2)                                 \
    X(nvmlDeviceGetComputeRunningProcesses_v3)                                                                         \
    X(nvmlDeviceGetGraphicsRunningProcesses) X(nvmlDeviceGetGraphicsRunningProcesses_v2)                               \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3)                                                                        \
    X(nvmlDeviceGetMPSComputeRunningProcesses) X(nvmlDeviceGetMPSComputeRunningProcesses_v2)                           \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3)                                                                      \
    X(nvmlDeviceGetMigMode) X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex)                   \
    X(nvmlDeviceIsMigDeviceHandle) X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId)                     \
    X(nvmlDeviceGetGpuInstanceById) X(nvmlGpuInstanceGetInfo)                                                          \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) X(nvmlDeviceGetAttributes_v2)                                      \
    X(nvmlDeviceGetConfComputeMemSizeInfo) X(nvmlDeviceGetRunningProcessDetailList)                                    \
    X(nvmlDeviceGetVirtualizationMode) X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetProcessesUtilizationInfo)       \
    X(nvmlDeviceGetProcessUtilization) X(nvmlDeviceGetSamples)
#define ENUM(name) CALL_##name,
#define TEXT(name) #name,
enum { CALLS(ENUM) CALL_COUNT, EVERY_CALL };
static const char *const call_names[] = {CALLS(TEXT)};

enum { COMPUTE, GRAPHICS, MPS, LISTS };
static const char *const list_names[] = {"compute", "graphics", "mps"};
/* In the order of nvmlSamplingType_t, where the first one is power. */
enum { SAMPLES_GPU = 1, SAMPLES_MEMORY, SAMPLES_ENCODER, SAMPLES_DECODER, SAMPLE_TYPES };
static const char *const sample_names[] = {"", "gpu", "memory", "encoder", "decoder"};

#define MAX_DEVICES 512
#define MAX_PROCESSES 32768
#define MAX_RULES 512
#define NAME_SIZE 96

struct device {
    char uuid[NAME_SIZE], says[NAME_SIZE], name[NAME_SIZE], profile[NAME_SIZE];
    uint64_t total, reserved, base, used;
    int has_used, unified, null_handle, mig, max_migs, virtualization;
    int utilization, moved, varies; /* -1: it reports no utilisation */
    int has_samples; /* those below, and no others */
    struct {
        int given, count, value_type;
        unsigned *percents;
    } samples[SAMPLE_TYPES];
    int parent, slot; /* of a MIG device; -1 for a card */
    unsigned gi, ci;
    int has_place;
    unsigned profile_id, start;
    int handle_slot;
    int first[LISTS + 1], count[LISTS + 1]; /* ranges of `processes`; the last one is every holder of memory */
};
struct process {
    int device, list, pid, life;
    uint64_t used, holds, protected_memory;
    unsigned gi, ci;
    int utilization; /* -1: it has no sample */
    unsigned encoder;
};
struct rule {
    int call, has_code, code;
    double delay_ms;
    char gpu[NAME_SIZE];
};
/* What is remembered of a PID from one reading of the file to the next. */
struct life {
    int pid, fd, dead, wanted;
    double died_ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized, in_flight, shutdowns_during_call, null_handles;
static char path[4096];
static struct stat seen;
static enum { CHANGED, ONCE, ALWAYS } reads;
/* As many records as there are functions; NVML_STUB_CALLS maps them from a file, for readers outside the process. */
static struct counter {
    char name[56];
    uint64_t calls;
} own_counters[CALL_COUNT], *counters = own_counters;

static char driver_version[80];
static struct device devices[MAX_DEVICES];
static int device_count, cards[MAX_DEVICES], card_count;
static struct process *processes;
static int process_count;
static struct rule rules[MAX_RULES];
static int rule_count, size_query_succeeds, pad_samples, grow_by, grow_calls, grown[MAX_DEVICES][LISTS];
static unsigned epoch;
static double free_delay_ms;
static uint64_t sampled_at_us; /* 0: now */
static char device_path[4096], device_kept[8];
static int device_fd = -1;
static struct life *lives;
static int life_count;
static struct pollfd *poll_set;
static int *polled;
static char handle_uuids[4 * MAX_DEVICES][NAME_SIZE]; /* handles outlive a reading: they go by UUID */
static int handle_count;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* Sleeps to an absolute time, so that no signal cuts it short. */
static void hold_up(double ms) {
    struct timespec until;
    if (ms <= 0) return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)(ms * 1e6);
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

/* ---- reading the file ---- */

static void complain(const char *what, const char *line) {
    fprintf(stderr, "nvml stub: %s: %s in: %s\n", path, what, line);
    abort();
}

static const char *value(const char *line, const char *key) {
    size_t size = strlen(key);
    for (const char *at = strchr(line, ' '); at != NULL; at = strchr(at + 1, ' '))
        if (strncmp(at + 1, key, size) == 0 && at[1 + size] == '=') return at + 2 + size;
        else if (strncmp(at + 1, "name=", 5) == 0) return NULL; /* takes the rest of the line */
    return NULL;
}

static uint64_t number(const char *line, const char *key, uint64_t otherwise) {
    const char *text = value(line, key);
    if (text == NULL) return otherwise;
    return strncmp(text, "na", 2) == 0 ? NOT_AVAILABLE : strtoull(text, NULL, 0);
}

static double decimal(const char *line, const char *key) {
    const char *text = value(line, key);
    return text == NULL ? 0.0 : strtod(text, NULL);
}

static void word(const char *line, const char *key, char *into, int size) {
    const char *text = value(line, key);
    int length = text == NULL ? 0 : (int)(strcmp(key, "name") == 0 ? strlen(text) : strcspn(text, " "));
    snprintf(into, (size_t)size, "%.*s", length, text == NULL ? "" : text);
}

static int find_device(const char *uuid) {
    for (int i = 0; i < device_count; i++)
        if (strcmp(devices[i].uuid, uuid) == 0) return i;
    return -1;
}

static int find_said(const char *uuid) {
    for (int i = 0; i < device_count; i++)
        if (strcmp(devices[i].says, uuid) == 0) return i;
    return -1;
}

static int find_handle_slot(const char *uuid) {
    for (int i = 0; i < handle_count; i++)
        if (strcmp(handle_uuids[i], uuid) == 0) return i;
    if (handle_count == 4 * MAX_DEVICES) complain("too many devices over time", uuid);
    snprintf(handle_uuids[handle_count], NAME_SIZE, "%s", uuid);
    return handle_count++;
}

static struct device *new_device(const char *line) {
    if (device_count == MAX_DEVICES) complain("too many devices", line);
    struct device *device = &devices[device_count++];
    memset(device, 0, sizeof *device);
    word(line, "uuid", device->uuid, NAME_SIZE);
    word(line, value(line, "says") == NULL ? "uuid" : "says", device->says, NAME_SIZE);
    device->total = number(line, "total", 0);
    device->reserved = number(line, "reserved", 0);
    device->base = number(line, "base", 0);
    device->has_used = value(line, "used") != NULL;
    device->used = number(line, "used", 0);
    device->unified = (int)number(line, "unified", 0);
    device->null_handle = (int)number(line, "null", 0);
    device->utilization = -1;
    device->handle_slot = find_handle_slot(device->uuid);
    device->parent = -1;
    device->gi = device->ci = NO_INSTANCE;
    return device;
}

static void read_gpu(const char *line) {
    struct device *device = new_device(line);
    word(line, "name", device->name, NAME_SIZE);
    device->mig = value(line, "mig") == NULL ? -1 : (int)number(line, "mig", 0); /* -1: not capable */
    device->max_migs = (int)number(line, "max_migs", 7);
    device->virtualization = value(line, "virtual") == NULL ? -1 : (int)number(line, "virtual", 0); /* -1: not told */
    device->utilization = value(line, "util") == NULL ? -1 : (int)number(line, "util", 0);
    device->moved = (int)number(line, "moved", 0);
    device->varies = (int)number(line, "vary", 0);
    cards[card_count++] = device_count - 1;
}

static void read_mig(const char *line) {
    char parent[NAME_SIZE];
    word(line, "parent", parent, NAME_SIZE);
    int card = find_device(parent);
    if (card < 0) complain("no such parent", line);
    struct device *device = new_device(line);
    device->parent = card;
    device->slot = (int)number(line, "slot", 0);
    device->gi = (unsigned)number(line, "gi", 0);
    device->ci = (unsigned)number(line, "ci", 0);
    word(line, "profile", device->profile, NAME_SIZE);
    device->has_place = value(line, "start") != NULL;
    device->profile_id = (unsigned)number(line, "profile_id", 0);
    device->start = (unsigned)number(line, "start", 0);
    snprintf(device->name, NAME_SIZE, "%.40s MIG %.40s", devices[card].name, device->profile);
}

/* The entry of a PID, with a pidfd on its process. Zombies can be opened and poll readable at once. */
static int find_life(int pid) {
    int at = 0;
    while (at < life_count && lives[at].pid != pid) at++;
    struct life *life = &lives[at];
    if (at < life_count && !life->dead) {
        life->wanted = 1;
        return at;
    }
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int gone = fd < 0 && (errno == ESRCH || errno == EINVAL);
    struct pollfd probe = {.fd = fd, .events = POLLIN};
    if (fd >= 0 && poll(&probe, 1, 0) == 1) gone = 1;
    if (at < life_count && gone) { /* still the dead one: its death time stays */
        if (fd >= 0) close(fd);
        life->wanted = 1;
        return at;
    }
    if (at == life_count) life_count++;
    else if (life->fd >= 0) close(life->fd);
    *life = (struct life){.pid = pid, .fd = fd, .dead = gone, .wanted = 1, .died_ms = -1e18};
    return at;
}

static void read_process(const char *line) {
    char word_[NAME_SIZE];
    if (process_count == MAX_PROCESSES) complain("too many processes", line);
    struct process *process = &processes[process_count++];
    word(line, "gpu", word_, NAME_SIZE);
    process->device = find_device(word_);
    if (process->device < 0) complain("no such gpu", line);
    word(line, "list", word_, NAME_SIZE);
    for (process->list = 0; process->list < LISTS; process->list++)
        if (strcmp(word_, list_names[process->list]) == 0) break;
    if (process->list == LISTS) complain("no such list", line);
    process->pid = (int)(uint32_t)number(line, "pid", 0);
    process->used = number(line, "used", 0);
    process->holds = number(line, "holds", process->used == NOT_AVAILABLE ? 0 : process->used);
    process->protected_memory = number(line, "protected", 0);
    process->gi = (unsigned)number(line, "gi", NO_INSTANCE);
    process->ci = (unsigned)number(line, "ci", NO_INSTANCE);
    process->utilization = value(line, "util") == NULL ? -1 : (int)number(line, "util", 0);
    process->encoder = (unsigned)number(line, "encoder", 0);
    process->life = number(line, "ghost", 0) ? -1 : find_life(process->pid);
}

static void read_samples(const char *line) {
    char word_[NAME_SIZE];
    word(line, "gpu", word_, NAME_SIZE);
    int card = find_device(word_), type = SAMPLES_GPU;
    if (card < 0) complain("no such gpu", line);
    devices[card].has_samples = 1;
    if (value(line, "of") == NULL) return;
    word(line, "of", word_, NAME_SIZE);
    while (type < SAMPLE_TYPES && strcmp(word_, sample_names[type]) != 0) type++;
    if (type == SAMPLE_TYPES) complain("no such type", line);
    const char *text = value(line, "percents");
    unsigned *percents = calloc(strlen(text) + 1, sizeof *percents);
    int count = 0;
    while (*text != '\0' && *text != ' ') {
        char *end;
        percents[count++] = (unsigned)strtoul(text, &end, 10);
        if (end == text) complain("not a number", line);
        text = *end == ',' ? end + 1 : end;
    }
    devices[card].samples[type].given = 1;
    devices[card].samples[type].count = count;
    devices[card].samples[type].value_type = (int)number(line, "type", 1);
    devices[card].samples[type].percents = percents;
}

static void read_rule(const char *line, int has_code) {
    char name[NAME_SIZE];
    if (rule_count == MAX_RULES) complain("too many rules", line);
    struct rule *rule = &rules[rule_count++];
    word(line, "call", name, NAME_SIZE);
    word(line, "gpu", rule->gpu, NAME_SIZE);
    rule->has_code = has_code;
    rule->code = (int)number(line, "code", 0);
    rule->delay_ms = decimal(line, "ms");
    for (rule->call = 0; rule->call < CALL_COUNT; rule->call++)
        if (strcmp(call_names[rule->call], name) == 0) return;
    rule->call = EVERY_CALL;
    if (strcmp(name, "*") != 0) complain("no such call", line);
}

static void read_line(const char *line) {
    size_t size = strcspn(line, " ");
#define IS(text) (size == strlen(text) && strncmp(line, text, size) == 0)
    if (*line == '\0' || *line == '#') return;
    if (IS("driver")) word(line, "version", driver_version, sizeof driver_version);
    else if (IS("gpu")) read_gpu(line);
    else if (IS("mig")) read_mig(line);
    else if (IS("process")) read_process(line);
    else if (IS("return")) read_rule(line, 1);
    else if (IS("delay")) read_rule(line, 0);
    else if (IS("size_query_succeeds")) size_query_succeeds = 1;
    else if (IS("samples")) read_samples(line);
    else if (IS("sampled")) sampled_at_us = number(line, "at_us", 0);
    else if (IS("pad_samples")) pad_samples = 1;
    else if (IS("grow")) grow_by = (int)number(line, "by", 0), grow_calls = (int)number(line, "calls", 1);
    else if (IS("free_delay")) free_delay_ms = decimal(line, "ms");
    else if (IS("handles")) epoch = (unsigned)number(line, "epoch", 0);
    else if (IS("device")) {
        word(line, "keep", device_kept, sizeof device_kept);
        word(line, "name", device_path, sizeof device_path);
    }
    else complain("unknown statement", line);
#undef IS
}

static int by_place(const void *left, const void *right) {
    const struct process *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->list != b->list) return a->list < b->list ? -1 : 1;
    return 0;
}

static int by_holder(const void *left, const void *right) {
    const struct process *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->pid != b->pid) return a->pid < b->pid ? -1 : 1;
    if (a->gi != b->gi) return a->gi < b->gi ? -1 : 1;
    if (a->ci != b->ci) return a->ci < b->ci ? -1 : 1;
    return a->holds > b->holds ? -1 : a->holds < b->holds; /* the largest first */
}

/* Sorts what was read into ranges per list, and appends every holder of memory once: one PID in several lists holds
 * its memory only once. */
static void arrange(void) {
    struct process *holders = processes + process_count;
    int kept = 0;
    memcpy(holders, processes, (size_t)process_count * sizeof *processes);
    qsort(processes, (size_t)process_count, sizeof *processes, by_place);
    qsort(holders, (size_t)process_count, sizeof *holders, by_holder);
    for (int i = 0; i < process_count; i++) {
        struct process *before = &holders[kept - 1], *holder = &holders[i];
        if (kept && before->device == holder->device && before->pid == holder->pid && before->gi == holder->gi &&
            before->ci == holder->ci)
            continue;
        holders[kept] = *holder;
        holders[kept++].list = LISTS;
    }
    for (int i = 0; i < process_count + kept; i++) {
        struct device *device = &devices[processes[i].device];
        if (device->count[processes[i].list]++ == 0) device->first[processes[i].list] = i;
    }
}

/* Lets go of the PIDs that the reading before this one did not name. */
static void forget_unwanted(void) {
    int kept = 0;
    for (int i = 0; i < life_count; i++) {
        if (lives[i].wanted) lives[kept++] = lives[i];
        else if (lives[i].fd >= 0) close(lives[i].fd);
    }
    for (int i = 0; i < kept; i++) lives[i].wanted = 0;
    life_count = kept;
}

static void load(void) {
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    for (int i = 0; i < device_count; i++)
        for (int type = 0; type < SAMPLE_TYPES; type++) free(devices[i].samples[type].percents);
    device_count = card_count = process_count = rule_count = 0;
    size_query_succeeds = pad_samples = grow_by = grow_calls = 0;
    free_delay_ms = 0;
    sampled_at_us = 0;
    epoch = 0;
    device_path[0] = device_kept[0] = '\0';
    memset(grown, 0, sizeof grown);
    snprintf(driver_version, sizeof driver_version, "550.54.15");
    forget_unwanted();
    if (file == NULL) {
        complain(strerror(errno), "(the file that NVML_STUB_FILE names)");
        return;
    }
    while (getline(&line, &size, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        read_line(line);
    }
    free(line);
    fclose(file);
    arrange();
}

static void look_again(void) {
    struct stat found;
    if (reads == ONCE) return;
    if (stat(path, &found) != 0) return; /* between two files of a writer that does not rename */
    if (reads != ALWAYS && found.st_ino == seen.st_ino && found.st_size == seen.st_size && found.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        found.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    seen = found;
    load();
}

/* ---- a call: counted, delayed, failed as the file says; the lock is held from a successful begin to end ---- */

static struct device *device_of(void *handle) {
    uintptr_t bits = (uintptr_t)handle;
    if (bits >> 40 != 0x5A || ((bits >> 16) & 0xFFFF) != epoch) return NULL;
    int slot = (int)(bits & 0xFFFF) - 1;
    for (int i = 0; i < device_count; i++)
        if (devices[i].handle_slot == slot) return &devices[i];
    return NULL;
}

static int handle_is_ours(void *handle) {
    return (uintptr_t)handle >> 40 == 0x5A && (((uintptr_t)handle >> 16) & 0xFFFF) == epoch;
}

static void *handle_for(const struct device *device) {
    if (device->null_handle) return NULL;
    return (void *)((uintptr_t)0x5A << 40 | (uintptr_t)epoch << 16 | (uintptr_t)(device->handle_slot + 1));
}

static int rule_for(int call, const struct device *device, double *delay_ms) {
    int code = OK;
    for (int i = 0; i < rule_count; i++) {
        const struct rule *rule = &rules[i];
        if (rule->call != call && (rule->call != EVERY_CALL || call == CALL_nvmlShutdown)) continue;
        if (rule->gpu[0] && (device == NULL || strcmp(rule->gpu, device->uuid) != 0)) continue;
        if (!rule->has_code) *delay_ms = rule->delay_ms;
        else if (code == OK) code = rule->code;
    }
    return code;
}

static int finish(int code) {
    in_flight--;
    pthread_mutex_unlock(&lock);
    return code;
}

/* Begins a call about `device` (NULL: about none in particular). On any code but OK the call is over. */
static int proceed(int call, const struct device *device) {
    double delay_ms = 0;
    int code = rule_for(call, device, &delay_ms);
    counters[call].calls++;
    in_flight++;
    if (delay_ms > 0) {
        pthread_mutex_unlock(&lock);
        hold_up(delay_ms);
        pthread_mutex_lock(&lock);
    }
    return code == OK ? OK : finish(code);
}

static int begin(int call) {
    pthread_mutex_lock(&lock);
    if (!initialized) {
        pthread_mutex_unlock(&lock);
        return UNINITIALIZED;
    }
    look_again();
    return proceed(call, NULL);
}

/* Begins a call about the device of a handle. A handle of a card that left is a lost GPU; any other one is invalid. */
static int begin_device(int call, void *handle, struct device **device) {
    pthread_mutex_lock(&lock);
    if (!initialized) {
        pthread_mutex_unlock(&lock);
        return UNINITIALIZED;
    }
    look_again();
    if (handle == NULL) null_handles++; /* the real library has crashed on one */
    int code = proceed(call, device_of(handle));
    if (code != OK) return code;
    *device = device_of(handle); /* the file may have changed during the delay */
    if (*device == NULL) return finish(handle_is_ours(handle) ? GPU_IS_LOST : INVALID_ARGUMENT);
    return OK;
}

#define BEGIN(name)                                                                                                    \
    int code_ = begin(CALL_##name);                                                                                    \
    if (code_ != OK) return code_
#define BEGIN_DEVICE(name)                                                                                             \
    struct device *device;                                                                                             \
    int code_ = begin_device(CALL_##name, handle, &device);                                                            \
    if (code_ != OK) return code_

/* ---- the session ---- */

static void open_device(void) {
    if (device_path[0] == '\0' || device_fd >= 0) return;
    device_fd = open(device_path, O_RDWR);
    if (device_fd < 0) complain(strerror(errno), device_path);
    if (strcmp(device_kept, "mapped") == 0 &&
        mmap(NULL, 1, PROT_READ, MAP_SHARED, device_fd, 0) == MAP_FAILED)
        complain(strerror(errno), device_path);
}

static void close_device(void) {
    if (device_fd < 0 || strcmp(device_kept, "open") == 0) return;
    close(device_fd);
    device_fd = -1;
}

static void share_counters(void) {
    const char *file = getenv("NVML_STUB_CALLS");
    if (file == NULL || counters != own_counters) return;
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof own_counters) != 0) complain(strerror(errno), file);
    counters = mmap(NULL, sizeof own_counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counters == MAP_FAILED) complain(strerror(errno), file);
    close(fd);
    for (int i = 0; i < CALL_COUNT; i++) snprintf(counters[i].name, sizeof counters[i].name, "%s", call_names[i]);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *file = getenv("NVML_STUB_FILE"), *when = getenv("NVML_STUB_READ");
    pthread_mutex_lock(&lock);
    if (processes == NULL) {
        processes = calloc(2 * MAX_PROCESSES, sizeof *processes);
        lives = calloc(MAX_PROCESSES, sizeof *lives);
        poll_set = calloc(MAX_PROCESSES, sizeof *poll_set);
        polled = calloc(MAX_PROCESSES, sizeof *polled);
    }
    snprintf(path, sizeof path, "%s", file == NULL ? "" : file);
    if (file == NULL) complain("is not set", "NVML_STUB_FILE");
    reads = CHANGED;
    memset(&seen, 0, sizeof seen);
    look_again();
    reads = when == NULL ? CHANGED : strcmp(when, "once") == 0 ? ONCE : strcmp(when, "always") == 0 ? ALWAYS : CHANGED;
    share_counters();
    open_device();
    int code = proceed(CALL_nvmlInitWithFlags, NULL);
    if (code != OK) {
        if (!initialized) close_device();
        return code;
    }
    initialized++;
    return finish(OK);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    BEGIN(nvmlShutdown);
    if (in_flight > 1) shutdowns_during_call++;
    if (--initialized == 0) close_device();
    return finish(OK);
}

const char *nvmlErrorString(int code) {
    static const char *const texts[] = {
        "The operation was successful", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "The operating system has blocked the request", "Driver/library version mismatch",
        "In use by another client", "Insufficient Memory", "No data", "vGPU operation with ECC not supported",
        "Insufficient resources", "Frequency not supported", "Argument version mismatch", "Deprecated",
        "Not ready", "GPU not found", "Invalid state", "Reset type not supported"};
    if (code < 0 || code >= (int)(sizeof texts / sizeof *texts)) return "Unknown Error";
    return texts[code];
}

static int give_text(const char *text, char *into, unsigned size) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return OK;
}

int nvmlSystemGetDriverVersion(char *into, unsigned size) {
    BEGIN(nvmlSystemGetDriverVersion);
    return finish(give_text(driver_version, into, size));
}

int nvmlSystemGetNVMLVersion(char *into, unsigned size) {
    BEGIN(nvmlSystemGetNVMLVersion);
    return finish(give_text("12.550.54.15", into, size));
}

/* ---- devices ---- */

int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN(nvmlDeviceGetCount_v2);
    *count = (unsigned)card_count;
    return finish(OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    pthread_mutex_lock(&lock);
    if (!initialized) {
        pthread_mutex_unlock(&lock);
        return UNINITIALIZED;
    }
    look_again();
    struct device *device = index < (unsigned)card_count ? &devices[cards[index]] : NULL;
    int code = proceed(CALL_nvmlDeviceGetHandleByIndex_v2, device);
    if (code != OK) return code;
    if (index >= (unsigned)card_count) return finish(INVALID_ARGUMENT);
    *handle = handle_for(&devices[cards[index]]);
    return finish(OK);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    pthread_mutex_lock(&lock);
    if (!initialized) {
        pthread_mutex_unlock(&lock);
        return UNINITIALIZED;
    }
    look_again();
    int at = find_said(uuid);
    int code = proceed(CALL_nvmlDeviceGetHandleByUUID, at < 0 ? NULL : &devices[at]);
    if (code != OK) return code;
    at = find_said(uuid);
    if (at < 0) return finish(NOT_FOUND);
    *handle = handle_for(&devices[at]);
    return finish(OK);
}

int nvmlDeviceGetUUID(void *handle, char *into, unsigned size) {
    BEGIN_DEVICE(nvmlDeviceGetUUID);
    return finish(give_text(device->says, into, size));
}

int nvmlDeviceGetName(void *handle, char *into, unsigned size) {
    BEGIN_DEVICE(nvmlDeviceGetName);
    return finish(give_text(device->name, into, size));
}

static int index_of(const struct device *device, unsigned *index) {
    for (int i = 0; i < card_count; i++)
        if (&devices[cards[i]] == device) return *index = (unsigned)i, OK;
    return *index = (unsigned)device->slot, OK;
}

int nvmlDeviceGetIndex(void *handle, unsigned *index) {
    BEGIN_DEVICE(nvmlDeviceGetIndex);
    return finish(index_of(device, index));
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) {
    BEGIN_DEVICE(nvmlDeviceGetMinorNumber);
    return finish(device->parent >= 0 ? NOT_SUPPORTED : index_of(device, minor));
}

/* ---- processes and memory ---- */

/* One poll over the processes of a range that were alive when last looked at. */
static void notice_deaths(int first, int count) {
    int waiting = 0;
    for (int i = first; i < first + count; i++) {
        struct life *life = processes[i].life < 0 ? NULL : &lives[processes[i].life];
        if (life == NULL || life->dead) continue;
        if (life->fd < 0) { /* no pidfd to be had: the next best */
            life->dead = kill(life->pid, 0) != 0 && errno == ESRCH;
            if (life->dead) life->died_ms = now_ms();
            continue;
        }
        poll_set[waiting] = (struct pollfd){.fd = life->fd, .events = POLLIN};
        polled[waiting++] = processes[i].life;
    }
    if (waiting == 0 || poll(poll_set, (nfds_t)waiting, 0) <= 0) return;
    double now = now_ms();
    for (int i = 0; i < waiting; i++)
        if (poll_set[i].revents && !lives[polled[i]].dead) lives[polled[i]].dead = 1, lives[polled[i]].died_ms = now;
}

static int is_listed(const struct process *process, double now) {
    if (process->life < 0) return 1;
    const struct life *life = &lives[process->life];
    return !life->dead || now - life->died_ms < free_delay_ms;
}

static int is_in(const struct process *process, const struct device *device) {
    return device->parent < 0 || (process->gi == device->gi && process->ci == device->ci);
}

struct memory {
    uint64_t total, reserved, used;
};

static void measure(const struct device *device, struct memory *memory) {
    const struct device *card = device->parent < 0 ? device : &devices[device->parent];
    *memory = (struct memory){device->total, device->reserved, device->base + device->reserved};
    notice_deaths(card->first[LISTS], card->count[LISTS]);
    double now = now_ms();
    for (int i = card->first[LISTS]; i < card->first[LISTS] + card->count[LISTS]; i++)
        if (is_listed(&processes[i], now) && (device->parent < 0 || processes[i].gi == device->gi))
            memory->used += processes[i].holds;
    if (device->has_used) memory->used = device->used;
}

int nvmlDeviceGetMemoryInfo(void *handle, uint64_t *into) {
    struct memory memory;
    BEGIN_DEVICE(nvmlDeviceGetMemoryInfo);
    if (device->unified) return finish(NOT_SUPPORTED);
    measure(device, &memory);
    into[0] = memory.total;
    into[1] = memory.total - memory.used;
    into[2] = memory.used;
    return finish(OK);
}

#ifndef NO_MEMORY_V2
struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *into) {
    struct memory memory;
    BEGIN_DEVICE(nvmlDeviceGetMemoryInfo_v2);
    if (into->version != (sizeof *into | 2u << 24)) return finish(ARGUMENT_VERSION_MISMATCH);
    if (device->unified) return finish(NOT_SUPPORTED);
    measure(device, &memory);
    into->total = memory.total;
    into->reserved = memory.reserved;
    into->free = memory.total - memory.used;
#ifdef WITH_RESERVED
    into->used = memory.used;
#else
    into->used = memory.used > memory.reserved ? memory.used - memory.reserved : 0;
#endif
    return finish(OK);
}
#endif

struct entry32 {
    unsigned pid;
    uint64_t used;
    unsigned gi, ci;
    uint64_t protected_memory;
};

static void give_entry(char *into, int size, const struct process *process) {
    struct entry32 entry = {(unsigned)process->pid, process->used, process->gi, process->ci, process->protected_memory};
    memcpy(into, &entry, (size_t)size);
}

/* `size` is that of an entry. Entries that come by growth are ghosts of 1 MiB with PIDs from 3,000,000 on. */
static int give_list(const struct device *device, int list, int size, unsigned *count, char *into) {
    const struct device *card = device->parent < 0 ? device : &devices[device->parent];
    int first = card->first[list], end = first + card->count[list];
    unsigned listed = 0, grown_by = 0, room = *count;
    if (into == NULL && room != 0) return INVALID_ARGUMENT;
    if (size_query_succeeds && into == NULL) return *count = 0, OK;
    notice_deaths(first, card->count[list]);
    double now = now_ms();
    for (int i = first; i < end; i++) {
        if (!is_listed(&processes[i], now) || !is_in(&processes[i], device)) continue;
        if (listed++ < room) give_entry(into + (size_t)(listed - 1) * (size_t)size, size, &processes[i]);
    }
    int *times = &grown[card - devices][list];
    grown_by = (unsigned)(grow_by * *times);
    if (*times < grow_calls) ++*times;
    for (unsigned i = 0; i < grown_by; i++) {
        struct process extra = {.pid = 3000000 + (int)i, .used = 1 << 20, .gi = device->gi, .ci = NO_INSTANCE};
        if (listed++ < room) give_entry(into + (size_t)(listed - 1) * (size_t)size, size, &extra);
    }
    *count = listed;
    return listed > room ? INSUFFICIENT_SIZE : OK;
}

#define LIST(name, list, size)                                                                                         \
    int name(void *handle, unsigned *count, char *into) {                                                              \
        BEGIN_DEVICE(name);                                                                                            \
        return finish(give_list(device, list, size, count, into));                                                     \
    }
#ifdef ENTRY32
#define V3_SIZE 32
#else
#define V3_SIZE 24
#endif

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, 16)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, 16)
#ifndef NO_LISTS_V2
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, 24)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, 24)
#endif
#ifndef NO_LISTS_V3
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, V3_SIZE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, V3_SIZE)
#endif
#ifndef NO_MPS
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, 16)
#ifndef NO_LISTS_V2
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, 24)
#endif
#ifndef NO_LISTS_V3
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, V3_SIZE)
#endif
#endif

/* ---- utilisation ---- */

/* What a varying card adds to each figure: other at each call. */
static unsigned variation(const struct device *device) {
    static unsigned calls;
    return device->varies ? calls++ % 5 + 1 : 0;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *into) {
    BEGIN_DEVICE(nvmlDeviceGetUtilizationRates);
    if (device->utilization < 0) return finish(NOT_SUPPORTED);
    into[0] = (unsigned)device->utilization + variation(device);
    into[1] = (unsigned)device->moved;
    return finish(OK);
}

/* The time of the newest samples: Unix time, unless the file has another. */
static uint64_t sampled_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return sampled_at_us ? sampled_at_us : (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

struct sample {
    uint64_t at_us, value;
};

/* Gives as many samples as fit, as NVML documents it; SAMPLES NULL asks for their number. The half of a value that an
 * unsigned int leaves free has anything. */
int nvmlDeviceGetSamples(void *handle, int type, uint64_t since_us, int *value_type, unsigned *room,
                         struct sample *samples) {
    BEGIN_DEVICE(nvmlDeviceGetSamples);
    if (type < SAMPLES_GPU || type >= SAMPLE_TYPES || device->utilization < 0) return finish(NOT_SUPPORTED);
    if (device->has_samples && !device->samples[type].given) return finish(NOT_SUPPORTED);
    unsigned same = type == SAMPLES_GPU ? (unsigned)device->utilization + variation(device)
                                        : type == SAMPLES_MEMORY ? (unsigned)device->moved : 0;
    const unsigned *percents = device->has_samples ? device->samples[type].percents : &same;
    unsigned count = device->has_samples ? (unsigned)device->samples[type].count : 1, found = 0;
    uint64_t now_us = sampled_us();
    for (unsigned i = 0; i < count; i++) {
        uint64_t at_us = now_us - (count - 1 - i) * 1000000u / 6;
        if (at_us <= since_us || (samples != NULL && found == *room)) continue;
        if (samples != NULL) samples[found] = (struct sample){at_us, 0xDEADBEEF00000000u | percents[i]};
        found++;
    }
    *room = found;
    *value_type = device->has_samples ? device->samples[type].value_type : 1;
    return finish(found == 0 ? NOT_FOUND : OK);
}

#ifndef NO_UTIL
struct process_sample {
    unsigned pid;
    uint64_t at_us;
    unsigned sm, memory, encoder, decoder;
};

/* Gives the samples of a card's processes that are newer than `since_us`. Asked for the number alone, the
 * driver gives 100 whatever there is (nvtop#110). */
static int give_samples(const struct device *card, uint64_t since_us, unsigned *count, struct process_sample *into) {
    uint64_t now_us = sampled_us();
    if (card->utilization < 0) return NOT_SUPPORTED;
    unsigned room = *count, found = 0, more = variation(card);
    int first = card->first[LISTS], end = first + card->count[LISTS];
    if (room == 0 || into == NULL) return *count = 100, INSUFFICIENT_SIZE;
    notice_deaths(first, card->count[LISTS]);
    for (int i = first; i < end && now_us > since_us; i++) {
        const struct process *process = &processes[i];
        if (process->utilization < 0 || !is_listed(process, now_ms())) continue;
        if (found++ < room)
            into[found - 1] = (struct process_sample){
                (unsigned)process->pid, now_us, (unsigned)process->utilization + more, 0, process->encoder, 0};
    }
    for (unsigned i = found; pad_samples && i < 100 && i < room; i++)
        into[i] = (struct process_sample){0, now_us, 4000000000u, 0, 0, 0}, found = i + 1;
    *count = found;
    return found == 0 ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetProcessUtilization(void *handle, struct process_sample *into, unsigned *count, uint64_t since_us) {
    BEGIN_DEVICE(nvmlDeviceGetProcessUtilization);
    return finish(give_samples(device, since_us, count, into));
}

#ifndef NO_UTIL_INFO
struct process_info {
    uint64_t at_us;
    unsigned pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};
struct processes_info {
    unsigned version, count;
    uint64_t since_us;
    struct process_info *into;
};

int nvmlDeviceGetProcessesUtilizationInfo(void *handle, struct processes_info *info) {
    static struct process_sample samples[MAX_PROCESSES];
    BEGIN_DEVICE(nvmlDeviceGetProcessesUtilizationInfo);
    if (info->version != (sizeof *info | 1u << 24)) return finish(ARGUMENT_VERSION_MISMATCH);
    int code = give_samples(device, info->since_us, &info->count, info->into == NULL ? NULL : samples);
    for (unsigned i = 0; code == OK && i < info->count; i++)
        info->into[i] = (struct process_info){
            samples[i].at_us, samples[i].pid, samples[i].sm, 0, samples[i].encoder, 0, 0, 0};
    return finish(code);
}
#endif
#endif

/* ---- MIG ---- */

#ifndef NO_MIG
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    BEGIN_DEVICE(nvmlDeviceGetMigMode);
    if (device->mig < 0) return finish(NOT_SUPPORTED);
    *current = *pending = (unsigned)device->mig;
    return finish(OK);
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    BEGIN_DEVICE(nvmlDeviceGetMaxMigDeviceCount);
    *count = device->mig < 0 ? 0 : (unsigned)device->max_migs;
    return finish(OK);
}

/* Rules about this call may name the MIG device that it would give, or the card. */
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig) {
    BEGIN_DEVICE(nvmlDeviceGetMigDeviceHandleByIndex);
    for (int i = 0; i < device_count; i++) {
        if (devices[i].parent != device - devices || devices[i].slot != (int)index) continue;
        double delay_ms = 0;
        int code = rule_for(CALL_nvmlDeviceGetMigDeviceHandleByIndex, &devices[i], &delay_ms);
        if (code == OK) *mig = handle_for(&devices[i]);
        return finish(code);
    }
    return finish((int)index < device->max_migs ? NOT_FOUND : INVALID_ARGUMENT);
}

int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is_mig) {
    BEGIN_DEVICE(nvmlDeviceIsMigDeviceHandle);
    *is_mig = device->parent >= 0;
    return finish(OK);
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
    BEGIN_DEVICE(nvmlDeviceGetGpuInstanceId);
    *id = device->gi;
    return finish(device->parent < 0 ? NOT_SUPPORTED : OK);
}

int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) {
    BEGIN_DEVICE(nvmlDeviceGetComputeInstanceId);
    *id = device->ci;
    return finish(device->parent < 0 ? NOT_SUPPORTED : OK);
}

/* The handle of a GPU instance is that of the first MIG device in it. */
int nvmlDeviceGetGpuInstanceById(void *handle, unsigned id, void **instance) {
    BEGIN_DEVICE(nvmlDeviceGetGpuInstanceById);
    for (int i = 0; i < device_count; i++) {
        if (devices[i].parent != device - devices || devices[i].gi != id) continue;
        if (!devices[i].has_place) return finish(NO_PERMISSION);
        *instance = handle_for(&devices[i]);
        return finish(OK);
    }
    return finish(NOT_FOUND);
}

struct instance_info {
    void *device;
    unsigned id, profile_id, start, size;
};

int nvmlGpuInstanceGetInfo(void *handle, struct instance_info *info) {
    BEGIN_DEVICE(nvmlGpuInstanceGetInfo);
    *info = (struct instance_info){.device = handle_for(&devices[device->parent]),
                                   .id = device->gi,
                                   .profile_id = device->profile_id,
                                   .start = device->start,
                                   .size = 1};
    return finish(OK);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent) {
    BEGIN_DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (device->parent < 0) return finish(INVALID_ARGUMENT);
    *parent = handle_for(&devices[device->parent]);
    return finish(OK);
}

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    uint64_t memory_mb;
};

int nvmlDeviceGetAttributes_v2(void *handle, struct attributes *into) {
    BEGIN_DEVICE(nvmlDeviceGetAttributes_v2);
    if (device->parent < 0) return finish(NOT_SUPPORTED);
    unsigned first = 0, second = 0;
    char kind = 'g';
    sscanf(device->profile, "%u%c.%u", &first, &kind, &second); /* 3g.20gb, or 1c.3g.20gb */
    *into = (struct attributes){.gpu_slices = kind == 'c' ? second : first,
                                .compute_slices = first,
                                .memory_mb = device->total >> 20};
    return finish(OK);
}
#endif

/* ---- what tells the layout of `_v3` entries by its presence ---- */

#ifndef NO_CONF
int nvmlDeviceGetConfComputeMemSizeInfo(void *handle, uint64_t *into) {
    BEGIN_DEVICE(nvmlDeviceGetConfComputeMemSizeInfo);
    into[0] = 0;
    into[1] = device->total >> 10;
    return finish(OK);
}
#endif

#ifndef NO_DETAIL
int nvmlDeviceGetRunningProcessDetailList(void *handle, void *list) {
    (void)list;
    BEGIN_DEVICE(nvmlDeviceGetRunningProcessDetailList);
    return finish(NOT_SUPPORTED);
}
#endif

/* 0: a card of the machine itself, 1: passed through, 2: a vGPU of this virtual machine, 3 and 4: on the host of vGPUs */
int nvmlDeviceGetVirtualizationMode(void *handle, unsigned *mode) {
    BEGIN_DEVICE(nvmlDeviceGetVirtualizationMode);
    if (device->virtualization < 0) return finish(NOT_SUPPORTED);
    *mode = (unsigned)device->virtualization;
    return finish(OK);
}

/* ---- what other tools (nvitop and gpustat, in the benchmarks) ask for, and no card here has ---- */

#define LACKING(name)                                                                                                  \
    int name(void) { return NOT_SUPPORTED; }
LACKING(nvmlDeviceGetClockInfo)
LACKING(nvmlDeviceGetComputeMode)
LACKING(nvmlDeviceGetCudaComputeCapability)
LACKING(nvmlDeviceGetDecoderUtilization)
LACKING(nvmlDeviceGetDisplayActive)
LACKING(nvmlDeviceGetDisplayMode)
LACKING(nvmlDeviceGetDriverModel)
LACKING(nvmlDeviceGetDriverModel_v2)
LACKING(nvmlDeviceGetEncoderUtilization)
LACKING(nvmlDeviceGetFanSpeed)
LACKING(nvmlDeviceGetMaxClockInfo)
LACKING(nvmlDeviceGetPciInfo_v3)
LACKING(nvmlDeviceGetPcieThroughput)
LACKING(nvmlDeviceGetPerformanceState)
LACKING(nvmlDeviceGetPersistenceMode)
LACKING(nvmlDeviceGetPowerManagementLimit)
LACKING(nvmlDeviceGetPowerUsage)
LACKING(nvmlDeviceGetTemperature)
LACKING(nvmlDeviceGetTotalEccErrors)
LACKING(nvmlSystemGetCudaDriverVersion)

/* ---- for tests in the same process ---- */

unsigned long nvmlStubCalls(const char *name) {
    unsigned long sum = 0;
    for (int i = 0; i < CALL_COUNT; i++)
        if (name == NULL || strcmp(call_names[i], name) == 0) sum += counters[i].calls;
    return sum;
}

void nvmlStubForgetCalls(void) {
    for (int i = 0; i < CALL_COUNT; i++) counters[i].calls = 0;
    shutdowns_during_call = null_handles = 0;
}

int nvmlStubNullHandles(void) { return null_handles; }

int nvmlStubShutdownsDuringCall(void) { return shutdowns_during_call; }

int nvmlStubInitialized(void) { return initialized; }
