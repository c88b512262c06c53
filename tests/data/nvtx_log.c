/* A minimal NVTX v3 injection library: one line per push, pop and mark to the file named by NVTX_LOG, for test_annotate.
 *
 * Written against the binary interface of NVTX v3 (NVTX_INJECTION64_PATH, InitializeInjectionNvtx2, callback table CORE2).
 * With -DREFUSE_EXTENSIONS it behaves like a tool too old for domains to be enabled: its extension entry point declines.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union { int64_t ll; double d; } payload;
    int32_t message_type;
    const char *message; /* our string handles are the strings themselves, so ASCII and registered messages look alike */
} Attributes;

typedef struct { char *name, *categories[32]; } Domain;

typedef void (*Function)(void);
typedef struct {
    size_t struct_size;
    int (*module_table)(int module, Function ***table, unsigned *size);
} Callbacks;

static FILE *out;
static Domain unnamed = { "", { 0 } };
static Domain *at(void *domain) { return domain ? (Domain *)domain : &unnamed; }

static void line(const char *verb, void *domain, const Attributes *a) {
    Domain *d = at(domain);
    const char *category = a->category < 32 && d->categories[a->category] ? d->categories[a->category] : "";
    fprintf(out, "%s|%s|%s|%s|", verb, d->name, category, a->message_type ? a->message : "");
    if (a->payload_type == 3) fprintf(out, "%g", a->payload.d);
    else if (a->payload_type) fprintf(out, "%lld", (long long)a->payload.ll);
    fputc('\n', out);
    fflush(out);
}
static void mark(void *domain, const Attributes *a) { line("mark", domain, a); }
static int push(void *domain, const Attributes *a) { line("push", domain, a); return 0; }
static int pop(void *domain) { fprintf(out, "pop|%s\n", at(domain)->name); fflush(out); return 0; }
static void name_category(void *domain, uint32_t id, const char *name) {
    if (id < 32) at(domain)->categories[id] = strdup(name);
}
static void *register_string(void *domain, const char *text) { (void)domain; return strdup(text); }
static void *create(const char *name) {
    Domain *d = calloc(1, sizeof *d);
    d->name = strdup(name);
    return d;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const Callbacks *callbacks = export_table(1);
    Function **table;
    unsigned size;
    const char *path = getenv("NVTX_LOG");
    if (!callbacks || !path || !callbacks->module_table(5, &table, &size) || size <= 12) return 0;
    if (!(out = fopen(path, "a"))) return 0;
    *table[1] = (Function)mark;
    *table[4] = (Function)push;
    *table[5] = (Function)pop;
    *table[8] = (Function)name_category;
    *table[10] = (Function)register_string;
    *table[12] = (Function)create;
    return 1;
}

#ifdef REFUSE_EXTENSIONS
int InitializeInjectionNvtxExtension(void *module) { (void)module; return 0; }
#endif
