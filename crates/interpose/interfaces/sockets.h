/* Sockets. An address is checked by its first eight bytes (family, port, IPv4 address): what follows
 * is padding for the most common family. Lengths the kernel updates are by hand, because the room a
 * caller gave must be remembered from before the call. */

#ifndef HINDCAST_SOCKETS_H
#define HINDCAST_SOCKETS_H
#include "hindcast.h"
#include "types.h"

kernel(socket) alias(__socket) newfd(socket)
int socket(int domain, int type, int protocol);

kernel(socketpair) by_hand
int socketpair(int domain, int type, int protocol, int *ends);

kernel(bind)
int bind(int fd, in bsize(size < 8 ? size : 8) const void *address, socklen_t size);

kernel(listen)
int listen(int fd, int backlog);

kernel(accept) block by_hand
int accept(int fd, void *address, socklen_t *size);

kernel(accept4) block by_hand
int accept4(int fd, void *address, socklen_t *size, int flags);

kernel(connect) alias(__connect) block
int connect(int fd, in bsize(size < 8 ? size : 8) const void *address, socklen_t size);

kernel(shutdown) cache
int shutdown(int fd, int how);

kernel(getsockname) by_hand
int getsockname(int fd, void *address, socklen_t *size);

kernel(getpeername) by_hand
int getpeername(int fd, void *address, socklen_t *size);

kernel(getsockopt) by_hand
int getsockopt(int fd, int level, int option, void *value, socklen_t *size);

kernel(setsockopt) cache
int setsockopt(int fd, int level, int option, nullable in bsize(size < 4 ? size : 4) const void *value, socklen_t size);

kernel(sendto) block sync(sync_key(fd), before)
ssize_t sendto(int fd, nullable in echo(fd, result) bsize(length) const void *buffer, size_t length, int flags,
               nullable in bsize(size < 8 ? size : 8) const void *address, socklen_t size);

kernel(recvfrom) block by_hand
ssize_t recvfrom(int fd, void *buffer, size_t length, int flags, void *address, socklen_t *size);

by_hand ssize_t send(int fd, const void *buffer, size_t length, int flags);
by_hand ssize_t recv(int fd, void *buffer, size_t length, int flags);
by_hand ssize_t __send(int fd, const void *buffer, size_t length, int flags);
by_hand ssize_t __recv(int fd, void *buffer, size_t length, int flags);
by_hand ssize_t __recv_chk(int fd, void *buffer, size_t length, size_t room, int flags);
by_hand ssize_t __recvfrom_chk(int fd, void *buffer, size_t length, size_t room, int flags, void *address, socklen_t *size);

kernel(sendmsg) block by_hand
ssize_t sendmsg(int fd, msghdr(in) const struct msghdr *message, int flags);

kernel(recvmsg) block by_hand
ssize_t recvmsg(int fd, msghdr(out) struct msghdr *message, int flags);

kernel(sendmmsg) block by_hand alias(__sendmmsg)
int sendmmsg(int fd, void *messages, unsigned count, int flags);

kernel(recvmmsg) block by_hand
int recvmmsg(int fd, void *messages, unsigned count, int flags, void *timeout);

#endif
