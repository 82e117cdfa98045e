/* POSIX asynchronous input and output. Libc makes the transfers in threads of its own, beneath the interface; in R2's words a
 * request prepares the transfer and asking for its outcome commits it. The buffer is a field of the request and no parameter, so the
 * code is in crates/runtime/src/doors/by_hand/asynchronous.rs. */

#ifndef HINDCAST_ASYNCHRONOUS_H
#define HINDCAST_ASYNCHRONOUS_H
#include "hindcast.h"
#include "types.h"

by_hand int aio_read(void *request);
by_hand int aio_read64(void *request);
by_hand int aio_write(void *request);
by_hand int aio_write64(void *request);
by_hand int aio_fsync(int operation, void *request);
by_hand int aio_fsync64(int operation, void *request);
by_hand int aio_error(const void *request);
by_hand int aio_error64(const void *request);
by_hand long aio_return(void *request);
by_hand long aio_return64(void *request);
by_hand int aio_suspend(const void *const *requests, int count, const void *timeout);
by_hand int aio_suspend64(const void *const *requests, int count, const void *timeout);
by_hand int aio_cancel(int fd, void *request);
by_hand int aio_cancel64(int fd, void *request);
by_hand int lio_listio(int mode, void *const *requests, int count, void *notification);
by_hand int lio_listio64(int mode, void *const *requests, int count, void *notification);

#endif
