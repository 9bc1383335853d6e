/* A program of Mooncake Store's C ABI, linked against the library under test. Declared here from the C side.
 *
 *   program calls MASTER    every function, with the codes of Mooncake
 *   program own MASTER      lends memory, puts "shared", says "ready" and waits for a line of input
 *   program read MASTER     lends nothing, reads "shared" and puts "back"
 *   program refused MASTER  the setup is refused
 *   program faulty MASTER   the end of the put of "broken" fails with -900
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *mooncake_store_t;

typedef struct mooncake_replicate_config {
    size_t replica_num;
    int with_soft_pin;
    int with_hard_pin;
    const char **preferred_segments;
    size_t preferred_segments_count;
} mooncake_replicate_config_t;

mooncake_store_t mooncake_store_create(void);
void mooncake_store_destroy(mooncake_store_t);
int mooncake_store_setup(mooncake_store_t, const char *, const char *, uint64_t, uint64_t, const char *,
                         const char *, const char *);
int mooncake_store_init_all(mooncake_store_t, const char *, const char *, uint64_t);
int mooncake_store_health_check(mooncake_store_t);
int mooncake_store_put(mooncake_store_t, const char *, const void *, size_t, const mooncake_replicate_config_t *);
int mooncake_store_put_from(mooncake_store_t, const char *, void *, size_t, const mooncake_replicate_config_t *);
int mooncake_store_batch_put_from(mooncake_store_t, const char **, void **, const size_t *, size_t,
                                  const mooncake_replicate_config_t *, int *);
int64_t mooncake_store_get_into(mooncake_store_t, const char *, void *, size_t);
int mooncake_store_batch_get_into(mooncake_store_t, const char **, void **, const size_t *, size_t, int64_t *);
int mooncake_store_is_exist(mooncake_store_t, const char *);
int mooncake_store_batch_is_exist(mooncake_store_t, const char **, size_t, int *);
int64_t mooncake_store_get_size(mooncake_store_t, const char *);
int mooncake_store_get_hostname(mooncake_store_t, char *, size_t);
int mooncake_store_remove(mooncake_store_t, const char *, int);
int64_t mooncake_store_remove_by_regex(mooncake_store_t, const char *, int);
int64_t mooncake_store_remove_all(mooncake_store_t, int);
int mooncake_store_register_buffer(mooncake_store_t, void *, size_t);
int mooncake_store_unregister_buffer(mooncake_store_t, void *);

#define EXPECT(call, wanted)                                                                          \
    do {                                                                                              \
        long long got = (long long)(call);                                                            \
        if (got != (long long)(wanted)) {                                                             \
            fprintf(stderr, "line %d: %s: expected %lld, got %lld\n", __LINE__, #call,                \
                    (long long)(wanted), got);                                                        \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

#define LEN 100000

static unsigned char source[LEN], room[LEN + 10];

static int set_up(mooncake_store_t store, const char *name, uint64_t segment, const char *master) {
    return mooncake_store_setup(store, name, "P2PHANDSHAKE", segment, 1 << 20, "tcp", "", master);
}

static void before_the_setup(void) {
    const char *keys[] = {"a"};
    void *buffers[] = {source};
    size_t sizes[] = {1};
    int codes[] = {7};
    char name[8] = "?";
    mooncake_store_t store = mooncake_store_create();
    EXPECT(store != NULL, 1);
    EXPECT(mooncake_store_health_check(store), 1);
    EXPECT(mooncake_store_get_hostname(store, name, sizeof name), 0);
    EXPECT(name[0], 0);
    EXPECT(mooncake_store_is_exist(store, "a"), -600);
    EXPECT(mooncake_store_batch_is_exist(store, keys, 1, codes), 0);
    EXPECT(codes[0], -600);
    EXPECT(mooncake_store_batch_put_from(store, keys, buffers, sizes, 1, NULL, codes), 0);
    EXPECT(codes[0], -600);
    EXPECT(mooncake_store_init_all(store, "tcp", "", 0), -600);
    mooncake_store_destroy(store);
    EXPECT(mooncake_store_is_exist(store, "a"), -600);
    mooncake_store_destroy(store);
    mooncake_store_destroy(NULL);
}

static void bad_arguments(mooncake_store_t store) {
    const char *keys[] = {"x", NULL};
    void *buffers[] = {source, source};
    size_t sizes[] = {1, 1};
    int codes[] = {7, 7};
    mooncake_replicate_config_t zero = {0};
    EXPECT(mooncake_store_health_check(NULL), -1);
    EXPECT(mooncake_store_put(NULL, "k", source, 1, NULL), -1);
    EXPECT(mooncake_store_put(store, NULL, source, 1, NULL), -1);
    EXPECT(mooncake_store_put(store, "k", NULL, 1, NULL), -1);
    EXPECT(mooncake_store_put(store, "k", source, 0, NULL), -600);
    EXPECT(mooncake_store_put(store, "", source, 1, NULL), -600);
    EXPECT(mooncake_store_put(store, "k", source, 1, &zero), -600);
    EXPECT(mooncake_store_put_from(store, "k", NULL, 0, NULL), 0);
    EXPECT(mooncake_store_is_exist(store, "k"), 0);
    EXPECT(mooncake_store_batch_put_from(store, keys, buffers, sizes, 2, NULL, codes), -1);
    EXPECT(codes[0], 7);
    EXPECT(mooncake_store_is_exist(store, "x"), 0);
    EXPECT(mooncake_store_batch_put_from(store, keys, buffers, sizes, 0, NULL, codes), 0);
    EXPECT(mooncake_store_batch_put_from(store, NULL, buffers, sizes, 0, NULL, codes), -1);
    EXPECT(mooncake_store_remove_by_regex(store, NULL, 0), -1);
    EXPECT(mooncake_store_remove_by_regex(store, "[", 0), -600);
    EXPECT(mooncake_store_register_buffer(store, NULL, 1), -1);
    EXPECT(mooncake_store_register_buffer(store, source, 0), -1);
    EXPECT(mooncake_store_unregister_buffer(store, NULL), -600);
    EXPECT(mooncake_store_register_buffer(store, source, LEN), 0);
    EXPECT(mooncake_store_register_buffer(store, source + 5, 5), -600);
    EXPECT(mooncake_store_unregister_buffer(store, source), 0);
}

static void objects(mooncake_store_t store) {
    const char *keys[] = {"b", "c", "b"};
    void *buffers[] = {source, source + 1, source + 2};
    size_t sizes[] = {LEN - 10, 0, 50};
    int codes[3];
    int64_t lengths[3];
    const char *names[] = {NULL, "nowhere:1"};
    mooncake_replicate_config_t pinned = {2, 1, 1, names, 2};
    EXPECT(mooncake_store_put(store, "a", source, LEN, &pinned), 0);
    EXPECT(mooncake_store_is_exist(store, "a"), 1);
    EXPECT(mooncake_store_get_size(store, "a"), LEN);
    EXPECT(mooncake_store_get_into(store, "a", room, LEN - 1), -600);
    EXPECT(mooncake_store_get_into(store, "a", room, LEN + 10), LEN);
    EXPECT(memcmp(room, source, LEN), 0);
    EXPECT(room[LEN], 0);
    EXPECT(mooncake_store_get_into(store, "nothing", room, LEN), -704);
    EXPECT(mooncake_store_remove(store, "a", 0), -706);
    EXPECT(mooncake_store_remove(store, "a", 1), 0);
    EXPECT(mooncake_store_remove(store, "a", 1), -704);

    /* Of equal keys the last one's bytes are stored. */
    EXPECT(mooncake_store_batch_put_from(store, keys, buffers, sizes, 3, NULL, codes), 0);
    EXPECT(codes[0] == 0 && codes[1] == -600 && codes[2] == 0, 1);
    EXPECT(mooncake_store_batch_is_exist(store, keys, 3, codes), 0);
    EXPECT(codes[0] == 1 && codes[1] == 0 && codes[2] == 1, 1);
    void *rooms[] = {room, room, room + 60};
    size_t lens[] = {60, 60, 60};
    memset(room, 9, sizeof room);
    EXPECT(mooncake_store_batch_get_into(store, keys, rooms, lens, 3, lengths), 0);
    EXPECT(lengths[0] == 50 && lengths[1] == -704 && lengths[2] == 50, 1);
    EXPECT(room[0], 9);
    EXPECT(memcmp(room + 60, source + 2, 50), 0);

    EXPECT(mooncake_store_put(store, "d1", source, 5, NULL), 0);
    EXPECT(mooncake_store_put(store, "d2", source, 5, NULL), 0);
    EXPECT(mooncake_store_remove_by_regex(store, "^d[0-9]$", 0), 2);
    EXPECT(mooncake_store_remove_all(store, 0), 0);
    EXPECT(mooncake_store_remove_all(store, 1), 1);
}

static void calls(const char *master) {
    char name[16];
    before_the_setup();
    mooncake_store_t store = mooncake_store_create();
    EXPECT(set_up(store, "", 0, master), -600);
    EXPECT(mooncake_store_setup(store, "127.0.0.1:1", NULL, 0, 0, "tcp", "", master), -600);
    EXPECT(mooncake_store_setup(store, "127.0.0.1:1", "P2PHANDSHAKE", 0, 0, "bogus", "", master), -600);
    EXPECT(set_up(store, "127.0.0.1:1", 100, master), -600);
    EXPECT(set_up(store, "127.0.0.1:1", 0, "127.0.0.1:1"), -600);
    EXPECT(set_up(store, "127.0.0.1:17", 16 << 20, master), 0);
    EXPECT(mooncake_store_get_hostname(store, name, 12), -1);
    EXPECT(mooncake_store_get_hostname(store, name, 13), 0);
    EXPECT(strcmp(name, "127.0.0.1:17"), 0);
    EXPECT(mooncake_store_health_check(store), 0);
    bad_arguments(store);
    objects(store);
    /* A second setup replaces the client: its objects are gone. */
    EXPECT(mooncake_store_put(store, "old", source, 5, NULL), 0);
    EXPECT(set_up(store, "127.0.0.1", 16 << 20, master), 0);
    EXPECT(mooncake_store_is_exist(store, "old"), 0);
    mooncake_store_destroy(store);
    EXPECT(mooncake_store_get_size(store, "old"), -600);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const char *mode = argv[1], *master = argv[2];
    for (size_t i = 0; i < LEN; i++)
        source[i] = (unsigned char)(i * 7 + i / 251 + 1);
    if (!strcmp(mode, "calls")) {
        calls(master);
        return 0;
    }
    mooncake_store_t store = mooncake_store_create();
    if (!strcmp(mode, "refused")) {
        EXPECT(set_up(store, "127.0.0.1", 16 << 20, master), -600);
        return 0;
    }
    EXPECT(set_up(store, "127.0.0.1", !strcmp(mode, "read") ? 0 : 16 << 20, master), 0);
    if (!strcmp(mode, "own")) {
        EXPECT(mooncake_store_put_from(store, "shared", source, LEN, NULL), 0);
        puts("ready");
        fflush(stdout);
        getchar();
        EXPECT(mooncake_store_get_into(store, "back", room, LEN), 5000);
        EXPECT(memcmp(room, source + 3, 5000), 0);
    } else if (!strcmp(mode, "read")) {
        EXPECT(mooncake_store_get_into(store, "shared", room, sizeof room), LEN);
        EXPECT(memcmp(room, source, LEN), 0);
        EXPECT(mooncake_store_put_from(store, "back", source + 3, 5000, NULL), 0);
    } else if (!strcmp(mode, "faulty")) {
        EXPECT(mooncake_store_put(store, "broken", source, 5, NULL), -900);
        EXPECT(mooncake_store_put(store, "whole", source, 5, NULL), 0);
    } else {
        return 2;
    }
    mooncake_store_destroy(store);
    return 0;
}
