// Names of hosts: a question to a name server is sent, so it is not asked. Numbers and this machine itself are answered.

#include "shared.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

static bool is_number(const char *host) {
  unsigned char address[sizeof(struct in6_addr)];
  struct in_addr old;
  char text[INET6_ADDRSTRLEN + 1];
  strncpy(text, host, sizeof text - 1);
  text[sizeof text - 1] = '\0';
  text[strcspn(text, "%")] = '\0';  // fe80::1%eth0
  return inet_pton(AF_INET6, text, address) == 1 || inet_aton(host, &old);
}

static bool is_this_machine(const char *host) {
  char own[256];
  if (!strcasecmp(host, "localhost") || !strcasecmp(host, "localhost.localdomain")) return true;
  own[sizeof own - 1] = '\0';
  return gethostname(own, sizeof own - 1) == 0 && !strcasecmp(host, own);
}

// What may be asked in the place of a name: the name, the loopback's number, or NULL where it is not answered.
static const char *to_ask(const char *host, int family) {
  if (!host || !*host || !watching() || is_number(host)) return host;
  if (is_this_machine(host)) return family == AF_INET6 ? "::1" : "127.0.0.1";
  tell(NOT_LOOKED_UP, host);
  return NULL;
}

int ours_getaddrinfo(const char *host, const char *service, const struct addrinfo *wanted, struct addrinfo **found)
    INSTEAD_OF(getaddrinfo);
int ours_getaddrinfo(const char *host, const char *service, const struct addrinfo *wanted, struct addrinfo **found) {
  const char *const asked = to_ask(host, wanted ? wanted->ai_family : AF_UNSPEC);
  if (host && !asked) return EAI_AGAIN;  // as without a network
  return BEHIND(getaddrinfo, getaddrinfo)(asked, service, wanted, found);
}

static struct hostent *unknown(int *error) {
  *error = TRY_AGAIN;
  return NULL;
}

struct hostent *ours_gethostbyname(const char *host) INSTEAD_OF(gethostbyname);
struct hostent *ours_gethostbyname(const char *host) {
  const char *const asked = to_ask(host, AF_INET);
  return asked ? BEHIND(gethostbyname, gethostbyname)(asked) : unknown(&h_errno);
}

struct hostent *ours_gethostbyname2(const char *host, int family) INSTEAD_OF(gethostbyname2);
struct hostent *ours_gethostbyname2(const char *host, int family) {
  const char *const asked = to_ask(host, family);
  return asked ? BEHIND(gethostbyname2, gethostbyname2)(asked, family) : unknown(&h_errno);
}

int ours_gethostbyname_r(const char *host, struct hostent *entry, char *buffer, size_t size, struct hostent **found,
                         int *error) INSTEAD_OF(gethostbyname_r);
int ours_gethostbyname_r(const char *host, struct hostent *entry, char *buffer, size_t size, struct hostent **found,
                         int *error) {
  const char *const asked = to_ask(host, AF_INET);
  if (asked) return BEHIND(gethostbyname_r, gethostbyname_r)(asked, entry, buffer, size, found, error);
  *found = unknown(error);
  return 0;
}

int ours_gethostbyname2_r(const char *host, int family, struct hostent *entry, char *buffer, size_t size,
                          struct hostent **found, int *error) INSTEAD_OF(gethostbyname2_r);
int ours_gethostbyname2_r(const char *host, int family, struct hostent *entry, char *buffer, size_t size,
                          struct hostent **found, int *error) {
  const char *const asked = to_ask(host, family);
  if (asked) return BEHIND(gethostbyname2_r, gethostbyname2_r)(asked, family, entry, buffer, size, found, error);
  *found = unknown(error);
  return 0;
}

// An address has no name here: socket.getfqdn() falls back to what it was given.
struct hostent *ours_gethostbyaddr(const void *address, socklen_t length, int family) INSTEAD_OF(gethostbyaddr);
struct hostent *ours_gethostbyaddr(const void *address, socklen_t length, int family) {
  if (!watching()) return BEHIND(gethostbyaddr, gethostbyaddr)(address, length, family);
  return unknown(&h_errno);
}

int ours_gethostbyaddr_r(const void *address, socklen_t length, int family, struct hostent *entry, char *buffer,
                         size_t size, struct hostent **found, int *error) INSTEAD_OF(gethostbyaddr_r);
int ours_gethostbyaddr_r(const void *address, socklen_t length, int family, struct hostent *entry, char *buffer,
                         size_t size, struct hostent **found, int *error) {
  if (!watching()) {
    return BEHIND(gethostbyaddr_r, gethostbyaddr_r)(address, length, family, entry, buffer, size, found, error);
  }
  *found = unknown(error);
  return 0;
}

int ours_getnameinfo(const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size, char *service,
                     socklen_t service_size, int flags) INSTEAD_OF(getnameinfo);
int ours_getnameinfo(const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size, char *service,
                     socklen_t service_size, int flags) {
  const int own = watching() ? (flags | NI_NUMERICHOST) & ~NI_NAMEREQD : flags;
  return BEHIND(getnameinfo, getnameinfo)(address, length, host, host_size, service, service_size, own);
}
