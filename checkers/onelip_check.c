/* onelip_check: a second checker of onelip's certificates, in C and in integers only.
 *
 *     cc -O2 -o onelip_check onelip_check.c
 *     ./onelip_check images.cert [--images N]
 *
 * It knows docs/certificate_format.md and nothing else: no library but libc, no floating-point arithmetic. A number n
 * stands for n U with U = 2^-40, is below 2^22 (so that n fits 62 bits), and products are 128 bits wide. It needs gcc or
 * clang on a 64-bit processor, for their type __int128.
 *
 * Exit code 0: everything follows. 1: something does not. 2: wrong use. 3: nothing wrong in the part that was checked.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;
typedef unsigned __int128 uwide;

enum { BITS = 40, DEPTH = 32, ENTRIES = 1 << 15 }; /* of JSON: brackets in each other, entries between two */
static const int64_t ONE = (int64_t)1 << BITS;
static const int64_t LARGEST = (int64_t)1 << 62;       /* every number of the file is below, in units of U */
static const int64_t LARGEST_ROW = (int64_t)1 << 60;   /* the sum of the magnitudes in a row of weights */
static const int64_t LARGEST_VALUE = (int64_t)1 << 55; /* activations */
static const int64_t LONGEST = (int64_t)1 << 26;       /* entries of a vector */

static char place[64] = ""; /* what is being checked, for the message of `need` */

static void need(int condition, const char *message, ...) {
    if (condition) return;
    va_list arguments;
    va_start(arguments, message);
    printf("NOT CHECKED: %s", place);
    vprintf(message, arguments);
    printf("\n");
    exit(1);
}

static void *allocated(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    need(memory != NULL, "there is not enough memory");
    return memory;
}

/* Quotient by 2^40, rounded upwards; the result is a number of the kind above. */
static int64_t up(uwide number) {
    uwide quotient = (number >> BITS) + ((number & (ONE - 1)) != 0);
    need(quotient < (uwide)LARGEST, "a number is too large");
    return (int64_t)quotient;
}

/* Square root, rounded upwards, bit by bit. */
static int64_t root(uwide number) {
    uint64_t found = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t candidate = found | (uint64_t)1 << bit;
        if ((uwide)candidate * candidate <= number) found = candidate;
    }
    uwide result = (uwide)found + ((uwide)found * found < number);
    need(result < (uwide)LARGEST, "a number is too large");
    return (int64_t)result;
}

/* ---- SHA-256 (FIPS 180-4) ---- */

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha_block(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) + choice + ROUND[i] + w[i];
        uint32_t two = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

static void sha256(const unsigned char *data, size_t length, char hex[65]) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t whole = length / 64 * 64, rest = length - whole, last = rest < 56 ? 64 : 128;
    unsigned char tail[128] = {0};
    for (size_t at = 0; at < whole; at += 64) sha_block(state, data + at);
    memcpy(tail, data + whole, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++) tail[last - 1 - i] = (unsigned char)((uint64_t)length * 8 >> 8 * i);
    for (size_t at = 0; at < last; at += 64) sha_block(state, tail + at);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", state[i]);
}

/* ---- JSON of objects, lists, strings without escapes and integers of at most 10 digits ---- */

typedef struct Json {
    enum { OBJECT, LIST, STRING, INTEGER } kind;
    char *text;           /* of a string */
    int64_t number;       /* of an integer */
    struct Json *entries; /* of an object or a list */
    char **keys;          /* of an object */
    int count;
} Json;

typedef struct {
    const char *at, *end;
} Reader;

static void skip(Reader *reader) {
    while (reader->at < reader->end && *reader->at && strchr(" \t\r\n", *reader->at)) reader->at++;
}

static int accept(Reader *reader, char wanted) {
    skip(reader);
    if (reader->at == reader->end || *reader->at != wanted) return 0;
    reader->at++;
    return 1;
}

static char *json_string(Reader *reader) {
    need(accept(reader, '"'), "JSON: a string is missing");
    const char *start = reader->at;
    while (reader->at < reader->end && *reader->at != '"') {
        need((signed char)*reader->at >= 32 && *reader->at != '\\', "JSON: text must be ASCII without escapes");
        reader->at++;
    }
    need(reader->at < reader->end, "JSON: a string does not end");
    size_t length = (size_t)(reader->at++ - start);
    char *text = allocated(length + 1, 1);
    memcpy(text, start, length);
    return text;
}

static Json json_value(Reader *reader, int depth) {
    Json value = {0};
    need(depth < DEPTH, "JSON: too many brackets");
    skip(reader);
    need(reader->at < reader->end, "JSON: a value is missing");
    char first = *reader->at;
    if (first == '"') {
        value.kind = STRING;
        value.text = json_string(reader);
    } else if (first >= '0' && first <= '9') {
        const char *start = reader->at;
        value.kind = INTEGER;
        for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
            need(reader->at - start < 10, "JSON: numbers must be integers from 0 of at most 10 digits");
            value.number = 10 * value.number + (*reader->at - '0');
        }
        need(first != '0' || reader->at - start == 1, "JSON: a number begins with 0");
    } else {
        need(first == '{' || first == '[', "JSON: values are objects, lists, strings and integers from 0");
        value.kind = first == '{' ? OBJECT : LIST;
        char close = first == '{' ? '}' : ']';
        int room = 0;
        reader->at++;
        if (accept(reader, close)) return value;
        do {
            need(value.count < ENTRIES, "JSON: too many entries");
            if (value.count == room) {
                room = 2 * room + 8;
                value.entries = realloc(value.entries, (size_t)room * sizeof(Json));
                value.keys = realloc(value.keys, (size_t)room * sizeof(char *));
                need(value.entries != NULL && value.keys != NULL, "there is not enough memory");
            }
            if (value.kind == OBJECT) {
                char *key = value.keys[value.count] = json_string(reader);
                for (int i = 0; i < value.count; i++) need(strcmp(value.keys[i], key) != 0, "JSON: a key occurs twice");
                need(accept(reader, ':'), "JSON: a colon is missing");
            }
            Json entry = json_value(reader, depth + 1);
            value.entries[value.count++] = entry;
        } while (accept(reader, ','));
        need(accept(reader, close), "JSON: a bracket is not closed");
    }
    return value;
}

static Json json(const unsigned char *text, size_t length) {
    Reader reader = {(const char *)text, (const char *)text + length};
    Json value = json_value(&reader, 0);
    skip(&reader);
    need(reader.at == reader.end, "JSON: something follows the end");
    return value;
}

static Json *found(Json *object, const char *key) {
    for (int i = 0; object->kind == OBJECT && i < object->count; i++)
        if (strcmp(object->keys[i], key) == 0) return &object->entries[i];
    return NULL;
}

/* An object with the fields named, those after a '?' may be missing, and no others. */
static void fields(Json *object, const char *names, const char *what) {
    char copy[128], *rest = copy;
    int known = 0;
    need(object && object->kind == OBJECT, "%s must be a JSON object", what);
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name; (name = strtok(rest, " ")) != NULL; rest = NULL) {
        int optional = *name == '?', there = found(object, name + optional) != NULL;
        need(optional || there, "%s lacks %s", what, name);
        known += there;
    }
    need(known == object->count, "%s has unknown fields", what);
}

static int64_t integer(Json *value, int64_t least, const char *what) {
    need(value && value->kind == INTEGER && value->number >= least, "%s must be an integer from %d", what, (int)least);
    return value->number;
}

static void counts(Json *list, int length, int64_t least, int64_t *result, const char *what) {
    need(list && list->kind == LIST && list->count == length, "%s must be a list of %d integers", what, length);
    for (int i = 0; i < length; i++) result[i] = integer(&list->entries[i], least, what);
}

static const char *string(Json *value, const char *what) {
    need(value && value->kind == STRING, "%s must be a string", what);
    return value->text;
}

/* ---- The file ---- */

typedef struct {
    const char *name, *kind;
    int dimensions, used;
    int64_t shape[4], count;
    const unsigned char *data;
    size_t size;
} Tensor;

static Tensor *tensors;
static int tensor_count;

static int width_of(const char *kind) {
    if (!strcmp(kind, "F64") || !strcmp(kind, "I64")) return 8;
    if (!strcmp(kind, "F32") || !strcmp(kind, "I32")) return 4;
    need(!strcmp(kind, "U8"), "a dtype is none of F32, F64, I32, I64, U8");
    return 1;
}

static uint64_t little(const unsigned char *data, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++) value |= (uint64_t)data[i] << 8 * i;
    return value;
}

static int by_place(const void *one, const void *other) {
    const unsigned char *a = ((const Tensor *)one)->data, *b = ((const Tensor *)other)->data;
    return (a > b) - (a < b);
}

static Tensor *take(Json *name, const char *kinds, int dimensions) {
    const char *wanted = string(name, "the name of a tensor");
    for (int i = 0; i < tensor_count; i++) {
        Tensor *tensor = &tensors[i];
        if (strcmp(tensor->name, wanted) != 0 || tensor->used) continue;
        need(strstr(kinds, tensor->kind) != NULL, "tensor %s must have the type %s", wanted, kinds);
        need(tensor->dimensions == dimensions, "tensor %s must have %d dimensions", wanted, dimensions);
        tensor->used = 1;
        return tensor;
    }
    need(0, "there is no tensor %s, or it is used twice", wanted);
    return NULL;
}

static Tensor *take_named(const char *name, const char *kinds, int dimensions) {
    Json text = {.kind = STRING, .text = (char *)name};
    return take(&text, kinds, dimensions);
}

/* A float of 4 or 8 bytes as a multiple of U, rounded downwards, or upwards; says whether it had to be rounded. */
static int64_t units(const unsigned char *data, int width, int upwards, int *rounded) {
    uint64_t bits = little(data, width);
    int fraction_bits = width == 8 ? 52 : 23, exponent_bits = width == 8 ? 11 : 8;
    uint64_t fraction = bits & (((uint64_t)1 << fraction_bits) - 1);
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1), negative = (int)(bits >> (8 * width - 1));
    need(exponent != (1 << exponent_bits) - 1, "a tensor holds an infinity or NaN");
    if (exponent != 0) fraction |= (uint64_t)1 << fraction_bits;
    /* the value is fraction 2^shift units */
    int shift = (exponent ? exponent : 1) - ((1 << (exponent_bits - 1)) - 1) - fraction_bits + BITS;
    *rounded = 0;
    if (fraction == 0) return 0;
    if (shift >= 0) {
        need(shift < 62 && fraction < (uint64_t)LARGEST >> shift, "a tensor holds a number of 2^22 or more");
        return negative ? -(int64_t)(fraction << shift) : (int64_t)(fraction << shift);
    }
    uint64_t whole = shift > -64 ? fraction >> -shift : 0;
    need(whole < (uint64_t)LARGEST, "a tensor holds a number of 2^22 or more");
    *rounded = shift <= -64 || whole << -shift != fraction;
    int away = *rounded && (negative != upwards); /* towards the larger magnitude */
    return negative ? -(int64_t)(whole + away) : (int64_t)(whole + away);
}

static int64_t *numbers(Tensor *tensor, int upwards, int64_t *rounded) {
    int64_t *result = allocated((size_t)tensor->count, sizeof *result), count = 0;
    int width = width_of(tensor->kind), inexact;
    for (int64_t i = 0; i < tensor->count; i++) {
        result[i] = units(tensor->data + i * width, width, upwards, &inexact);
        count += inexact;
    }
    if (rounded) *rounded = count;
    return result;
}

static int64_t *integers(Tensor *tensor) {
    int64_t *result = allocated((size_t)tensor->count, sizeof *result);
    int width = width_of(tensor->kind);
    for (int64_t i = 0; i < tensor->count; i++) {
        uint64_t bits = little(tensor->data + i * width, width);
        result[i] = width == 4 ? (int64_t)(int32_t)(uint32_t)bits : (int64_t)bits;
    }
    return result;
}

static Json read_file(const unsigned char *data, size_t size) {
    need(size >= 8, "the file is shorter than a safetensors file can be");
    uint64_t length = little(data, 8);
    need(length <= size - 8 && length <= 1 << 24, "the header is longer than the file or 16 MiB");
    Json header = json(data + 8, length), *metadata = found(&header, "__metadata__");
    fields(metadata, "certificate_sha256", "__metadata__");
    tensors = allocated((size_t)header.count, sizeof *tensors);
    const unsigned char *body = data + 8 + length, *next = body;
    for (int i = 0; i < header.count; i++) {
        Json *entry = &header.entries[i], *shape;
        if (entry == metadata) continue;
        Tensor *tensor = &tensors[tensor_count++];
        fields(entry, "dtype shape data_offsets", "a tensor");
        shape = found(entry, "shape");
        need(shape->kind == LIST && shape->count > 0 && shape->count <= 4, "a tensor must have one to four dimensions");
        int64_t offsets[2];
        counts(found(entry, "data_offsets"), 2, 0, offsets, "data_offsets");
        counts(shape, shape->count, 1, tensor->shape, "shape");
        tensor->name = header.keys[i];
        tensor->kind = string(found(entry, "dtype"), "dtype");
        tensor->dimensions = shape->count;
        tensor->count = 1;
        for (int d = 0; d < shape->count; d++)
            need(!__builtin_mul_overflow(tensor->count, tensor->shape[d], &tensor->count), "a tensor is too large");
        need(offsets[0] <= offsets[1] && offsets[1] <= (int64_t)(data + size - body), "a tensor lies outside of the file");
        tensor->size = (size_t)(offsets[1] - offsets[0]);
        need((wide)tensor->count * width_of(tensor->kind) == (wide)tensor->size, "data_offsets do not fit a shape");
        tensor->data = body + offsets[0];
    }
    qsort(tensors, (size_t)tensor_count, sizeof *tensors, by_place);
    for (int i = 0; i < tensor_count; i++) {
        need(tensors[i].data == next, "tensors must fill the file without gaps");
        next += tensors[i].size;
    }
    need(next == data + size, "tensors must fill the file without gaps");

    char hex[65];
    Tensor *text = take_named("certificate", "U8", 1);
    sha256(text->data, text->size, hex);
    need(!strcmp(hex, string(found(metadata, "certificate_sha256"), "a hash")), "SHA-256 of the certificate differs");
    Json certificate = json(text->data, text->size), *hashes;
    fields(&certificate, "format version operations tensors", "the certificate");
    need(!strcmp(string(found(&certificate, "format"), "format"), "onelip certificate"), "format must be \"onelip certificate\"");
    need(integer(found(&certificate, "version"), 0, "version") == 1, "version must be 1");
    hashes = found(&certificate, "tensors");
    need(hashes->kind == OBJECT && hashes->count == tensor_count - 1, "tensors must have a hash for each tensor");
    for (int i = 0; i < tensor_count; i++) {
        if (&tensors[i] == text) continue;
        Json *hash = found(hashes, tensors[i].name);
        sha256(tensors[i].data, tensors[i].size, hex);
        need(hash && !strcmp(hex, string(hash, "a hash")), "SHA-256 of the tensor %s differs", tensors[i].name);
    }
    return certificate;
}

/* ---- Bounds of norms ---- */

typedef struct {
    int64_t rows, columns, height, width, used; /* used: taps that are not zero, their places are in `taps` */
    int64_t *entries;                           /* (y, x, row, column) */
    int64_t *taps;
} Kernel;

typedef struct {
    int64_t outputs, channels, image[2], kernel[2], stride[2], padding[2], out[2], inexact, circular;
    int64_t *weight; /* (output, channel, y, x) */
    int64_t *bias;
} Convolution;

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static Kernel empty_kernel(int64_t rows, int64_t columns, int64_t height, int64_t width) {
    size_t area, size;
    int too_large = __builtin_mul_overflow((size_t)rows, (size_t)columns, &size);
    too_large |= __builtin_mul_overflow((size_t)height, (size_t)width, &area);
    need(!too_large && !__builtin_mul_overflow(size, area, &size), "a kernel is too large");
    Kernel result = {rows, columns, height, width, 0, allocated(size, sizeof(int64_t)), NULL};
    return result;
}

static void find_taps(Kernel *kernel) {
    int64_t size = kernel->rows * kernel->columns;
    kernel->taps = allocated((size_t)(kernel->height * kernel->width), sizeof(int64_t));
    for (int64_t t = 0; t < kernel->height * kernel->width; t++)
        for (int64_t k = 0; k < size; k++)
            if (kernel->entries[t * size + k]) {
                kernel->taps[kernel->used++] = t;
                break;
            }
}

static int64_t *tap(const Kernel *kernel, int64_t y, int64_t x) {
    return kernel->entries + (y * kernel->width + x) * kernel->rows * kernel->columns;
}

/* The convolution of stride 1 on the pixel-unshuffled image, folded on the torus if there is one (torus[0] > 0). */
static Kernel unshuffled(const Convolution *conv, const int64_t torus[2], int input_side) {
    int64_t first[2], side[2], inner = conv->channels * conv->stride[0] * conv->stride[1];
    for (int axis = 0; axis < 2; axis++) {
        first[axis] = torus[0] ? 0 : floor_div(-conv->padding[axis], conv->stride[axis]);
        int64_t last = floor_div(conv->kernel[axis] - 1 - conv->padding[axis], conv->stride[axis]);
        side[axis] = torus[0] ? torus[axis] : last - first[axis] + 1;
    }
    Kernel result = empty_kernel(input_side ? inner : conv->outputs, input_side ? conv->outputs : inner, side[0], side[1]);
    const int64_t *weight = conv->weight;
    for (int64_t o = 0; o < conv->outputs; o++)
        for (int64_t c = 0; c < conv->channels; c++)
            for (int64_t ky = 0; ky < conv->kernel[0]; ky++)
                for (int64_t kx = 0; kx < conv->kernel[1]; kx++) {
                    int64_t at[2] = {ky - conv->padding[0], kx - conv->padding[1]}, shift[2], phase[2];
                    for (int axis = 0; axis < 2; axis++) {
                        shift[axis] = floor_div(at[axis], conv->stride[axis]);
                        phase[axis] = at[axis] - shift[axis] * conv->stride[axis];
                        shift[axis] -= first[axis];
                        if (torus[0]) shift[axis] -= floor_div(shift[axis], torus[axis]) * torus[axis];
                    }
                    int64_t i = (c * conv->stride[0] + phase[0]) * conv->stride[1] + phase[1];
                    int64_t place_of = input_side ? i * conv->outputs + o : o * inner + i;
                    tap(&result, shift[0], shift[1])[place_of] += *weight++;
                }
    return result;
}

static wide dot(const int64_t *a, const int64_t *b, int64_t count) {
    wide sum = 0;
    for (int64_t k = 0; k < count; k++) sum += (wide)a[k] * b[k];
    return sum;
}

/* Adds sum_t |G_ij(t)| to sums[i][j] for i <= j, where G is the autocorrelation of the rows of all kernels. */
static void add_magnitudes(Kernel *kernels, int count, const int64_t torus[2], uwide *sums) {
    int64_t rows = kernels[0].rows, height = 1, width = 1;
    for (int k = 0; k < count; k++) {
        if (kernels[k].height > height) height = kernels[k].height;
        if (kernels[k].width > width) width = kernels[k].width;
    }
    int64_t low_y = torus[0] ? 0 : 1 - height, low_x = torus[0] ? 0 : 1 - width;
    for (int64_t dy = low_y; dy < height; dy++)
        for (int64_t dx = low_x; dx < width; dx++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = i; j < rows; j++) {
                    wide sum = 0;
                    for (int k = 0; k < count; k++) {
                        Kernel *kernel = &kernels[k];
                        for (int64_t t = 0; t < kernel->used; t++) {
                            int64_t y = kernel->taps[t] / kernel->width, x = kernel->taps[t] % kernel->width;
                            int64_t to_y = y + dy, to_x = x + dx;
                            if (torus[0]) to_y %= torus[0], to_x %= torus[1];
                            if (to_y < 0 || to_x < 0 || to_y >= kernel->height || to_x >= kernel->width) continue;
                            sum += dot(tap(kernel, y, x) + i * kernel->columns,
                                       tap(kernel, to_y, to_x) + j * kernel->columns, kernel->columns);
                        }
                    }
                    sums[i * rows + j] += (uwide)(sum < 0 ? -sum : sum);
                    need(sums[i * rows + j] < (uwide)1 << 127, "the sum of a row is too large");
                }
}

/* Upper bound of the norm that follows from the witness, without what rounding took from the weights. */
static int64_t witnessed_norm(Json *witness, const Convolution *conv) {
    int64_t torus[2] = {0, 0}, one = 1;
    fields(witness, "side ?scaling ?columns ?torus", "witness");
    const char *side = string(found(witness, "side"), "side");
    int input_side = !strcmp(side, "input"), kernels = 1;
    need(input_side || !strcmp(side, "output"), "side must be input or output");
    if (found(witness, "torus")) {
        counts(found(witness, "torus"), 2, 1, torus, "torus");
        for (int axis = 0; axis < 2; axis++) {
            int64_t length = conv->image[axis] + (conv->circular ? 0 : 2 * conv->padding[axis]);
            need(torus[axis] == -floor_div(-length, conv->stride[axis]), "torus is not that of the image");
        }
    }
    Kernel parts[2] = {unshuffled(conv, torus, input_side)};
    int64_t rows = parts[0].rows;
    if (found(witness, "columns")) {
        Tensor *tensor = take(found(witness, "columns"), "F32 F64", 4);
        int64_t *values = numbers(tensor, 0, NULL), *shape = tensor->shape;
        need(shape[3] == rows, "columns of a witness must have the last dimension %d", (int)rows);
        need(!torus[0] || (shape[0] <= torus[0] && shape[1] <= torus[1]), "columns of a witness are larger than its torus");
        Kernel *extra = &parts[kernels++];
        *extra = empty_kernel(rows, shape[2], torus[0] ? torus[0] : shape[0], torus[0] ? torus[1] : shape[1]);
        for (int64_t y = 0; y < shape[0]; y++)
            for (int64_t x = 0; x < shape[1]; x++)
                for (int64_t k = 0; k < shape[2]; k++)
                    for (int64_t i = 0; i < rows; i++) tap(extra, y, x)[i * shape[2] + k] = *values++;
    }
    for (int64_t i = 0; i < rows; i++) {
        uwide total = 0;
        for (int part = 0; part < kernels; part++)
            for (int64_t t = 0; t < parts[part].height * parts[part].width; t++)
                for (int64_t k = 0; k < parts[part].columns; k++)
                    total += (uwide)llabs(tap(&parts[part], 0, t)[i * parts[part].columns + k]);
        need(total < (uwide)LARGEST_ROW, "a row of weights and witness has magnitudes of 2^20 or more in all");
    }
    int64_t *scaling = NULL;
    if (found(witness, "scaling")) {
        Tensor *tensor = take(found(witness, "scaling"), "I32", 1);
        need(tensor->count == rows, "scaling of a witness must be %d positive integers", (int)rows);
        scaling = integers(tensor);
        for (int64_t i = 0; i < rows; i++) need(scaling[i] > 0, "scaling of a witness must be positive integers");
    }
    uwide *sums = allocated((size_t)rows * (size_t)rows, sizeof *sums), largest = 0;
    for (int part = 0; part < kernels; part++) find_taps(&parts[part]);
    add_magnitudes(parts, kernels, torus, sums);
    for (int64_t i = 0; i < rows; i++) {
        uwide total = 0, product;
        for (int64_t j = 0; j < rows; j++) {
            uwide magnitude = i <= j ? sums[i * rows + j] : sums[j * rows + i];
            int overflow = __builtin_mul_overflow(magnitude, (uwide)(scaling ? scaling[j] : one), &product);
            need(!overflow && product < (uwide)1 << 127 && total + product < (uwide)1 << 127, "the sum of a row is too large");
            total += product;
        }
        uwide divisor = (uwide)(scaling ? scaling[i] : one), quotient = (total + divisor - 1) / divisor;
        if (quotient > largest) largest = quotient;
    }
    for (int part = 0; part < kernels; part++) free(parts[part].entries), free(parts[part].taps);
    free(sums);
    return root(largest);
}

/* ---- Operations ---- */

typedef struct {
    enum { LINEAR, CONVOLUTION, RESIDUAL, SANDWICH, GATHER, SORT, RELU, ABS } kind;
    int64_t rest, length, constant; /* entries that stay; entries of the output; claimed bound, rounded upwards */
    int64_t norm, group, *index;
    Convolution conv, adjoint;
} Operation;

static int64_t magnitude(const int64_t *values, int64_t count) {
    int64_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (llabs(values[i]) > largest) largest = llabs(values[i]);
    return largest;
}

static int64_t read_place(const Convolution *conv, int64_t at, int64_t tap_at, int axis) {
    int64_t read = at * conv->stride[axis] + tap_at - conv->padding[axis], side = conv->image[axis];
    if (conv->circular) return read - floor_div(read, side) * side;
    return read >= 0 && read < side ? read : -1;
}

/* Weights times patches plus bias, rounded downwards; the error that this makes. */
static int64_t convolve(const Convolution *conv, const int64_t *values, int64_t *result) {
    int64_t area = conv->kernel[0] * conv->kernel[1], each = conv->channels * area, pixels = conv->image[0] * conv->image[1];
    int64_t outside = conv->out[0] * conv->out[1], inputs = conv->channels * pixels;
    int64_t size = magnitude(values, inputs), *patch = allocated((size_t)each, sizeof *patch);
    need(size < LARGEST_VALUE, "an activation reaches 2^15");
    for (int64_t o = 0; o < conv->outputs; o++) {
        uwide total = 0, product; /* a row of an adjoint is a column of the file's weights: its total can be large */
        for (int64_t k = 0; k < each; k++) total += (uwide)llabs(conv->weight[o * each + k]);
        need(!__builtin_mul_overflow(total, (uwide)size, &product) &&
                 (product >> BITS) + (uwide)llabs(conv->bias[o]) < (uwide)LARGEST_VALUE,
             "an activation may reach 2^15");
    }
    for (int64_t at = 0; at < outside; at++) {
        for (int64_t t = 0; t < area; t++) {
            int64_t y = read_place(conv, at / conv->out[1], t / conv->kernel[1], 0);
            int64_t x = read_place(conv, at % conv->out[1], t % conv->kernel[1], 1);
            for (int64_t c = 0; c < conv->channels; c++)
                patch[c * area + t] = y < 0 || x < 0 ? 0 : values[c * pixels + y * conv->image[1] + x];
        }
        for (int64_t o = 0; o < conv->outputs; o++) {
            wide sum = dot(conv->weight + o * each, patch, each) + (wide)conv->bias[o] * ONE;
            result[o * outside + at] = (int64_t)(sum >> BITS); /* downwards, also for negative sums */
        }
    }
    free(patch);
    uwide lost = (uwide)root((uwide)inputs) * (uwide)size, product;
    need(!__builtin_mul_overflow(lost, (uwide)conv->inexact, &product), "a number is too large");
    return 2 * root((uwide)(conv->outputs * outside)) + up(product);
}

static Convolution read_convolution(Json *entry, int kind, int64_t length) {
    Convolution conv = {.kernel = {1, 1}, .stride = {1, 1}};
    Tensor *weight = take(found(entry, "weight"), "F32 F64", kind == LINEAR ? 2 : 4);
    conv.weight = numbers(weight, 0, &conv.inexact);
    conv.outputs = weight->shape[0];
    conv.channels = weight->shape[1];
    int64_t image[3] = {conv.channels, 1, 1}, behind = 0; /* channels of the weight that no input has */
    if (kind == SANDWICH) behind = integer(found(entry, "outputs"), 1, "outputs");
    if (kind != LINEAR) {
        const char *mode = string(found(entry, "mode"), "mode");
        counts(found(entry, "image"), 3, 1, image, "image");
        conv.circular = !strcmp(mode, "circular");
        need(conv.circular || !strcmp(mode, "zeros"), "mode must be zeros or circular");
        for (int axis = 0; axis < 2; axis++) {
            conv.kernel[axis] = weight->shape[2 + axis];
            conv.padding[axis] = conv.kernel[axis] / 2;
        }
    }
    if (kind == CONVOLUTION) {
        counts(found(entry, "stride"), 2, 1, conv.stride, "stride");
        counts(found(entry, "padding"), 2, 0, conv.padding, "padding");
    }
    need(image[0] + behind == conv.channels && (wide)image[0] * image[1] * image[2] == length,
         "image does not fit the weight or what comes before");
    for (int axis = 0; axis < 2; axis++) {
        int64_t side = conv.image[axis] = image[1 + axis], size = conv.kernel[axis], pad = conv.padding[axis];
        need(pad < size && size <= side + 2 * pad, "padding must be smaller than the kernel, the kernel fit the padded image");
        need(conv.stride[axis] <= side + 2 * pad, "stride must be no larger than the padded image");
        conv.out[axis] = (side + 2 * pad - size) / conv.stride[axis] + 1;
        need(!conv.circular || (side % conv.stride[axis] == 0 && conv.out[axis] * conv.stride[axis] <= side),
             "circular: the stride must divide the image, the output be no larger");
    }
    need((wide)conv.channels * conv.stride[0] * conv.stride[1] <= LONGEST, "stride makes more than 2^26 channels");
    need((wide)conv.outputs * conv.out[0] * conv.out[1] <= LONGEST, "it has more than 2^26 outputs");
    int64_t each = weight->count / conv.outputs;
    for (int64_t o = 0; o < conv.outputs; o++) {
        uwide total = 0;
        for (int64_t k = 0; k < each; k++) total += (uwide)llabs(conv.weight[o * each + k]);
        need(total < (uwide)LARGEST_ROW, "a row of weights has magnitudes of 2^20 or more in all");
    }
    conv.bias = allocated((size_t)conv.outputs, sizeof *conv.bias);
    if (found(entry, "bias")) {
        Tensor *bias = take(found(entry, "bias"), "F32 F64", 1);
        need(bias->count == conv.outputs, "bias must have %d entries", (int)conv.outputs);
        conv.bias = numbers(bias, 0, NULL);
    }
    return conv;
}

/* The adjoint of what a convolution of stride 1 makes of its channels before `last`. */
static Convolution adjoint_of(const Convolution *conv, int64_t last) {
    Convolution result = *conv;
    int64_t area = conv->kernel[0] * conv->kernel[1];
    result.outputs = last;
    result.channels = conv->outputs;
    result.weight = allocated((size_t)(conv->outputs * last * area), sizeof(int64_t));
    result.bias = allocated((size_t)last, sizeof(int64_t));
    for (int64_t o = 0; o < conv->outputs; o++)
        for (int64_t c = 0; c < last; c++)
            for (int64_t t = 0; t < area; t++)
                result.weight[(c * conv->outputs + o) * area + t] = conv->weight[(o * conv->channels + c) * area + area - 1 - t];
    return result;
}

/* What a convolution makes of its channels from `first` on. */
static Convolution last_channels(const Convolution *conv, int64_t first) {
    Convolution result = *conv;
    int64_t area = conv->kernel[0] * conv->kernel[1], each = (conv->channels - first) * area;
    result.channels = conv->channels - first;
    result.weight = allocated((size_t)(conv->outputs * each), sizeof(int64_t));
    for (int64_t o = 0; o < conv->outputs; o++)
        memcpy(result.weight + o * each, conv->weight + (o * conv->channels + first) * area, (size_t)each * sizeof(int64_t));
    return result;
}

/* Reads an operation on vectors of this length, and checks that its bound follows. */
static Operation read_operation(Json *entry, int64_t length, int64_t claimed) {
    static const char *names[] = {"linear", "convolution", "residual", "sandwich", "gather", "sort", "relu", "abs"};
    static const char *allowed[] = {"op ?rest weight ?bias witness",
                                    "op ?rest weight ?bias image stride padding mode witness",
                                    "op ?rest weight ?bias image mode witness",
                                    "op ?rest weight ?bias image outputs mode witness",
                                    "op ?rest index", "op ?rest group", "op ?rest", "op ?rest"};
    const char *name = string(found(entry, "op"), "op");
    int kind = 0;
    while (kind < 8 && strcmp(name, names[kind]) != 0) kind++;
    need(kind < 8, "op is not known");
    fields(entry, allowed[kind], "the operation");
    Operation operation = {.constant = claimed + 1};
    operation.kind = kind;
    int64_t proven = ONE;
    if (found(entry, "rest")) operation.rest = integer(found(entry, "rest"), 0, "rest");
    need(operation.rest < length, "rest must be smaller than the length");
    operation.length = length -= operation.rest;
    if (kind <= SANDWICH) {
        Convolution *conv = &operation.conv;
        *conv = read_convolution(entry, kind, length);
        operation.norm = proven = witnessed_norm(found(entry, "witness"), conv) + conv->inexact;
        need(operation.norm < LARGEST, "a number is too large");
        operation.length = conv->outputs * conv->out[0] * conv->out[1];
        if (kind >= RESIDUAL) {
            need(conv->out[0] == conv->image[0] && conv->out[1] == conv->image[1], "the kernel must have odd sides");
            int64_t outputs = conv->channels - length / (conv->image[0] * conv->image[1]);
            operation.adjoint = adjoint_of(conv, kind == RESIDUAL ? conv->channels : outputs);
            uwide square = (uwide)operation.norm * (uwide)operation.norm;
            proven = kind == RESIDUAL ? up(square) - ONE : up((square + 1) / 2);
            if (kind == RESIDUAL && proven < ONE) proven = ONE;
            operation.length = operation.adjoint.outputs * conv->image[0] * conv->image[1];
            if (kind == SANDWICH) *conv = last_channels(conv, outputs);
        }
    } else if (kind == GATHER) {
        Tensor *tensor = take(found(entry, "index"), "I32", 1);
        int64_t *copies = allocated((size_t)length, sizeof *copies), most = 0;
        operation.length = tensor->count;
        operation.index = integers(tensor);
        for (int64_t i = 0; i < tensor->count; i++) {
            int64_t from = operation.index[i];
            need(from >= -1 && from < length, "index must hold integers from -1 to the length, exclusive");
            if (from >= 0 && ++copies[from] > most) most = copies[from];
        }
        free(copies);
        proven = root((uwide)most * (uwide)ONE * (uwide)ONE);
    } else if (kind == SORT) {
        operation.group = integer(found(entry, "group"), 2, "group");
        need(length % operation.group == 0, "group must divide the length");
    }
    need(operation.length <= LONGEST - operation.rest, "it has more than 2^26 outputs");
    if (operation.rest && proven < ONE) proven = ONE;
    need(proven <= claimed, "its bound does not follow: %lld units are claimed, %lld are proven", (long long)claimed,
         (long long)proven);
    return operation;
}

/* Outputs for exact inputs, and a bound of the norm of their error. */
static int64_t run(const Operation *operation, const int64_t *values, int64_t count, int64_t *result) {
    memcpy(result, values, (size_t)operation->rest * sizeof *result);
    values += operation->rest, result += operation->rest, count -= operation->rest;
    if (operation->kind <= CONVOLUTION) return convolve(&operation->conv, values, result);
    if (operation->kind <= SANDWICH) {
        const Convolution *conv = &operation->conv;
        int64_t hidden = conv->outputs * conv->out[0] * conv->out[1], *inner = allocated((size_t)hidden, sizeof *inner);
        int64_t error = convolve(conv, values, inner);
        for (int64_t i = 0; i < hidden; i++) inner[i] = inner[i] > 0 ? inner[i] : 0;
        int64_t own = convolve(&operation->adjoint, inner, result);
        for (int64_t i = 0; operation->kind == RESIDUAL && i < count; i++) result[i] = values[i] - result[i];
        free(inner);
        return own + up((uwide)operation->norm * (uwide)error);
    }
    if (operation->kind == GATHER) {
        for (int64_t i = 0; i < operation->length; i++) result[i] = operation->index[i] < 0 ? 0 : values[operation->index[i]];
        return 0;
    }
    if (operation->kind == SORT) {
        int64_t step = count / operation->group;
        memcpy(result, values, (size_t)count * sizeof *result);
        for (int64_t i = 0; i < step; i++)
            for (int64_t j = i + step; j < count; j += step)
                for (int64_t k = j; k > i && result[k] > result[k - step]; k -= step) {
                    int64_t larger = result[k];
                    result[k] = result[k - step];
                    result[k - step] = larger;
                }
        return 0;
    }
    for (int64_t i = 0; i < count; i++) result[i] = operation->kind == ABS ? llabs(values[i]) : values[i] > 0 ? values[i] : 0;
    return 0;
}

/* ---- The whole certificate ---- */

static Operation *operations;
static int operation_count, head; /* operations before the linear map that makes the scores */
static int64_t *head_rows;        /* row of the head that each class is, -1 for none; NULL without a head */

static void find_head(int64_t classes) {
    head_rows = allocated((size_t)classes, sizeof *head_rows);
    for (int64_t j = 0; j < classes; j++) head_rows[j] = j;
    for (int n = operation_count - 1; n >= 0; n--) {
        if (operations[n].rest) break;
        if (operations[n].kind == LINEAR) {
            head = n;
            return;
        }
        if (operations[n].kind != GATHER) break;
        for (int64_t j = 0; j < classes; j++)
            if (head_rows[j] >= 0) head_rows[j] = operations[n].index[head_rows[j]];
    }
    head_rows = NULL;
    head = operation_count;
}

/* Constant of the difference of two scores with respect to what comes before the head. */
static int64_t distance(int64_t one, int64_t other) {
    if (!head_rows) return root((uwide)2 * (uwide)ONE * (uwide)ONE);
    const Convolution *conv = &operations[head].conv;
    uwide squares = 0;
    for (int64_t k = 0; k < conv->channels; k++) {
        int64_t a = head_rows[one] < 0 ? 0 : conv->weight[head_rows[one] * conv->channels + k];
        int64_t b = head_rows[other] < 0 ? 0 : conv->weight[head_rows[other] * conv->channels + k];
        squares += (uwide)((wide)(a - b) * (a - b));
    }
    return root(squares) + conv->inexact;
}

int main(int argc, char **argv) {
    long wanted = -1;
    char *rest = NULL;
    if (argc == 4 && !strcmp(argv[2], "--images")) wanted = strtol(argv[3], &rest, 10);
    if ((argc != 2 && argc != 4) || (argc == 4 && (wanted < 0 || !rest || *rest || rest == argv[3]))) {
        fprintf(stderr, "usage: %s FILE [--images N]\n", argv[0]);
        return 2;
    }
    FILE *file = fopen(argv[1], "rb");
    long size = -1;
    if (file && fseek(file, 0, SEEK_END) == 0) size = ftell(file);
    if (size < 0 || fseek(file, 0, SEEK_SET) != 0) {
        fprintf(stderr, "%s: cannot read %s\n", argv[0], argv[1]);
        return 2;
    }
    unsigned char *data = allocated((size_t)size, 1);
    if (fread(data, 1, (size_t)size, file) != (size_t)size) return 2;
    fclose(file);
    Json certificate = read_file(data, (size_t)size), *entries = found(&certificate, "operations");

    int64_t rounded;
    Tensor *table = take_named("input_scale", "F32 F64", 1);
    int64_t scale = numbers(table, 1, NULL)[0];
    need(table->count == 1 && scale > 0, "input_scale must be one positive number");
    table = take_named("inputs", "F32 F64", 2);
    int64_t *inputs = numbers(table, 0, &rounded), images = table->shape[0], entry_length = table->shape[1];
    need(entries->kind == LIST && entries->count > 0, "operations must be a list that is not empty");
    table = take_named("bounds", "F32 F64", 1);
    need(table->count == entries->count, "bounds must hold one number for each operation");
    int64_t *bounds = numbers(table, 0, NULL), length = entry_length, longest = entry_length;
    operations = allocated((size_t)entries->count, sizeof *operations);
    for (; operation_count < entries->count; operation_count++) {
        snprintf(place, sizeof place, "operation %d: ", operation_count);
        operations[operation_count] = read_operation(&entries->entries[operation_count], length, bounds[operation_count]);
        length = operations[operation_count].rest + operations[operation_count].length;
        if (length > longest) longest = length;
    }
    place[0] = 0;

    int64_t classes = length, constant = ONE;
    table = take_named("scores", "F32 F64", 2);
    need(table->shape[0] == images && table->shape[1] == classes && classes > 1, "scores must have a row per image");
    int64_t *scores = numbers(table, 0, NULL), *columns[4];
    const char *names[4] = {"errors", "margins", "radii", "predictions"};
    for (int i = 0; i < 4; i++) {
        table = take_named(names[i], i < 3 ? "F32 F64" : "I64", 1);
        need(table->count == images, "%s must hold one number per image", names[i]);
        columns[i] = i < 3 ? numbers(table, i > 0, NULL) : integers(table);
    }
    int64_t *errors = columns[0], *margins = columns[1], *radii = columns[2], *predictions = columns[3];
    for (int64_t i = 0; i < images; i++) {
        need(radii[i] >= 0, "radii must not be negative");
        need(predictions[i] >= 0 && predictions[i] < classes, "predictions must be classes");
    }
    for (int i = 0; i < tensor_count; i++) need(tensors[i].used, "the tensor %s is not used", tensors[i].name);
    find_head(classes);
    for (int n = 0; n < head; n++) constant = up((uwide)constant * (uwide)operations[n].constant);

    int64_t done = 0, limit = wanted >= 0 && wanted < images ? wanted : images;
    int64_t *values = allocated((size_t)longest, sizeof *values), *next = allocated((size_t)longest, sizeof *next);
    for (; done < limit; done++) {
        int64_t error = rounded ? root((uwide)entry_length) : 0, count = entry_length;
        memcpy(values, inputs + done * entry_length, (size_t)entry_length * sizeof *values);
        for (int n = 0; n < operation_count; n++) {
            snprintf(place, sizeof place, "image %lld, operation %d: ", (long long)done, n);
            int64_t own = run(&operations[n], values, count, next), *swap = values;
            error = up((uwide)error * (uwide)operations[n].constant) + own;
            need(error < LARGEST, "the error of the scores is too large");
            values = next;
            next = swap;
            count = operations[n].rest + operations[n].length;
        }
        snprintf(place, sizeof place, "image %lld: ", (long long)done);
        int64_t chosen = predictions[done];
        for (int64_t j = 0; j < classes; j++) {
            wide apart = (wide)values[j] - scores[done * classes + j];
            need((apart < 0 ? -apart : apart) + 1 + error <= errors[done],
                 "its scores differ from those of the file by more than their error");
        }
        for (int64_t j = 0; j < classes; j++) {
            if (j == chosen) continue;
            wide margin = (wide)values[chosen] - values[j] - 2 * (wide)error;
            need(margins[done] <= margin, "its margin does not follow from the scores of %d and %d", (int)chosen, (int)j);
            if (radii[done] == 0) continue;
            int64_t reach = up((uwide)radii[done] * (uwide)scale);
            reach = up((uwide)up((uwide)reach * (uwide)distance(chosen, j)) * (uwide)constant);
            need(reach < margin, "its radius does not follow from the scores of %d and %d", (int)chosen, (int)j);
        }
    }
    char hex[65];
    sha256(data, (size_t)size, hex);
    if (done < images)
        printf("partly checked: %d bounds, %lld of %lld images; SHA-256 %s\n", operation_count, (long long)done,
               (long long)images, hex);
    else
        printf("checked: %d bounds, %lld images; SHA-256 %s\n", operation_count, (long long)images, hex);
    return done < images ? 3 : 0;
}
