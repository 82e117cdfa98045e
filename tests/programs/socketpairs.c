/* Sockets between two ends of one process: streams, datagrams, descriptors and credentials sent along, names in the file system. */
#include "see.h"
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static void pass_a_descriptor(int from, int to) {
    int file = must(open("input.txt", O_RDONLY));
    char text[] = "a file for you";
    struct iovec part = {text, sizeof text};
    union {
        char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof file);
    same("sendmsg %zd", must(sendmsg(from, &message, 0)));
    must(close(file));

    char back[100] = "";
    part = (struct iovec){back, sizeof back};
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t size = must(recvmsg(to, &message, 0));
    same("recvmsg %zd: %s, flags %d, control of %zu", size, back, message.msg_flags, (size_t)message.msg_controllen);
    for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_type == SCM_RIGHTS) {
            memcpy(&file, CMSG_DATA(header), sizeof file);
            char first[20];
            must(read(file, first, 10));
            same("a descriptor: %d, it reads", file);
            same("%.10s", first);
            must(close(file));
        } else if (header->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(header), sizeof who);
            seen("from process %d of %d:%d", who.pid, who.uid, who.gid);
        }
    }
}

int main(void) {
    int pair[2], value = 1;
    char back[200];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    same("send %zd", must(send(pair[0], "hello there", 11, MSG_NOSIGNAL)));
    same("recv %zd", must(recv(pair[1], back, 5, 0)));
    same("peek %zd", must(recv(pair[1], back, 100, MSG_PEEK)));
    ssize_t rest = must(read(pair[1], back, 100));
    same("rest %zd: %.6s", rest, back);
    refused(recv(pair[1], back, 10, MSG_DONTWAIT));
    must(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &value, sizeof value));
    pass_a_descriptor(pair[0], pair[1]);
    struct ucred peer;
    socklen_t length = sizeof peer;
    must(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length));
    seen("the peer is process %d", peer.pid);
    must(shutdown(pair[0], SHUT_WR));
    same("at the end: %zd", must(read(pair[1], back, 10)));
    refused(send(pair[0], "x", 1, MSG_NOSIGNAL));

    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
    must(send(pair[0], "one", 3, 0));
    must(send(pair[0], "another", 7, 0));
    same("a packet of %zd", must(recv(pair[1], back, 100, 0)));
    same("one of %zd, cut to 4", must(recv(pair[1], back, 4, MSG_TRUNC)));
    struct mmsghdr many[3] = {0};
    struct iovec parts[3] = {{"first", 5}, {"second", 6}, {"third", 5}};
    for (int i = 0; i < 3; i++)
        many[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    same("sendmmsg %d", must(sendmmsg(pair[0], many, 3, 0)));
    char places[3][20] = {0};
    for (int i = 0; i < 3; i++)
        parts[i] = (struct iovec){places[i], 20};
    same("recvmmsg %d", must(recvmmsg(pair[1], many, 3, 0, NULL)));
    same("%s %s %s", places[0], places[1], places[2]);
    same("lengths %u %u %u", many[0].msg_len, many[1].msg_len, many[2].msg_len);

    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"}, found;
    int server = must(socket(AF_UNIX, SOCK_STREAM, 0)), client = must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(server, (struct sockaddr *)&name, sizeof name));
    must(listen(server, 5));
    must(connect(client, (struct sockaddr *)&name, sizeof name));
    length = sizeof found;
    int accepted = must(accept4(server, (struct sockaddr *)&found, &length, SOCK_CLOEXEC));
    same("accepted %d, a name of %u", accepted, length);
    length = sizeof found;
    must(getpeername(client, (struct sockaddr *)&found, &length));
    same("the server is %s, %u", found.sun_path, length);
    must(write(accepted, "welcome", 7));
    must(ioctl(client, FIONREAD, &value));
    same("%d wait", value);
    same("read %zd", must(read(client, back, 100)));
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    int automatic = must(socket(AF_UNIX, SOCK_DGRAM, 0));
    must(bind(automatic, (struct sockaddr *)&any, sizeof any.sun_family));
    length = sizeof found;
    must(getsockname(automatic, (struct sockaddr *)&found, &length));
    seen("the kernel named it %.*s", (int)(length - sizeof found.sun_family - 1), found.sun_path + 1);
    refused(bind(automatic, (struct sockaddr *)&name, sizeof name));
    refused(socket(AF_UNIX, 99, 0));
    return 0;
}
