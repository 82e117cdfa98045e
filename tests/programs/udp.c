/* Datagrams over loopback: addresses of senders, several at once, lost ones, the interface they came through. */
#include "see.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int bound(struct sockaddr_in *address) {
    int fd = must(socket(AF_INET, SOCK_DGRAM, 0));
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(bind(fd, (struct sockaddr *)address, sizeof *address));
    socklen_t length = sizeof *address;
    must(getsockname(fd, (struct sockaddr *)address, &length));
    return fd;
}

int main(void) {
    struct sockaddr_in left_address, right_address, from;
    int left = bound(&left_address), right = bound(&right_address), on = 1;
    seen("ports %d and %d", ntohs(left_address.sin_port), ntohs(right_address.sin_port));
    char back[3][100] = {0};
    same("sendto %zd", must(sendto(left, "first", 5, 0, (struct sockaddr *)&right_address, sizeof right_address)));
    socklen_t length = sizeof from;
    same("recvfrom %zd", must(recvfrom(right, back[0], 100, 0, (struct sockaddr *)&from, &length)));
    same("%s, from the left: %d, a name of %u", back[0], from.sin_port == left_address.sin_port, length);
    must(connect(left, (struct sockaddr *)&right_address, sizeof right_address));
    must(setsockopt(right, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
    must(setsockopt(right, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on));
    same("send %zd", must(send(left, "second, which is longer", 23, 0)));

    char control[256];
    struct iovec part = {back[1], 10};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    same("recvmsg %zd", must(recvmsg(right, &message, 0)));
    same("cut to %.10s, flags %#x", back[1], (unsigned)message.msg_flags);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        same("control %d %d of %zu", header->cmsg_level, header->cmsg_type, (size_t)header->cmsg_len);
        if (header->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec at;
            memcpy(&at, CMSG_DATA(header), sizeof at);
            seen("arrived at %ld.%09ld", (long)at.tv_sec, at.tv_nsec);
        }
    }

    struct mmsghdr many[3] = {0};
    struct iovec parts[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}};
    for (int i = 0; i < 3; i++)
        many[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    same("sendmmsg %d", must(sendmmsg(left, many, 3, 0)));
    struct sockaddr_in names[3];
    memset(back, 0, sizeof back);
    for (int i = 0; i < 3; i++) {
        parts[i] = (struct iovec){back[i], 100};
        many[i].msg_hdr.msg_name = &names[i], many[i].msg_hdr.msg_namelen = sizeof names[i];
    }
    struct timespec patience = {5, 0};
    int count = must(recvmmsg(right, many, 3, MSG_WAITFORONE, &patience));
    same("recvmmsg %d: %s %s %s", count, back[0], back[1], back[2]);
    refused(recv(right, back, 100, MSG_DONTWAIT));
    must(close(right));
    send(left, "to nobody", 9, 0);
    refused(recv(left, back, 100, MSG_DONTWAIT));
    static char large[70000];
    refused(sendto(left, large, sizeof large, 0, NULL, 0));
    return 0;
}
