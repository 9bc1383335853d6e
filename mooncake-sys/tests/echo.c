/* All 19 functions of store_c.h, each of which writes down what it was called with.
 *
 * Declared here from the C side, without sight of the Rust declarations: the tests compare what C
 * received with what Rust passed. `echo_record` returns the text of the last call. Results are values
 * that no other function returns, wide where the type is wide.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void *mooncake_store_t;

typedef struct mooncake_replicate_config {
    size_t replica_num;
    int with_soft_pin;
    int with_hard_pin;
    const char **preferred_segments;
    size_t preferred_segments_count;
} mooncake_replicate_config_t;

_Static_assert(sizeof(mooncake_replicate_config_t) == 32, "LP64 layout");
_Static_assert(offsetof(mooncake_replicate_config_t, with_hard_pin) == 12, "LP64 layout");
_Static_assert(offsetof(mooncake_replicate_config_t, preferred_segments_count) == 24, "LP64 layout");

static char record[4096];
static size_t used;

#define APPEND(...) (used += (size_t)snprintf(record + used, sizeof record - used, __VA_ARGS__))
#define BEGIN(...) (used = 0, APPEND(__VA_ARGS__))
#define ADDRESS(pointer) ((uintptr_t)(pointer))

const char *echo_record(void) { return record; }

static void append_config(const mooncake_replicate_config_t *config) {
    if (!config) {
        APPEND(" config=null");
        return;
    }
    APPEND(" config={%zu soft=%d hard=%d", config->replica_num, config->with_soft_pin,
           config->with_hard_pin);
    for (size_t i = 0; i < config->preferred_segments_count; i++)
        APPEND(" %s", config->preferred_segments[i]);
    APPEND("}");
}

static void append_items(const char **keys, void **buffers, const size_t *sizes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        APPEND(" [%s", keys[i]);
        if (buffers)
            APPEND(" %" PRIxPTR " %zu", ADDRESS(buffers[i]), sizes[i]);
        APPEND("]");
    }
}

mooncake_store_t mooncake_store_create(void) {
    BEGIN("create");
    return (mooncake_store_t)(uintptr_t)0x1234567890;
}

void mooncake_store_destroy(mooncake_store_t store) { BEGIN("destroy %" PRIxPTR, ADDRESS(store)); }

int mooncake_store_setup(mooncake_store_t store, const char *local_hostname,
                         const char *metadata_server, uint64_t global_segment_size,
                         uint64_t local_buffer_size, const char *protocol, const char *device_name,
                         const char *master_server_addr) {
    BEGIN("setup %" PRIxPTR " host=%s metadata=%s segment=%" PRIu64 " local=%" PRIu64
          " protocol=%s device=%s master=%s",
          ADDRESS(store), local_hostname, metadata_server, global_segment_size, local_buffer_size,
          protocol, device_name, master_server_addr);
    return -101;
}

int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
                            uint64_t mount_segment_size) {
    BEGIN("init_all %" PRIxPTR " protocol=%s device=%s segment=%" PRIu64, ADDRESS(store), protocol,
          device_name, mount_segment_size);
    return -102;
}

int mooncake_store_health_check(mooncake_store_t store) {
    BEGIN("health_check %" PRIxPTR, ADDRESS(store));
    return -103;
}

int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
                       const mooncake_replicate_config_t *config) {
    BEGIN("put %" PRIxPTR " key=%s value=%" PRIxPTR " size=%zu", ADDRESS(store), key, ADDRESS(value),
          size);
    append_config(config);
    return -104;
}

int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
                            const mooncake_replicate_config_t *config) {
    BEGIN("put_from %" PRIxPTR " key=%s buffer=%" PRIxPTR " size=%zu", ADDRESS(store), key,
          ADDRESS(buffer), size);
    append_config(config);
    return -105;
}

int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers,
                                  const size_t *sizes, size_t count,
                                  const mooncake_replicate_config_t *config, int *results_out) {
    BEGIN("batch_put_from %" PRIxPTR " count=%zu", ADDRESS(store), count);
    append_items(keys, buffers, sizes, count);
    append_config(config);
    for (size_t i = 0; i < count; i++)
        results_out[i] = -200 - (int)i;
    return -106;
}

int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size) {
    BEGIN("get_into %" PRIxPTR " key=%s buffer=%" PRIxPTR " size=%zu", ADDRESS(store), key,
          ADDRESS(buffer), size);
    return -5000000107;
}

int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers,
                                  const size_t *sizes, size_t count, int64_t *results_out) {
    BEGIN("batch_get_into %" PRIxPTR " count=%zu", ADDRESS(store), count);
    append_items(keys, buffers, sizes, count);
    for (size_t i = 0; i < count; i++)
        results_out[i] = 6000000000 + (int64_t)i;
    return -108;
}

int mooncake_store_is_exist(mooncake_store_t store, const char *key) {
    BEGIN("is_exist %" PRIxPTR " key=%s", ADDRESS(store), key);
    return -109;
}

int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count,
                                  int *results_out) {
    BEGIN("batch_is_exist %" PRIxPTR " count=%zu", ADDRESS(store), count);
    append_items(keys, NULL, NULL, count);
    for (size_t i = 0; i < count; i++)
        results_out[i] = -300 - (int)i;
    return -110;
}

int64_t mooncake_store_get_size(mooncake_store_t store, const char *key) {
    BEGIN("get_size %" PRIxPTR " key=%s", ADDRESS(store), key);
    return 5000000111;
}

int mooncake_store_get_hostname(mooncake_store_t store, char *buf_out, size_t buf_len) {
    BEGIN("get_hostname %" PRIxPTR " length=%zu", ADDRESS(store), buf_len);
    strncpy(buf_out, "echo:12345", buf_len);
    return -112;
}

int mooncake_store_remove(mooncake_store_t store, const char *key, int force) {
    BEGIN("remove %" PRIxPTR " key=%s force=%d", ADDRESS(store), key, force);
    return -113;
}

int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force) {
    BEGIN("remove_by_regex %" PRIxPTR " pattern=%s force=%d", ADDRESS(store), pattern, force);
    return 5000000114;
}

int64_t mooncake_store_remove_all(mooncake_store_t store, int force) {
    BEGIN("remove_all %" PRIxPTR " force=%d", ADDRESS(store), force);
    return 5000000115;
}

int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size) {
    BEGIN("register_buffer %" PRIxPTR " buffer=%" PRIxPTR " size=%zu", ADDRESS(store), ADDRESS(buffer),
          size);
    return -116;
}

int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer) {
    BEGIN("unregister_buffer %" PRIxPTR " buffer=%" PRIxPTR, ADDRESS(store), ADDRESS(buffer));
    return -117;
}
