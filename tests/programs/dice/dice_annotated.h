/* The same with what crosses the interface. */
#include "dice.h"
#include "hindcast.h"

struct dice *dice_new(int sides);
void dice_delete(struct dice *dice) releases(dice);
int dice_roll(struct dice *dice, out bsize(result * sizeof(int)) int *values, size_t count) fails(minus1);
xpointer(until(dice)) const char *dice_name(struct dice *dice);
xpointer(none) char *dice_describe(struct dice *dice);
void dice_free(unchecked char *text) frees(text);
xpointer(thread) const char *dice_last_word(void);
int dice_each(struct dice *dice, int count, callback(during) int (*seen)(void *data, int value, instr const char *text), void *data);
void dice_on_roll(struct dice *dice, callback(later) void (*rolled)(void *data, int value), void *data);
void dice_summary(struct dice *dice,
                  callback(during) void (*summary)(in bsize(count * 4) const int *values, int count, strings(count) char **names));
double dice_average(const struct dice *dice);
int dice_start(struct dice *dice, void *request, out bsize(count * sizeof(int)) int *values, size_t count) prepare(request, values);
int dice_finish(struct dice *dice, void *request) commit(request, result);
