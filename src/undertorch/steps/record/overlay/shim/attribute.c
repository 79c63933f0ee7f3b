// Changes of what the disk says about a file: mode, owner, times, length, attributes. The file is lifted into the copy
// first. One that is too large to lift keeps what it has.

#include "shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#include "raw.h"

static int failed(int error) {
  errno = error;
  return -1;
}

static void told(const char *real) {
  if (strncmp(real, copy, copy_length) == 0) tell(CHANGED, real + copy_length);
}

// A call on a path: as it is where nothing is watched or the path is not translated, otherwise on the lifted file.
#define ON_LIFTED(folder, path, follow, as_it_is, on_real)               \
  char real[PATH_MAX];                                                    \
  if (!watching()) return as_it_is;                                       \
  switch (lifted(folder, path, follow, real)) {                           \
    case IN_VIEW: told(real); return on_real;                             \
    case OUTSIDE: return as_it_is;                                        \
    case TOO_LARGE_TO_LIFT: return 0;                                     \
    default: return -1;                                                   \
  }

static int change_mode(int folder, const char *path, mode_t mode, bool follow) {
  if (!follow) return failed(EOPNOTSUPP);  // Linux keeps no mode of a link
  ON_LIFTED(folder, path, true, (int)syscall(SYS_fchmodat, folder, path, mode),
            (int)syscall(SYS_fchmodat, AT_FDCWD, real, mode))
}

int ours_fchmodat(int folder, const char *path, mode_t mode, int flags) INSTEAD_OF(fchmodat);
int ours_fchmodat(int folder, const char *path, mode_t mode, int flags) {
  return change_mode(folder, path, mode, !(flags & AT_SYMLINK_NOFOLLOW));
}

int ours_chmod(const char *path, mode_t mode) INSTEAD_OF(chmod);
int ours_chmod(const char *path, mode_t mode) { return change_mode(AT_FDCWD, path, mode, true); }

int ours_fchownat(int folder, const char *path, uid_t user, gid_t group, int flags) INSTEAD_OF(fchownat);
int ours_fchownat(int folder, const char *path, uid_t user, gid_t group, int flags) {
  ON_LIFTED(folder, path, !(flags & AT_SYMLINK_NOFOLLOW),
            (int)syscall(SYS_fchownat, folder, path, user, group, flags),
            (int)syscall(SYS_fchownat, AT_FDCWD, real, user, group, flags))
}

int ours_chown(const char *path, uid_t user, gid_t group) INSTEAD_OF(chown);
int ours_chown(const char *path, uid_t user, gid_t group) { return ours_fchownat(AT_FDCWD, path, user, group, 0); }

int ours_lchown(const char *path, uid_t user, gid_t group) INSTEAD_OF(lchown);
int ours_lchown(const char *path, uid_t user, gid_t group) {
  return ours_fchownat(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}

int ours_truncate(const char *path, off_t length) INSTEAD_OF(truncate);
int ours_truncate(const char *path, off_t length) {
  ON_LIFTED(AT_FDCWD, path, true, (int)syscall(SYS_truncate, path, length), (int)syscall(SYS_truncate, real, length))
}
ALSO_AS(truncate64, truncate)

// --- times --------------------------------------------------------------------------------------------------------------

static int change_times(int folder, const char *path, const struct timespec times[2], int flags) {
  ON_LIFTED(folder, path, !(flags & AT_SYMLINK_NOFOLLOW),
            (int)syscall(SYS_utimensat, folder, path, times, flags),
            (int)syscall(SYS_utimensat, AT_FDCWD, real, times, flags))
}

static const struct timespec *from_microseconds(const struct timeval given[2], struct timespec times[2]) {
  if (!given) return NULL;
  for (int i = 0; i < 2; i++) times[i] = (struct timespec){given[i].tv_sec, given[i].tv_usec * 1000};
  return times;
}

int ours_utimes(const char *path, const struct timeval given[2]) INSTEAD_OF(utimes);
int ours_utimes(const char *path, const struct timeval given[2]) {
  struct timespec times[2];
  return change_times(AT_FDCWD, path, from_microseconds(given, times), 0);
}

int ours_lutimes(const char *path, const struct timeval given[2]) INSTEAD_OF(lutimes);
int ours_lutimes(const char *path, const struct timeval given[2]) {
  struct timespec times[2];
  return change_times(AT_FDCWD, path, from_microseconds(given, times), AT_SYMLINK_NOFOLLOW);
}

int ours_futimesat(int folder, const char *path, const struct timeval given[2]) INSTEAD_OF(futimesat);
int ours_futimesat(int folder, const char *path, const struct timeval given[2]) {
  struct timespec times[2];
  return change_times(folder, path, from_microseconds(given, times), 0);
}

int ours_utime(const char *path, const struct utimbuf *given) INSTEAD_OF(utime);
int ours_utime(const char *path, const struct utimbuf *given) {
  const struct timespec times[2] = {{given ? given->actime : 0, 0}, {given ? given->modtime : 0, 0}};
  return change_times(AT_FDCWD, path, given ? times : NULL, 0);
}

// --- through a descriptor -----------------------------------------------------------------------------------------------

// A file may be changed through a descriptor that was opened for reading. `real` is its path in the copy then; a
// descriptor of the copy, or of no file, is taken as it is.
static int lifted_descriptor(int descriptor, char real[PATH_MAX]) {
  char link[64], name[PATH_MAX];
  struct stat found;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = raw_readlink(link, real, PATH_MAX - 1);
  if (length < 0) return -1;
  real[length] = '\0';
  if (real[0] != '/' || strncmp(real, base, base_length) == 0 || raw_lstat(real, &found) < 0) return OUTSIDE;
  if (!S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode)) return OUTSIDE;
  strcpy(name, real);
  return lifted(AT_FDCWD, name, false, real);
}

#define ON_DESCRIPTOR(descriptor, as_it_is, on_real)                      \
  char real[PATH_MAX];                                                    \
  if (!watching()) return as_it_is;                                       \
  switch (lifted_descriptor(descriptor, real)) {                          \
    case IN_VIEW: told(real); return on_real;                             \
    case OUTSIDE: return as_it_is;                                        \
    case TOO_LARGE_TO_LIFT: return 0;                                     \
    default: return -1;                                                   \
  }

int ours_fchmod(int descriptor, mode_t mode) INSTEAD_OF(fchmod);
int ours_fchmod(int descriptor, mode_t mode) {
  ON_DESCRIPTOR(descriptor, (int)syscall(SYS_fchmod, descriptor, mode),
                (int)syscall(SYS_fchmodat, AT_FDCWD, real, mode))
}

int ours_fchown(int descriptor, uid_t user, gid_t group) INSTEAD_OF(fchown);
int ours_fchown(int descriptor, uid_t user, gid_t group) {
  ON_DESCRIPTOR(descriptor, (int)syscall(SYS_fchown, descriptor, user, group),
                (int)syscall(SYS_fchownat, AT_FDCWD, real, user, group, 0))
}

int ours_futimens(int descriptor, const struct timespec times[2]) INSTEAD_OF(futimens);
int ours_futimens(int descriptor, const struct timespec times[2]) {
  ON_DESCRIPTOR(descriptor, (int)syscall(SYS_utimensat, descriptor, NULL, times, 0),
                (int)syscall(SYS_utimensat, AT_FDCWD, real, times, 0))
}

int ours_futimes(int descriptor, const struct timeval given[2]) INSTEAD_OF(futimes);
int ours_futimes(int descriptor, const struct timeval given[2]) {
  struct timespec times[2];
  return ours_futimens(descriptor, from_microseconds(given, times));
}

int ours_utimensat(int folder, const char *path, const struct timespec times[2], int flags) INSTEAD_OF(utimensat);
int ours_utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
  return path ? change_times(folder, path, times, flags) : ours_futimens(folder, times);
}

// --- extended attributes ------------------------------------------------------------------------------------------------

#define SETS_ATTRIBUTE(name, follow)                                                                              \
  int ours_##name(const char *path, const char *attribute, const void *value, size_t size, int flags) INSTEAD_OF(name); \
  int ours_##name(const char *path, const char *attribute, const void *value, size_t size, int flags) {           \
    ON_LIFTED(AT_FDCWD, path, follow, (int)syscall(SYS_##name, path, attribute, value, size, flags),              \
              (int)syscall(SYS_##name, real, attribute, value, size, flags))                                      \
  }
SETS_ATTRIBUTE(setxattr, true)
SETS_ATTRIBUTE(lsetxattr, false)

#define REMOVES_ATTRIBUTE(name, follow)                                                                           \
  int ours_##name(const char *path, const char *attribute) INSTEAD_OF(name);                                      \
  int ours_##name(const char *path, const char *attribute) {                                                      \
    ON_LIFTED(AT_FDCWD, path, follow, (int)syscall(SYS_##name, path, attribute),                                  \
              (int)syscall(SYS_##name, real, attribute))                                                          \
  }
REMOVES_ATTRIBUTE(removexattr, true)
REMOVES_ATTRIBUTE(lremovexattr, false)

int ours_fsetxattr(int descriptor, const char *attribute, const void *value, size_t size, int flags)
    INSTEAD_OF(fsetxattr);
int ours_fsetxattr(int descriptor, const char *attribute, const void *value, size_t size, int flags) {
  ON_DESCRIPTOR(descriptor, (int)syscall(SYS_fsetxattr, descriptor, attribute, value, size, flags),
                (int)syscall(SYS_setxattr, real, attribute, value, size, flags))
}

int ours_fremovexattr(int descriptor, const char *attribute) INSTEAD_OF(fremovexattr);
int ours_fremovexattr(int descriptor, const char *attribute) {
  ON_DESCRIPTOR(descriptor, (int)syscall(SYS_fremovexattr, descriptor, attribute),
                (int)syscall(SYS_removexattr, real, attribute))
}
