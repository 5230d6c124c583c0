/* A stand-in for NVIDIA's driver over host memory, for tests of qddot/compiler/runtime/cuda.

   "Device" memory is from malloc and known by its ranges: a copy or a kernel that leaves them fails as on a card. Work is
   done at once; what a caller does about order is in a log. The "assembler" takes a text that has a line such as

       // fake d 2 3 4 2 1        float64, 2 axes of lengths 3 and 4, 2 inputs, 1 number of scratch memory a thread

   and its functions `rows` and `strided` compute 2 * first input + the others, by the parameters that qddot's launch
   contract names (qddot/compiler/runtime/cuda/grid.py). A text with "error" in it is refused with a message. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long device_pointer;
#define EXPORT __attribute__((visibility("default")))
enum { INVALID = 1, NO_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_PTX = 218, ILLEGAL_ADDRESS = 700, NOT_READY = 600 };

typedef struct Range {
    char *begin;
    size_t size;
    void *context;
    int host;
    struct Range *next;
} Range;

typedef struct {
    char text[4096];
    char type;
    int axes, inputs, scratch;
    long lengths[8];
    void *context;
} Module;

typedef struct {
    Module *module;
    int strided, shared_limit;
} Function;

typedef struct {
    char text[4096];
    char *log;
    size_t log_size;
} Link;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Range *ranges;
static char *log_text;
static size_t log_size, log_used;
static char fail_name[64];
static int fail_code, fail_skip, capability = 90, devices = 2, pending, live_events, live_modules, live_bytes, capturing;
static long limit;
static int (*launcher)(const char *, unsigned, unsigned, unsigned, unsigned, void **); /* takes all modules and launches */
static __thread void *stack[64];
static __thread int depth;

static void note(const char *format, ...) {
    va_list arguments;
    pthread_mutex_lock(&lock);
    if (log_used + 256 > log_size) log_text = realloc(log_text, log_size = 2 * log_size + 4096);
    va_start(arguments, format);
    log_used += (size_t)vsnprintf(log_text + log_used, 255, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&lock);
}

static int failure(const char *name) {
    int code = 0;
    pthread_mutex_lock(&lock);
    if (!strcmp(name, fail_name) && fail_skip-- == 0) {
        code = fail_code;
        fail_name[0] = 0;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

#define BEGIN                                  \
    {                                          \
        int injected = failure(__func__);      \
        if (injected) return injected;         \
    }
#define IN_CONTEXT \
    BEGIN if (!current()) return INVALID_CONTEXT;

static void *current(void) { return depth ? stack[depth - 1] : NULL; }

static int inside(const void *address, size_t size, int host) {
    int found = size == 0;
    pthread_mutex_lock(&lock);
    for (Range *r = ranges; r && !found; r = r->next)
        found = r->host == host && (const char *)address >= r->begin && (const char *)address + size <= r->begin + r->size;
    pthread_mutex_unlock(&lock);
    return found;
}

static void *allocated(size_t size, int host) {
    Range *r;
    pthread_mutex_lock(&lock);
    if (limit && !host && live_bytes + (long)size > limit) {
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    r = malloc(sizeof *r);
    r->begin = aligned_alloc(512, (size + 511) / 512 * 512);
    memset(r->begin, 0x5a, size);
    r->size = size, r->context = current(), r->host = host, r->next = ranges, ranges = r;
    if (!host) live_bytes += (int)size;
    pthread_mutex_unlock(&lock);
    return r->begin;
}

static int freed(void *address, int host) {
    int code = INVALID;
    pthread_mutex_lock(&lock);
    for (Range **r = &ranges; *r; r = &(*r)->next)
        if ((*r)->begin == (char *)address && (*r)->host == host) {
            Range *gone = *r;
            code = gone->context == current() ? 0 : INVALID_CONTEXT;
            if (code) break;
            *r = gone->next;
            if (!host) live_bytes -= (int)gone->size;
            free(gone->begin);
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- what tests set and ask */

EXPORT void fake_reset(void) {
    fail_name[0] = 0;
    capability = 90, devices = 2, pending = 0, limit = 0, capturing = 0, log_used = 0, depth = 0;
    if (log_text) log_text[0] = 0;
}
EXPORT void fake_fail(const char *name, int code, int skip) {
    snprintf(fail_name, sizeof fail_name, "%s", name);
    fail_code = code, fail_skip = skip;
}
EXPORT void fake_set(const char *what, long value) {
    if (!strcmp(what, "capability")) capability = (int)value;
    if (!strcmp(what, "devices")) devices = (int)value;
    if (!strcmp(what, "pending")) pending = (int)value;
    if (!strcmp(what, "limit")) limit = value;
    if (!strcmp(what, "launcher")) *(void **)&launcher = (void *)value;
    if (!strcmp(what, "capturing")) capturing = (int)value;
}
EXPORT long fake_get(const char *what) {
    if (!strcmp(what, "bytes")) return live_bytes;
    if (!strcmp(what, "events")) return live_events;
    if (!strcmp(what, "modules")) return live_modules;
    if (!strcmp(what, "depth")) return depth;
    return -1;
}
EXPORT const char *fake_log(void) { return log_text ? log_text : ""; }
EXPORT void fake_clear_log(void) {
    log_used = 0;
    if (log_text) log_text[0] = 0;
}

/* ---- errors, devices, contexts */

EXPORT int cuGetErrorName(int code, const char **text) {
    *text = code == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_X";
    return code > 999 ? INVALID : 0;
}
EXPORT int cuGetErrorString(int code, const char **text) {
    *text = "what the driver says";
    return code > 999 ? INVALID : 0;
}
EXPORT int cuInit(unsigned flags) {
    BEGIN return flags ? INVALID : 0;
}
EXPORT int cuDriverGetVersion(int *version) {
    BEGIN *version = 12040;
    return 0;
}
EXPORT int cuDeviceGetCount(int *count) {
    BEGIN *count = devices;
    return 0;
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
    BEGIN *device = ordinal;
    return ordinal < devices ? 0 : 101;
}
EXPORT int cuDeviceGetName(char *name, int length, int device) {
    BEGIN snprintf(name, (size_t)length, "Fake card %d", device);
    return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    BEGIN(void) device;
    switch (attribute) {
    case 16: *value = 132; return 0;
    case 39: *value = 2048; return 0;
    case 75: *value = capability / 10; return 0;
    case 76: *value = capability % 10; return 0;
    case 97: *value = 232448; return 0;
    default: return INVALID;
    }
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    BEGIN(void) device;
    *bytes = (size_t)1 << 30;
    return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    BEGIN *context = (void *)(uintptr_t)(0x9000 + 16 * device);
    note("retain %d\n", device);
    return 0;
}
EXPORT int cuCtxGetCurrent(void **context) {
    BEGIN *context = current();
    return 0;
}
EXPORT int cuCtxGetDevice(int *device) {
    IN_CONTEXT *device = (int)(((uintptr_t)current() >> 4) & 1);
    return 0;
}
EXPORT int cuCtxPushCurrent_v2(void *context) {
    BEGIN stack[depth++] = context;
    return 0;
}
EXPORT int cuCtxPopCurrent_v2(void **context) {
    IN_CONTEXT *context = stack[--depth];
    return 0;
}
EXPORT int cuCtxSynchronize(void) {
    IN_CONTEXT note("synchronize\n");
    return 0;
}

/* ---- memory */

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
    IN_CONTEXT *available = 1000000, *total = 2000000;
    return 0;
}
EXPORT int cuMemAlloc_v2(device_pointer *pointer, size_t size) {
    IN_CONTEXT if (!size) return INVALID;
    *pointer = (device_pointer)(uintptr_t)allocated(size, 0);
    note("alloc %zu\n", size);
    return *pointer ? 0 : NO_MEMORY;
}
EXPORT int cuMemFree_v2(device_pointer pointer) {
    IN_CONTEXT note("free\n");
    return freed((void *)(uintptr_t)pointer, 0);
}
EXPORT int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
    IN_CONTEXT if (!size || flags) return INVALID;
    *pointer = allocated(size, 1);
    note("hostalloc %zu\n", size);
    return 0;
}
EXPORT int cuMemFreeHost(void *pointer) {
    IN_CONTEXT return freed(pointer, 1);
}
static int copied(void *to, const void *from, size_t size, int to_device, int from_device) {
    if ((to_device && !inside(to, size, 0)) || (from_device && !inside(from, size, 0))) return INVALID;
    memmove(to, from, size);
    return 0;
}
#define HOST(x) ((void *)(uintptr_t)(x))
EXPORT int cuMemcpyHtoD_v2(device_pointer to, const void *from, size_t size) {
    IN_CONTEXT note("HtoD %zu\n", size);
    return copied(HOST(to), from, size, 1, 0);
}
EXPORT int cuMemcpyDtoH_v2(void *to, device_pointer from, size_t size) {
    IN_CONTEXT note("DtoH %zu\n", size);
    return copied(to, HOST(from), size, 0, 1);
}
/* Asynchronous copies need page-locked memory to be asynchronous: here they fail without. */
EXPORT int cuMemcpyHtoDAsync_v2(device_pointer to, const void *from, size_t size, void *stream) {
    IN_CONTEXT note("HtoD %zu stream %zu\n", size, (size_t)stream);
    return inside(from, size, 1) ? copied(HOST(to), from, size, 1, 0) : INVALID;
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, device_pointer from, size_t size, void *stream) {
    IN_CONTEXT note("DtoH %zu stream %zu\n", size, (size_t)stream);
    return inside(to, size, 1) ? copied(to, HOST(from), size, 0, 1) : INVALID;
}
EXPORT int cuMemcpyDtoDAsync_v2(device_pointer to, device_pointer from, size_t size, void *stream) {
    IN_CONTEXT note("DtoD %zu stream %zu\n", size, (size_t)stream);
    return copied(HOST(to), HOST(from), size, 1, 1);
}
typedef struct {
    size_t x, y;
    unsigned type;
    void *host;
    device_pointer device;
    void *array;
    size_t pitch;
} Side;
EXPORT int cuMemcpy2DAsync_v2(const void *rectangle, void *stream) {
    const struct {
        Side from, to;
        size_t width, height;
    } *own = rectangle;
    const Side *a = &own->from, *b = &own->to;
    IN_CONTEXT note("2D %zu x %zu stream %zu\n", own->width, own->height, (size_t)stream);
    if (a->type != 2 || b->type != 2 || a->x || a->y || b->x || b->y || a->pitch < own->width || b->pitch < own->width) return INVALID;
    for (size_t row = 0; row < own->height; row++) {
        int code = copied((char *)HOST(b->device) + row * b->pitch, (char *)HOST(a->device) + row * a->pitch, own->width, 1, 1);
        if (code) return code;
    }
    return 0;
}
EXPORT int cuPointerGetAttribute(void *data, int attribute, device_pointer pointer) {
    int code = INVALID;
    IN_CONTEXT if (attribute != 9) return INVALID;
    pthread_mutex_lock(&lock);
    for (Range *r = ranges; r; r = r->next)
        if (!r->host && (char *)HOST(pointer) >= r->begin && (char *)HOST(pointer) < r->begin + r->size) {
            *(int *)data = (int)(((uintptr_t)r->context >> 4) & 1);
            code = 0;
        }
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- streams and events */

EXPORT int cuStreamCreate(void **stream, unsigned flags) {
    static size_t next = 100;
    IN_CONTEXT if (flags != 1) return INVALID;
    *stream = (void *)next++;
    return 0;
}
EXPORT int cuStreamSynchronize(void *stream) {
    IN_CONTEXT note("wait stream %zu\n", (size_t)stream);
    return 0;
}
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    IN_CONTEXT note("stream %zu waits for %zu\n", (size_t)stream, *(size_t *)event);
    return flags ? INVALID : 0;
}
EXPORT int cuStreamIsCapturing(void *stream, int *status) {
    IN_CONTEXT(void) stream;
    *status = capturing;
    return 0;
}
EXPORT int cuEventCreate(void **event, unsigned flags) {
    IN_CONTEXT if (flags & ~2u) return INVALID;
    *event = calloc(1, sizeof(size_t));
    __atomic_add_fetch(&live_events, 1, __ATOMIC_SEQ_CST);
    return 0;
}
EXPORT int cuEventRecord(void *event, void *stream) {
    IN_CONTEXT *(size_t *)event = (size_t)stream;
    return 0;
}
EXPORT int cuEventQuery(void *event) {
    IN_CONTEXT(void) event;
    return pending ? NOT_READY : 0;
}
EXPORT int cuEventSynchronize(void *event) {
    IN_CONTEXT(void) event;
    return 0;
}
EXPORT int cuEventElapsedTime(float *ms, void *begin, void *end) {
    IN_CONTEXT(void) begin;
    (void)end;
    *ms = 2.0f;
    return 0;
}
EXPORT int cuEventDestroy_v2(void *event) {
    IN_CONTEXT free(event);
    __atomic_sub_fetch(&live_events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* ---- assembling and loading */

EXPORT int cuLinkCreate_v2(unsigned count, const int *options, void **values, void **link) {
    Link *own;
    IN_CONTEXT own = calloc(1, sizeof *own);
    for (unsigned k = 0; k < count; k++) {
        if (options[k] == 5) own->log = values[k];
        if (options[k] == 6) own->log_size = (size_t)values[k];
    }
    *link = own;
    return 0;
}
EXPORT int cuLinkAddData_v2(void *link, int type, const void *data, size_t size, const char *name, unsigned count,
                            const int *options, void **values) {
    Link *own = link;
    const char *text = data;
    IN_CONTEXT(void) options;
    (void)values;
    if (launcher) text = "// fake d 0 0 0\n", size = strlen(text) + 1;
    if (type != 1 || count || !size || text[size - 1] || size > sizeof own->text) return INVALID;
    note("assemble %s\n", name);
    if (strstr(text, "error")) {
        snprintf(own->log, own->log_size, "ptxas fatal: line 1 of many\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9");
        return INVALID_PTX;
    }
    memcpy(own->text, text, size);
    return 0;
}
EXPORT int cuLinkComplete(void *link, void **cubin, size_t *size) {
    Link *own = link;
    IN_CONTEXT *cubin = own->text, *size = strlen(own->text) + 1;
    return 0;
}
EXPORT int cuLinkDestroy(void *link) {
    IN_CONTEXT free(link);
    return 0;
}
EXPORT int cuModuleLoadData(void **module, const char *image) {
    Module *own;
    const char *at = strstr(image, "// fake ");
    IN_CONTEXT if (!at) return INVALID;
    own = calloc(1, sizeof *own);
    own->type = at[8], at += 9, own->context = current();
    own->axes = (int)strtol(at, (char **)&at, 10);
    for (int k = 0; k < own->axes; k++) own->lengths[k] = strtol(at, (char **)&at, 10);
    own->inputs = (int)strtol(at, (char **)&at, 10);
    own->scratch = (int)strtol(at, (char **)&at, 10);
    *module = own;
    __atomic_add_fetch(&live_modules, 1, __ATOMIC_SEQ_CST);
    note("load\n");
    return 0;
}
EXPORT int cuModuleUnload(void *module) {
    IN_CONTEXT if (((Module *)module)->context != current()) return INVALID_CONTEXT;
    __atomic_sub_fetch(&live_modules, 1, __ATOMIC_SEQ_CST);
    note("unload\n");
    free(module);
    return 0;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    Function *own;
    IN_CONTEXT if (strcmp(name, "rows") && strcmp(name, "strided")) return 500;
    own = calloc(1, sizeof *own);
    own->module = module, own->strided = !strcmp(name, "strided"), own->shared_limit = 48 << 10;
    *function = own;
    return 0;
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
    static const int known[] = {1024, 16, 0, 8, 40};
    IN_CONTEXT(void) function;
    if (attribute < 0 || attribute > 4) return INVALID;
    *value = known[attribute];
    return 0;
}
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
    IN_CONTEXT if (attribute != 8 || value > 232448) return INVALID;
    ((Function *)function)->shared_limit = value;
    note("shared limit %d\n", value);
    return 0;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    IN_CONTEXT if ((size_t)((Function *)function)->shared_limit < shared) return INVALID;
    *blocks = 1024 / threads;
    return 0;
}

/* ---- launching */

static double number(const Module *m, const char *at) {
    float f;
    double d;
    if (m->type == 'f') return memcpy(&f, at, 4), (double)f;
    return memcpy(&d, at, 8), d;
}

static int computed(const Function *f, void **parameters, size_t threads) {
    const Module *m = f->module;
    const size_t size = m->type == 'f' ? 4 : 8;
    const int64_t count = *(int64_t *)parameters[0];
    const int wide = 2 + m->axes;
    char *scratch = *(char **)parameters[1 + wide * (m->inputs + 1)];
    long inner = 1;
    if (m->scratch && !inside(scratch, threads * (size_t)m->scratch * size, 0)) return ILLEGAL_ADDRESS;
    if (!m->scratch && scratch) return INVALID;
    for (int k = 0; k < m->axes; k++) inner *= m->lengths[k];
    for (int64_t s = 0; s < count; s++)
        for (long n = 0; n < inner; n++) {
            double sum = 0;
            for (int x = 0; x <= m->inputs; x++) {
                void **own = parameters + 1 + wide * x;
                int64_t at = s * *(int64_t *)own[1], contiguous = 1;
                long rest = n;
                for (int k = m->axes - 1; k >= 0; k--) {
                    at += (rest % m->lengths[k]) * (f->strided ? *(int64_t *)own[2 + k] : contiguous);
                    rest /= m->lengths[k], contiguous *= m->lengths[k];
                }
                char *address = *(char **)own[0] + at * (int64_t)size;
                if (!inside(address, size, 0) || (uintptr_t)address % size) return ILLEGAL_ADDRESS;
                if (x < m->inputs)
                    sum += (x ? 1 : 2) * number(m, address);
                else if (m->type == 'f')
                    *(float *)(void *)address = (float)sum;
                else
                    *(double *)(void *)address = sum;
            }
        }
    return 0;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
    Function *f = function;
    IN_CONTEXT if (extra || gz != 1 || by != 1 || bz != 1 || !gx || !gy || bx % 32 || !bx || bx > 1024) return INVALID;
    if (f->module->context != current()) return INVALID_CONTEXT;
    if (shared > (unsigned)f->shared_limit) return INVALID;
    note("launch %s grid %u %u block %u shared %u stream %zu count %lld\n", f->strided ? "strided" : "rows", gx, gy, bx, shared,
         (size_t)stream, (long long)*(int64_t *)parameters[0]);
    if (launcher) return launcher(f->strided ? "strided" : "rows", gx, gy, bx, shared, parameters);
    return computed(f, parameters, (size_t)gx * gy * bx);
}
