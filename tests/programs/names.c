/* Names of hosts, services, protocols and interfaces. */
#include "see.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

int main(void) {
    struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME}, *list;
    char host[256], service[64];
    int answer = getaddrinfo("localhost", "80", &wanted, &list);
    same("localhost: %d", answer);
    for (struct addrinfo *at = answer ? NULL : list; at; at = at->ai_next) {
        must_be_zero(getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV));
        seen("%s port %s, protocol %d, %s", host, service, at->ai_protocol, at->ai_canonname ? at->ai_canonname : "");
    }
    freeaddrinfo(list);
    wanted = (struct addrinfo){.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    must_be_zero(getaddrinfo("127.0.0.1", "http", &wanted, &list));
    same("port %d", ntohs(((struct sockaddr_in *)list->ai_addr)->sin_port));
    seen("named %d: %s", getnameinfo(list->ai_addr, list->ai_addrlen, host, sizeof host, NULL, 0, 0), host);
    freeaddrinfo(list);
    same("not a number: %s", gai_strerror(getaddrinfo("localhost", NULL, &wanted, &list)));
    answer = getaddrinfo("no-such-host.invalid", NULL, NULL, &list);
    seen("no such host: %s", gai_strerror(answer));
    struct hostent *entry = gethostbyname("localhost");
    seen("gethostbyname: %s", entry ? inet_ntoa(*(struct in_addr *)entry->h_addr_list[0]) : hstrerror(h_errno));
    struct servent *known = must(getservbyname("https", "tcp"));
    same("https is %d", ntohs((uint16_t)known->s_port));
    known = getservbyport(htons(22), "tcp");
    seen("22 is %s", known ? known->s_name : "nobody");
    struct protoent *protocol = getprotobyname("udp");
    seen("udp is %d", protocol ? protocol->p_proto : -1);

    struct ifaddrs *interfaces;
    must(getifaddrs(&interfaces));
    for (struct ifaddrs *at = interfaces; at; at = at->ifa_next)
        seen("interface %s, flags %#x, family %d", at->ifa_name, at->ifa_flags, at->ifa_addr ? at->ifa_addr->sa_family : 0);
    freeifaddrs(interfaces);
    struct if_nameindex *indices = must(if_nameindex());
    for (struct if_nameindex *at = indices; at->if_index; at++)
        seen("%u is %s", at->if_index, at->if_name);
    if_freenameindex(indices);
    same("lo is %u, nothing is %u", if_nametoindex("lo"), if_nametoindex("nothing"));
    struct in6_addr six;
    same("inet_pton %d, %d", inet_pton(AF_INET6, "::1", &six), inet_pton(AF_INET, "1.2.3", host));
    return 0;
}
