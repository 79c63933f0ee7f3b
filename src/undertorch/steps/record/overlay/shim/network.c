// The network: nothing is sent. Processes of the run may talk to one another over the loopback, on ports that one of them
// listens on, and over sockets in the file system that one of them made. To all else the answer is that of a machine
// without a network.

#include "shared.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "raw.h"

static int failed(int error) {
  errno = error;
  return -1;
}

static void set_bit(_Atomic uint8_t *bits, uint16_t number) {
  atomic_fetch_or(&bits[number / 8], (uint8_t)(1 << number % 8));
}

static bool has_bit(_Atomic uint8_t *bits, uint16_t number) { return atomic_load(&bits[number / 8]) >> number % 8 & 1; }

// FNV-1a, folded to 16 bits.
static uint16_t hash(const char *text, size_t length) {
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < length; i++) value = (value ^ (uint8_t)text[i]) * 16777619u;
  return (uint16_t)(value ^ value >> 16);
}

static bool is_loopback(const struct sockaddr *address) {
  if (address->sa_family == AF_INET) {
    const uint32_t host = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr);
    return host >> 24 == 127 || host == INADDR_ANY;
  }
  const struct in6_addr *const host = &((const struct sockaddr_in6 *)address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(host)) return host->s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(host) || IN6_IS_ADDR_UNSPECIFIED(host);
}

static uint16_t port_of(const struct sockaddr *address) {
  return ntohs(address->sa_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                             : ((const struct sockaddr_in6 *)address)->sin6_port);
}

static void tell_address(const struct sockaddr *address) {
  char text[INET6_ADDRSTRLEN + 16], host[INET6_ADDRSTRLEN] = "?";
  const void *const number = address->sa_family == AF_INET
                                 ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                                 : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
  inet_ntop(address->sa_family, number, host, sizeof host);
  snprintf(text, sizeof text, address->sa_family == AF_INET ? "%s:%u" : "[%s]:%u", host, port_of(address));
  tell(NOT_CONNECTED, text);
}

// --- sockets in the file system -----------------------------------------------------------------------------------------

// An address whose path is the real one.
struct local {
  struct sockaddr_un address;
  socklen_t length;  // 0: the address as it was given
};

// The copy's paths are longer than the script's, and an address holds 107 bytes: a link of the run's folder stands for a
// folder of the copy.
static const char *const links = "links";

static int shorter(const char *real, char path[PATH_MAX]) {
  char folder[PATH_MAX], target[PATH_MAX];
  strcpy(folder, real);
  char *const slash = strrchr(folder, '/');
  *slash = '\0';
  for (unsigned number = hash(folder, strlen(folder));; number++) {
    const int length = snprintf(path, PATH_MAX, "%s/%s/%x", base, links, number);
    if (length >= PATH_MAX || (raw_symlink(folder, path) < 0 && errno != EEXIST)) return -1;
    const ssize_t leads = raw_readlink(path, target, sizeof target);
    if (leads < 0) return -1;
    if ((size_t)leads != strlen(folder) || strncmp(target, folder, (size_t)leads) != 0) continue;  // another folder's
    return snprintf(path + length, PATH_MAX - (size_t)length, "/%s", slash + 1);
  }
}

static int set_path(struct local *local, const char *real) {
  char path[PATH_MAX];
  if (strlen(real) >= sizeof local->address.sun_path) {
    if (shorter(real, path) < 0) return -1;
    real = path;
  }
  if (strlen(real) >= sizeof local->address.sun_path) return failed(ENAMETOOLONG);
  memset(&local->address, 0, sizeof local->address);
  local->address.sun_family = AF_UNIX;
  strcpy(local->address.sun_path, real);
  local->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(real) + 1);
  return 0;
}

static void text_of(const struct sockaddr_un *address, socklen_t length, char text[sizeof address->sun_path + 1]) {
  const size_t bytes = length - offsetof(struct sockaddr_un, sun_path);
  memcpy(text, address->sun_path, bytes);
  text[bytes] = '\0';
}

static bool has_path(const struct sockaddr *address, socklen_t length) {
  return length > offsetof(struct sockaddr_un, sun_path) && length <= sizeof(struct sockaddr_un) &&
         ((const struct sockaddr_un *)address)->sun_path[0];
}

static uint16_t abstract_hash(const struct sockaddr *address, socklen_t length) {
  return hash(((const struct sockaddr_un *)address)->sun_path, length - offsetof(struct sockaddr_un, sun_path));
}

// Whether a socket in the file system is one of the run's. Fills in its real address where it has a path.
static bool is_own(const struct sockaddr *address, socklen_t length, struct local *local) {
  char text[sizeof local->address.sun_path + 1], name[PATH_MAX], real[PATH_MAX];
  struct stat found;
  local->length = 0;
  if (length <= offsetof(struct sockaddr_un, sun_path)) return true;
  if (!has_path(address, length)) return has_bit(shared->sockets, abstract_hash(address, length));
  text_of((const struct sockaddr_un *)address, length, text);
  if (name_in_view(AT_FDCWD, text, true, name) != IN_VIEW) return false;
  return find(name, real, &found) == COPY && set_path(local, real) == 0;
}

// --- where to -----------------------------------------------------------------------------------------------------------

// Whether something may be sent to an address; tells the recorder where not. Of a socket with a path, `local` is the
// address to send to.
static bool may_reach(const struct sockaddr *address, socklen_t length, struct local *local) {
  local->length = 0;
  switch (address->sa_family) {
    case AF_UNSPEC:   // ends a connection
    case AF_NETLINK:  // the kernel itself, asked for its addresses
    case AF_ALG: return true;
    case AF_UNIX:
      if (is_own(address, length, local)) return true;
      tell(NOT_CONNECTED, has_path(address, length) ? ((const struct sockaddr_un *)address)->sun_path : "a local socket");
      return false;
    case AF_INET:
    case AF_INET6:
      if (is_loopback(address) && has_bit(shared->ports, port_of(address))) return true;
      tell_address(address);
      return false;
    default: tell(NOT_CONNECTED, "an address of another kind"); return false;
  }
}

static int unreachable(const struct sockaddr *address) {
  return failed(address->sa_family == AF_UNIX ? ECONNREFUSED : ENETUNREACH);
}

int ours_connect(int socket, const struct sockaddr *address, socklen_t length) INSTEAD_OF(connect);
int ours_connect(int socket, const struct sockaddr *address, socklen_t length) {
  struct local local;
  if (!watching() || !address) return (int)syscall(SYS_connect, socket, address, length);
  if (!may_reach(address, length, &local)) return unreachable(address);
  if (!local.length) return (int)syscall(SYS_connect, socket, address, length);
  return (int)syscall(SYS_connect, socket, &local.address, local.length);
}

ssize_t ours_sendto(int socket, const void *data, size_t size, int flags, const struct sockaddr *address,
                    socklen_t length) INSTEAD_OF(sendto);
ssize_t ours_sendto(int socket, const void *data, size_t size, int flags, const struct sockaddr *address,
                    socklen_t length) {
  struct local local;
  if (!watching() || !address) return syscall(SYS_sendto, socket, data, size, flags, address, length);
  if (!may_reach(address, length, &local)) return unreachable(address);
  if (!local.length) return syscall(SYS_sendto, socket, data, size, flags, address, length);
  return syscall(SYS_sendto, socket, data, size, flags, &local.address, local.length);
}

ssize_t ours_sendmsg(int socket, const struct msghdr *message, int flags) INSTEAD_OF(sendmsg);
ssize_t ours_sendmsg(int socket, const struct msghdr *message, int flags) {
  struct local local;
  if (!watching() || !message || !message->msg_name) return syscall(SYS_sendmsg, socket, message, flags);
  if (!may_reach(message->msg_name, message->msg_namelen, &local)) return unreachable(message->msg_name);
  if (!local.length) return syscall(SYS_sendmsg, socket, message, flags);
  struct msghdr own = *message;
  own.msg_name = &local.address;
  own.msg_namelen = local.length;
  return syscall(SYS_sendmsg, socket, &own, flags);
}

int ours_sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags) INSTEAD_OF(sendmmsg);
int ours_sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags) {
  for (unsigned i = 0; i < count && watching(); i++) {
    struct local local;
    const struct msghdr *const message = &messages[i].msg_hdr;
    if (!message->msg_name) continue;
    if (!may_reach(message->msg_name, message->msg_namelen, &local)) return unreachable(message->msg_name);
  }
  return (int)syscall(SYS_sendmmsg, socket, messages, count, flags);
}

// --- own sockets --------------------------------------------------------------------------------------------------------

static int bind_path(int socket, const struct sockaddr *address, socklen_t length) {
  char text[sizeof(struct sockaddr_un) + 1], name[PATH_MAX], real[PATH_MAX];
  struct local local;
  struct stat found;
  text_of((const struct sockaddr_un *)address, length, text);
  const int view = name_in_view(AT_FDCWD, text, true, name);
  if (view != IN_VIEW) return view == OUTSIDE ? failed(EACCES) : -1;
  lock_copy();
  int done = 0;
  if (find(name, real, &found) != NOWHERE) done = failed(EADDRINUSE);
  else if (make_parents(name) == 0 && snprintf(real, sizeof real, "%s%s", copy, name) < PATH_MAX) raw_unlink(real, 0);
  else done = -1;
  copy_changed();
  unlock_copy();
  if (done < 0 || set_path(&local, real) < 0) return -1;
  return (int)syscall(SYS_bind, socket, &local.address, local.length);
}

// The port that a socket has, so that the run's processes may reach it.
static void own_port(int socket) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  if (syscall(SYS_getsockname, socket, &address, &length) < 0) return;
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return;
  set_bit(shared->ports, port_of((const struct sockaddr *)&address));
}

int ours_bind(int socket, const struct sockaddr *address, socklen_t length) INSTEAD_OF(bind);
int ours_bind(int socket, const struct sockaddr *address, socklen_t length) {
  if (!watching() || !address) return (int)syscall(SYS_bind, socket, address, length);
  if (address->sa_family == AF_UNIX && has_path(address, length)) return bind_path(socket, address, length);
  const int done = (int)syscall(SYS_bind, socket, address, length);
  if (done < 0) return done;
  if (address->sa_family == AF_UNIX && length > offsetof(struct sockaddr_un, sun_path)) {
    set_bit(shared->sockets, abstract_hash(address, length));
  }
  own_port(socket);
  return done;
}

int ours_listen(int socket, int waiting) INSTEAD_OF(listen);
int ours_listen(int socket, int waiting) {
  const int done = (int)syscall(SYS_listen, socket, waiting);
  if (done == 0 && watching()) own_port(socket);
  return done;
}

// The address of an own socket, by the name that it has in the view.
static int named(long call, int socket, struct sockaddr *address, socklen_t *length) {
  const int done = (int)syscall(call, socket, address, length);
  if (done < 0 || !watching() || !length || address->sa_family != AF_UNIX || !has_path(address, *length)) return done;
  char text[sizeof(struct sockaddr_un) + 1], name[PATH_MAX];
  char *const path = ((struct sockaddr_un *)address)->sun_path;
  text_of((struct sockaddr_un *)address, *length, text);
  if (strncmp(text, base, base_length) != 0 || name_in_view(AT_FDCWD, text, false, name) != IN_VIEW) return done;
  if (strlen(name) >= sizeof((struct sockaddr_un *)address)->sun_path) return done;  // the link to it leads there too
  strcpy(path, name);
  *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
  return done;
}

int ours_getsockname(int socket, struct sockaddr *address, socklen_t *length) INSTEAD_OF(getsockname);
int ours_getsockname(int socket, struct sockaddr *address, socklen_t *length) {
  return named(SYS_getsockname, socket, address, length);
}

int ours_getpeername(int socket, struct sockaddr *address, socklen_t *length) INSTEAD_OF(getpeername);
int ours_getpeername(int socket, struct sockaddr *address, socklen_t *length) {
  return named(SYS_getpeername, socket, address, length);
}
