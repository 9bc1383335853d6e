/* A small store with the C ABI of store_c.h that ends the process exactly where the real library does.
 *
 * Used before its setup or after its destruction, destroyed under a running call, set up with strings that
 * the real one does not survive: it says why on stderr and aborts. Otherwise it keeps up to 64 objects.
 * What a test needs to steer it comes after the 19 functions:
 *
 *   - a data call on a key that begins with "hold" waits until guard_release;
 *   - a get or put of a key that begins with "fail" is -800; a batch that holds "broken" returns -1;
 *   - destroy waits until guard_release if guard_hold_destroy was called.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mooncake_replicate_config {
    size_t replica_num;
    int with_soft_pin;
    int with_hard_pin;
    const char **preferred_segments;
    size_t preferred_segments_count;
} config_t;

typedef struct {
    int alive;
    int set_up;
    int running;
    int registered;
    char host[256];
} store_t;

typedef struct {
    char key[256];
    char *bytes;
    size_t size;
} object_t;

enum { OBJECTS = 64, OK = 0, INTERNAL = -1, NO_SPACE = -200, INVALID = -600, ABSENT = -704, FAILED = -800 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static object_t objects[OBJECTS];
static int waiting, released, hold_destroy, destroyed;
static size_t last_replicas;
static pthread_t creator, destroyer;

static void die(const char *why) {
    fprintf(stderr, "guard: %s\n", why);
    abort();
}

/* -- a call is inside ------------------------------------------------------------------------------ */

static void enter(store_t *store, int needs_setup, const char *what) {
    pthread_mutex_lock(&lock);
    if (!store->alive)
        die(what);
    if (needs_setup && !store->set_up)
        die("used before its setup");
    store->running++;
}

static void leave(store_t *store) {
    store->running--;
    pthread_mutex_unlock(&lock);
}

static void wait_for_release(void) {
    waiting++;
    pthread_cond_broadcast(&changed);
    while (!released)
        pthread_cond_wait(&changed, &lock);
    waiting--;
}

static int starts(const char *key, const char *word) { return strncmp(key, word, strlen(word)) == 0; }

static object_t *find(const char *key) {
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].bytes && strcmp(objects[i].key, key) == 0)
            return &objects[i];
    return NULL;
}

static int store_one(const char *key, const void *bytes, size_t size) {
    if (starts(key, "hold"))
        wait_for_release();
    if (starts(key, "fail"))
        return FAILED;
    if (size == 0 || !*key)
        return INVALID;
    if (find(key))
        return OK;
    for (int i = 0; i < OBJECTS; i++) {
        if (objects[i].bytes)
            continue;
        snprintf(objects[i].key, sizeof objects[i].key, "%s", key);
        objects[i].bytes = malloc(size);
        objects[i].size = size;
        memcpy(objects[i].bytes, bytes, size);
        return OK;
    }
    return NO_SPACE;
}

static int64_t read_one(const char *key, void *buffer, size_t size) {
    if (starts(key, "hold"))
        wait_for_release();
    if (starts(key, "fail"))
        return FAILED;
    object_t *object = find(key);
    if (!object)
        return ABSENT;
    if (object->size > size)
        return INVALID;
    memcpy(buffer, object->bytes, object->size);
    return (int64_t)object->size;
}

static int any_broken(const char **keys, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i], "broken") == 0)
            return 1;
    return 0;
}

/* -- store_c.h ------------------------------------------------------------------------------------- */

void *mooncake_store_create(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    creator = pthread_self();
    store_t *store = calloc(1, sizeof *store);
    store->alive = 1;
    return store;
}

void mooncake_store_destroy(void *handle) {
    store_t *store = handle;
    if (!store)
        return;
    pthread_mutex_lock(&lock);
    if (!store->alive)
        die("destroyed twice");
    if (store->running)
        die("destroyed under a running call");
    store->alive = 0;
    destroyer = pthread_self();
    if (hold_destroy)
        wait_for_release();
    destroyed++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    /* Not freed: a later use must be noticed, not undefined. */
}

int mooncake_store_setup(void *handle, const char *host, const char *metadata, uint64_t segment,
                         uint64_t local, const char *protocol, const char *device, const char *master) {
    store_t *store = handle;
    (void)device;
    if (!metadata || !*metadata)
        die("no metadata server");
    if (strcmp(metadata, "P2PHANDSHAKE") != 0 && !strstr(metadata, "://"))
        die("a metadata server without a scheme");
    if (starts(metadata, "etcd://") || starts(metadata, "redis://"))
        die("a metadata plug-in that is not compiled in");
    if (!master || !*master)
        die("no master");
    if (!host || !*host || (strcmp(protocol, "tcp") != 0 && strcmp(protocol, "rdma") != 0))
        return INVALID;
    if (strcmp(master, "127.0.0.1:1") == 0)
        return INVALID;
    if (local >= (uint64_t)1 << 40)
        return INTERNAL;
    enter(store, 0, "set up after its destruction");
    store->set_up = 1;
    snprintf(store->host, sizeof store->host, "%s", host);
    leave(store);
    /* Half set up, as the real one. */
    return segment >= (uint64_t)1 << 50 ? INVALID : OK;
}

int mooncake_store_init_all(void *handle, const char *protocol, const char *device, uint64_t segment) {
    (void)handle, (void)protocol, (void)device, (void)segment;
    return INVALID;
}

int mooncake_store_health_check(void *handle) {
    store_t *store = handle;
    enter(store, 0, "health check after its destruction");
    int code = store->set_up ? 0 : 1;
    leave(store);
    return code;
}

int mooncake_store_put(void *handle, const char *key, const void *value, size_t size,
                       const config_t *config) {
    store_t *store = handle;
    enter(store, 0, "put after its destruction");
    last_replicas = config ? config->replica_num : 1;
    int code = store->set_up ? store_one(key, value, size) : INVALID;
    leave(store);
    return code;
}

int mooncake_store_put_from(void *handle, const char *key, void *buffer, size_t size,
                            const config_t *config) {
    return mooncake_store_put(handle, key, buffer, size, config);
}

int mooncake_store_batch_put_from(void *handle, const char **keys, void **buffers, const size_t *sizes,
                                  size_t count, const config_t *config, int *results) {
    store_t *store = handle;
    if (!keys || !buffers || !sizes || !results)
        return INTERNAL;
    enter(store, 1, "batch put after its destruction");
    last_replicas = config ? config->replica_num : 1;
    int broken = any_broken(keys, count);
    for (size_t i = 0; i < count && !broken; i++)
        results[i] = store_one(keys[i], buffers[i], sizes[i]);
    leave(store);
    return broken ? INTERNAL : OK;
}

int64_t mooncake_store_get_into(void *handle, const char *key, void *buffer, size_t size) {
    store_t *store = handle;
    enter(store, 0, "get after its destruction");
    int64_t result = store->set_up ? read_one(key, buffer, size) : INVALID;
    leave(store);
    return result;
}

int mooncake_store_batch_get_into(void *handle, const char **keys, void **buffers, const size_t *sizes,
                                  size_t count, int64_t *results) {
    store_t *store = handle;
    if (!keys || !buffers || !sizes || !results)
        return INTERNAL;
    enter(store, 1, "batch get after its destruction");
    int broken = any_broken(keys, count);
    for (size_t i = 0; i < count && !broken; i++)
        results[i] = read_one(keys[i], buffers[i], sizes[i]);
    leave(store);
    return broken ? INTERNAL : OK;
}

int mooncake_store_is_exist(void *handle, const char *key) {
    store_t *store = handle;
    enter(store, 0, "exists after its destruction");
    int result = store->set_up ? find(key) != NULL : INVALID;
    leave(store);
    return result;
}

int mooncake_store_batch_is_exist(void *handle, const char **keys, size_t count, int *results) {
    if (!keys || !results)
        return INTERNAL;
    for (size_t i = 0; i < count; i++)
        results[i] = mooncake_store_is_exist(handle, keys[i]);
    return OK;
}

int64_t mooncake_store_get_size(void *handle, const char *key) {
    store_t *store = handle;
    enter(store, 0, "size after its destruction");
    object_t *object = find(key);
    int64_t result = object ? (int64_t)object->size : ABSENT;
    leave(store);
    return result;
}

int mooncake_store_get_hostname(void *handle, char *out, size_t len) {
    store_t *store = handle;
    enter(store, 0, "host name after its destruction");
    int code = INTERNAL;
    if (strlen(store->host) < len) {
        strcpy(out, store->host);
        code = OK;
    }
    leave(store);
    return code;
}

int mooncake_store_remove(void *handle, const char *key, int force) {
    store_t *store = handle;
    (void)force;
    enter(store, 0, "remove after its destruction");
    object_t *object = find(key);
    if (object) {
        free(object->bytes);
        object->bytes = NULL;
    }
    leave(store);
    return object ? OK : ABSENT;
}

int64_t mooncake_store_remove_by_regex(void *handle, const char *pattern, int force) {
    /* A prefix stands for a pattern here. */
    int64_t removed = 0;
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].bytes && starts(objects[i].key, pattern))
            removed += mooncake_store_remove(handle, objects[i].key, force) == OK;
    return removed;
}

int64_t mooncake_store_remove_all(void *handle, int force) {
    return mooncake_store_remove_by_regex(handle, "", force);
}

int mooncake_store_register_buffer(void *handle, void *buffer, size_t size) {
    store_t *store = handle;
    if (!buffer || !size)
        return INTERNAL;
    enter(store, 1, "register after its destruction");
    int code = store->registered ? INVALID : OK;
    store->registered = 1;
    leave(store);
    return code;
}

int mooncake_store_unregister_buffer(void *handle, void *buffer) {
    store_t *store = handle;
    (void)buffer;
    enter(store, 1, "unregister after its destruction");
    int code = store->registered ? OK : INVALID;
    store->registered = 0;
    leave(store);
    return code;
}

/* -- for the tests --------------------------------------------------------------------------------- */

/* Lets everything go that waits or will wait. */
void guard_release(void) {
    pthread_mutex_lock(&lock);
    released = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void guard_hold_destroy(void) { hold_destroy = 1; }

/* Returns once `count` calls (or a destroy) wait. */
void guard_until_waiting(int count) {
    pthread_mutex_lock(&lock);
    while (waiting < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Returns once `count` handles have been destroyed. */
void guard_until_destroyed(int count) {
    pthread_mutex_lock(&lock);
    while (destroyed < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int guard_destroyed(void) {
    pthread_mutex_lock(&lock);
    int count = destroyed;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Whether this thread created (1) or destroyed (2) the last handle. */
int guard_roles_of_this_thread(void) {
    return (pthread_equal(creator, pthread_self()) ? 1 : 0) |
           (destroyed && pthread_equal(destroyer, pthread_self()) ? 2 : 0);
}

size_t guard_last_replicas(void) { return last_replicas; }
