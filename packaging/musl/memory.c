/* memcmp, memcpy, memmove and memset for the shipped program, in place of musl's.
 *
 * Why:        musl compares byte by byte, and on x86-64 copies short pieces by an instruction that takes dozens of cycles to
 *             begin. A listing compares and copies short keys all the time: with musl's functions it takes more than twice the
 *             processor time (docs/design/0044). Only tools/dist.sh links this; `make build` has glibc's.
 * Invariants: no byte outside of the given ranges is read or written; needs no instruction that not every processor of its
 *             kind has.
 * Not here:   what musl has fast already (memcpy and memset of aarch64).
 *
 * tests/memory.py compares all of them with Python, at every length, distance and overlap that takes another path.
 * A load or store of the ends of a piece may overlap another one: two of 8 bytes do for every length from 8 to 16.
 */
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the order of words is that of a little endian machine"
#endif

typedef uint16_t word2 __attribute__((aligned(1), may_alias));
typedef uint32_t word4 __attribute__((aligned(1), may_alias));
typedef uint64_t word8 __attribute__((aligned(1), may_alias));
typedef uint64_t word16 __attribute__((vector_size(16), aligned(1), may_alias));

#define GET(type, at) (*(const type *)(at))
#define PUT(type, at, value) (*(type *)(at) = (value))

/* From how many bytes on the processor's own loops are faster than ours. */
#define REP_COPY_MIN 4096
#define REP_FILL_MIN 1024

/* The order of two words by their first byte that differs. */
static inline int order(uint64_t left, uint64_t right)
{
    left = __builtin_bswap64(left);
    right = __builtin_bswap64(right);
    return left < right ? -1 : left > right;
}

int memcmp(const void *left_at, const void *right_at, size_t length)
{
    const unsigned char *left = left_at, *right = right_at;
    if (length >= 8) {
        size_t last = length - 8;
        for (size_t i = 0; i < last; i += 8)
            if (GET(word8, left + i) != GET(word8, right + i))
                return order(GET(word8, left + i), GET(word8, right + i));
        return order(GET(word8, left + last), GET(word8, right + last));
    }
    if (length >= 4) {
        uint64_t end_left = GET(word4, left + length - 4), end_right = GET(word4, right + length - 4);
        return order(GET(word4, left) | end_left << 32, GET(word4, right) | end_right << 32);
    }
    if (length == 0)
        return 0;
    /* The first, the middle and the last byte are all that there is. */
    int of_left = left[0] << 16 | left[length / 2] << 8 | left[length - 1];
    int of_right = right[0] << 16 | right[length / 2] << 8 | right[length - 1];
    return of_left - of_right;
}

int bcmp(const void *left, const void *right, size_t length) __attribute__((alias("memcmp")));

/* At most 16 bytes. */
static inline void move_short(unsigned char *to, const unsigned char *from, size_t length)
{
    if (length >= 8) {
        uint64_t first = GET(word8, from), last = GET(word8, from + length - 8);
        PUT(word8, to, first);
        PUT(word8, to + length - 8, last);
    } else if (length >= 4) {
        uint32_t first = GET(word4, from), last = GET(word4, from + length - 4);
        PUT(word4, to, first);
        PUT(word4, to + length - 4, last);
    } else if (length >= 2) {
        uint16_t first = GET(word2, from), last = GET(word2, from + length - 2);
        PUT(word2, to, first);
        PUT(word2, to + length - 2, last);
    } else if (length == 1) {
        *to = *from;
    }
}

typedef struct {
    word16 a, b, c, d;
} block;

static inline block get_block(const unsigned char *from)
{
    return (block){GET(word16, from), GET(word16, from + 16), GET(word16, from + 32), GET(word16, from + 48)};
}

static inline void put_block(unsigned char *to, block got)
{
    PUT(word16, to, got.a);
    PUT(word16, to + 16, got.b);
    PUT(word16, to + 32, got.c);
    PUT(word16, to + 48, got.d);
}

/* More than 64 bytes, to a place that does not begin inside of the source: from the first to the last. What the loop could
 * have overwritten is read before it. */
static inline void move_up(unsigned char *to, const unsigned char *from, size_t length)
{
    word16 head = GET(word16, from);
    block tail = get_block(from + length - 64);
    /* Stores of an aligned place are faster; the 16 bytes of the head cover what is left out. */
    size_t i = 16 - ((uintptr_t)to & 15);
#ifdef __x86_64__
    if (length >= REP_COPY_MIN && (size_t)(from - to) >= length) {
        unsigned char *into = to + i;
        const unsigned char *rest = from + i;
        size_t words = (length - i) / 8;
        __asm__ volatile("rep movsq" : "+D"(into), "+S"(rest), "+c"(words) : : "memory");
        i = length;
    }
#endif
    for (; i + 64 < length; i += 64)
        put_block(to + i, get_block(from + i));
    PUT(word16, to, head);
    put_block(to + length - 64, tail);
}

/* More than 64 bytes, to a place inside of the source: from the last to the first. */
static inline void move_down(unsigned char *to, const unsigned char *from, size_t length)
{
    block head = get_block(from);
    for (size_t i = length; i > 64; i -= 64)
        put_block(to + i - 64, get_block(from + i - 64));
    put_block(to, head);
}

void *memmove(void *to, const void *source, size_t length)
{
    const unsigned char *from = source;
    if (length <= 16) {
        move_short(to, from, length);
    } else if (length <= 32) {
        word16 first = GET(word16, from), last = GET(word16, from + length - 16);
        PUT(word16, to, first);
        PUT(word16, (unsigned char *)to + length - 16, last);
    } else if (length <= 64) {
        word16 a = GET(word16, from), b = GET(word16, from + 16);
        word16 c = GET(word16, from + length - 32), d = GET(word16, from + length - 16);
        PUT(word16, to, a);
        PUT(word16, (unsigned char *)to + 16, b);
        PUT(word16, (unsigned char *)to + length - 32, c);
        PUT(word16, (unsigned char *)to + length - 16, d);
    } else if ((size_t)((unsigned char *)to - from) >= length) {
        move_up(to, from, length);
    } else {
        move_down(to, from, length);
    }
    return to;
}

#ifdef __x86_64__
void *memcpy(void *to, const void *from, size_t length) __attribute__((alias("memmove")));

void *memset(void *at, int value, size_t length)
{
    unsigned char *to = at;
    uint64_t word = 0x0101010101010101u * (unsigned char)value;
    if (length > 16) {
        word16 two = {word, word};
        PUT(word16, to, two);
        PUT(word16, to + length - 16, two);
        size_t i = 16 - ((uintptr_t)to & 15);
        if (length >= REP_FILL_MIN) {
            unsigned char *into = to + i;
            size_t words = (length - i) / 8;
            __asm__ volatile("rep stosq" : "+D"(into), "+c"(words) : "a"(word) : "memory");
        } else {
            for (; i + 16 < length; i += 16)
                PUT(word16, to + i, two);
        }
    } else if (length >= 8) {
        PUT(word8, to, word);
        PUT(word8, to + length - 8, word);
    } else if (length >= 4) {
        PUT(word4, to, (uint32_t)word);
        PUT(word4, to + length - 4, (uint32_t)word);
    } else if (length >= 2) {
        PUT(word2, to, (uint16_t)word);
        PUT(word2, to + length - 2, (uint16_t)word);
    } else if (length == 1) {
        *to = (unsigned char)value;
    }
    return at;
}
#endif
