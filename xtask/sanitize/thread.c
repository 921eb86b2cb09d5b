/*
 * Tells ThreadSanitizer what the standard library's locks do.
 *
 * The library comes compiled without the sanitizer. Most of it is generic or inline, so it is compiled with what uses it, and
 * watched; these functions are not. The linker puts each of ours in front of one of them (`--wrap`); the compiler is given their
 * mangled names as macros. `probe.rs` tells whether all this fits the compiler's release.
 *
 * `Arc` and `mpsc` have fences, which the sanitizer does not know, behind decrements that release. So decrements acquire too.
 */
#include <stdint.h>

void __tsan_acquire(void *at);
void __tsan_release(void *at);

typedef uintptr_t Word;
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define REAL(name) JOIN(__real_, name)
#define WRAP(name) JOIN(__wrap_, name)
#define ARGUMENTS Word b, Word c, Word d, Word e, Word f

/* A lock that is waited for: whoever gets it sees what was done under it. */
#define ACQUIRES(name)                                                                                                 \
    Word REAL(name)(Word, ARGUMENTS);                                                                                  \
    Word WRAP(name)(Word a, ARGUMENTS) {                                                                               \
        Word result = REAL(name)(a, b, c, d, e, f);                                                                    \
        __tsan_acquire((void *)a);                                                                                     \
        return result;                                                                                                 \
    }
ACQUIRES(MUTEX_LOCK)
ACQUIRES(READ)
ACQUIRES(WRITE)

/* Lets go of its mutex, the second argument, and takes it again. */
#define WAITS(name)                                                                                                    \
    Word REAL(name)(Word, ARGUMENTS);                                                                                  \
    Word WRAP(name)(Word a, ARGUMENTS) {                                                                               \
        __tsan_release((void *)b);                                                                                     \
        Word result = REAL(name)(a, b, c, d, e, f);                                                                    \
        __tsan_acquire((void *)b);                                                                                     \
        return result;                                                                                                 \
    }
WAITS(CONDVAR_WAIT)
WAITS(CONDVAR_WAIT_TIMEOUT)

/* All see what all did before. */
Word REAL(BARRIER_WAIT)(Word, ARGUMENTS);
Word WRAP(BARRIER_WAIT)(Word a, ARGUMENTS) {
    __tsan_release((void *)a);
    Word result = REAL(BARRIER_WAIT)(a, b, c, d, e, f);
    __tsan_acquire((void *)a);
    return result;
}

/* A scope's thread ends. Who waits reads a field; which one is the compiler's choice. */
Word REAL(SCOPE_END)(Word, ARGUMENTS);
Word WRAP(SCOPE_END)(Word a, ARGUMENTS) {
    for (Word at = 0; at < 24; at += 8) __tsan_release((void *)(a + at));
    return REAL(SCOPE_END)(a, b, c, d, e, f);
}

/* `Once::call(&self, bool, &mut dyn FnMut(&OnceState))`: what the closure did is seen by who finds it done. */
typedef void Method(Word, Word);
struct Closure {
    Word data;
    Method *const *table;
    void *once;
};
static void once_called(struct Closure *closure, Word state, int slot) {
    closure->table[slot](closure->data, state);
    __tsan_release(closure->once);
}
static void called_3(Word closure, Word state) { once_called((struct Closure *)closure, state, 3); }
static void called_4(Word closure, Word state) { once_called((struct Closure *)closure, state, 4); }
static const Word TABLE[5] = {0, sizeof(struct Closure), 8, (Word)called_3, (Word)called_4};

Word REAL(ONCE_CALL)(Word, ARGUMENTS);
Word WRAP(ONCE_CALL)(Word a, ARGUMENTS) {
    struct Closure closure = {c, (Method *const *)d, (void *)a};
    Word result = REAL(ONCE_CALL)(a, b, (Word)&closure, (Word)TABLE, e, f);
    __tsan_acquire((void *)a);
    return result;
}

enum { RELEASE = 3, ACQUIRE_RELEASE = 4 };
#define DECREMENTS(bits)                                                                                               \
    uint##bits##_t __real___tsan_atomic##bits##_fetch_sub(volatile uint##bits##_t *, uint##bits##_t, int);             \
    uint##bits##_t __wrap___tsan_atomic##bits##_fetch_sub(volatile uint##bits##_t *at, uint##bits##_t by, int order) { \
        return __real___tsan_atomic##bits##_fetch_sub(at, by, order == RELEASE ? ACQUIRE_RELEASE : order);             \
    }
DECREMENTS(32)
DECREMENTS(64)
