/* A library as there are many: handles, callbacks, text of its own, transfers that are finished later. */
#ifndef DICE_H
#define DICE_H
#include <stddef.h>

struct dice;

struct dice *dice_new(int sides);
void dice_delete(struct dice *dice);
/* Fills values and returns how many. */
int dice_roll(struct dice *dice, int *values, size_t count);
/* Good until the dice are deleted. */
const char *dice_name(struct dice *dice);
/* To be freed with dice_free. */
char *dice_describe(struct dice *dice);
void dice_free(char *text);
/* Good until the thread asks again. */
const char *dice_last_word(void);
/* Calls back for each roll, and adds up what comes back. */
int dice_each(struct dice *dice, int count, int (*seen)(void *data, int value, const char *text), void *data);
/* Calls back whenever anything rolls, from now on. */
void dice_on_roll(struct dice *dice, void (*rolled)(void *data, int value), void *data);
/* Calls back with all values at once, and as many names. */
void dice_summary(struct dice *dice, void (*summary)(const int *values, int count, char **names));
double dice_average(const struct dice *dice);
/* Begins to roll into values; dice_finish returns how many bytes have arrived. */
int dice_start(struct dice *dice, void *request, int *values, size_t count);
int dice_finish(struct dice *dice, void *request);

#endif
