#define _GNU_SOURCE
#include "dice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct dice {
    int sides;
    long rolls, sum;
    char name[32];
    void (*rolled)(void *data, int value);
    void *data;
    int *values;
    size_t count;
};

static __thread char last_word[64];

static int one(struct dice *dice)
{
    unsigned chance;
    getrandom(&chance, sizeof chance, 0);
    int value = chance % dice->sides + 1;
    dice->rolls++;
    dice->sum += value;
    snprintf(last_word, sizeof last_word, "a %d of %s", value, dice->name);
    if (dice->rolled)
        dice->rolled(dice->data, value);
    return value;
}

struct dice *dice_new(int sides)
{
    struct dice *dice = calloc(1, sizeof *dice);
    unsigned chance;
    getrandom(&chance, sizeof chance, 0);
    dice->sides = sides;
    snprintf(dice->name, sizeof dice->name, "dice %u", chance % 100000);
    return dice;
}

void dice_delete(struct dice *dice) { free(dice); }

int dice_roll(struct dice *dice, int *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = one(dice);
    return count;
}

const char *dice_name(struct dice *dice) { return dice->name; }

char *dice_describe(struct dice *dice)
{
    char *text;
    if (asprintf(&text, "%s, %d sides, rolled %ld times", dice->name, dice->sides, dice->rolls) < 0)
        return NULL;
    return text;
}

void dice_free(char *text) { free(text); }

const char *dice_last_word(void) { return last_word; }

int dice_each(struct dice *dice, int count, int (*seen)(void *data, int value, const char *text), void *data)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        char text[32];
        int value = one(dice);
        snprintf(text, sizeof text, "number %d", value);
        sum += seen(data, value, text);
    }
    return sum;
}

void dice_on_roll(struct dice *dice, void (*rolled)(void *data, int value), void *data)
{
    dice->rolled = rolled;
    dice->data = data;
}

void dice_summary(struct dice *dice, void (*summary)(const int *values, int count, char **names))
{
    int values[3] = { one(dice), one(dice), one(dice) };
    char *names[3] = { dice->name, NULL, last_word };
    summary(values, 3, names);
}

double dice_average(const struct dice *dice) { return dice->rolls ? (double)dice->sum / dice->rolls : 0; }

int dice_start(struct dice *dice, void *request, int *values, size_t count)
{
    (void)request;
    dice->values = values;
    dice->count = count;
    return 0;
}

int dice_finish(struct dice *dice, void *request)
{
    (void)request;
    for (size_t i = 0; i < dice->count; i++)
        dice->values[i] = one(dice);
    return dice->count * sizeof(int);
}
