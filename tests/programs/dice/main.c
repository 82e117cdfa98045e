/* Plays with the library in two threads, and shows what it got and where its own memory lies. */
#include "dice.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long heard;

static int seen(void *data, int value, const char *text)
{
    int *total = data;
    *total += value;
    char *memory = malloc(value * 100);
    pthread_mutex_lock(&mutex);
    printf("%s %p\n", text, (void *)memory);
    pthread_mutex_unlock(&mutex);
    free(memory);
    return value;
}

static void rolled(void *data, int value)
{
    pthread_mutex_lock(&mutex);
    heard = heard * 7 + value;
    pthread_mutex_unlock(&mutex);
    ++*(int *)data;
}

static void summary(const int *values, int count, char **names)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < count; i++)
        printf("summary %d %s\n", values[i], names[i] ? names[i] : "nothing");
    pthread_mutex_unlock(&mutex);
}

static void *play(void *argument)
{
    int sides = (int)(long)argument, values[5], later[4] = { 0 }, total = 0, calls = 0;
    struct dice *dice = dice_new(sides);
    const char *name = dice_name(dice);
    int count = dice_roll(dice, values, 5);
    char *text = dice_describe(dice);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < count; i++)
        printf("%d ", values[i]);
    printf("of %s: %s, last %s\n", name, text, dice_last_word());
    pthread_mutex_unlock(&mutex);
    dice_free(text);
    dice_on_roll(dice, rolled, &calls);
    int sum = dice_each(dice, 3, seen, &total);
    dice_summary(dice, summary);
    dice_start(dice, values, later, 4);
    int bytes = dice_finish(dice, values);
    pthread_mutex_lock(&mutex);
    printf("%d = %d in %d calls, average %f, %d bytes later: %d %d %d %d, %p\n", sum, total, calls, dice_average(dice), bytes, later[0],
           later[1], later[2], later[3], malloc(50));
    pthread_mutex_unlock(&mutex);
    dice_delete(dice);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, play, (void *)(20 + i));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    play((void *)6L);
    printf("heard %ld, %p\n", heard, malloc(10));
    return 3;
}
