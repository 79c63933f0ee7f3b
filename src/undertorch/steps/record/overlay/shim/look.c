// Questions about files: each is asked where the view finds the file.

#include "shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "raw.h"

static int look(int folder, const char *path, struct stat *found, int flags) {
  char real[PATH_MAX];
  if (path && *path) {
    path = to_read(&folder, path, !(flags & AT_SYMLINK_NOFOLLOW), real);
    if (!path) return -1;
  }
  return raw_stat(folder, path, found, flags);
}

int ours_fstatat(int folder, const char *path, struct stat *found, int flags) INSTEAD_OF(fstatat);
int ours_fstatat(int folder, const char *path, struct stat *found, int flags) {
  return look(folder, path, found, flags);
}
ALSO_AS(fstatat64, fstatat)

int ours_stat(const char *path, struct stat *found) INSTEAD_OF(stat);
int ours_stat(const char *path, struct stat *found) { return look(AT_FDCWD, path, found, 0); }
ALSO_AS(stat64, stat)

int ours_lstat(const char *path, struct stat *found) INSTEAD_OF(lstat);
int ours_lstat(const char *path, struct stat *found) { return look(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW); }
ALSO_AS(lstat64, lstat)

// The same three as libc before 2.33 named them. The version says which `struct stat`; on 64-bit machines there is one.
int ours_xstat(int version, const char *path, struct stat *found) INSTEAD_OF(__xstat);
int ours_xstat(int version, const char *path, struct stat *found) {
  (void)version;
  return look(AT_FDCWD, path, found, 0);
}
ALSO_AS(__xstat64, __xstat)

int ours_lxstat(int version, const char *path, struct stat *found) INSTEAD_OF(__lxstat);
int ours_lxstat(int version, const char *path, struct stat *found) {
  (void)version;
  return look(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW);
}
ALSO_AS(__lxstat64, __lxstat)

int ours_fxstatat(int version, int folder, const char *path, struct stat *found, int flags) INSTEAD_OF(__fxstatat);
int ours_fxstatat(int version, int folder, const char *path, struct stat *found, int flags) {
  (void)version;
  return look(folder, path, found, flags);
}
ALSO_AS(__fxstatat64, __fxstatat)

int ours_statx(int folder, const char *path, int flags, unsigned mask, struct statx *found) INSTEAD_OF(statx);
int ours_statx(int folder, const char *path, int flags, unsigned mask, struct statx *found) {
  char real[PATH_MAX];
  if (path && *path) {
    path = to_read(&folder, path, !(flags & AT_SYMLINK_NOFOLLOW), real);
    if (!path) return -1;
  }
  return (int)syscall(SYS_statx, folder, path, flags, mask, found);
}

static int may_access(int folder, const char *path, int mode, int flags) {
  char real[PATH_MAX];
  path = to_read(&folder, path, !(flags & AT_SYMLINK_NOFOLLOW), real);
  if (!path) return -1;
  if (!flags) return (int)syscall(SYS_faccessat, folder, path, mode);
  const int done = (int)syscall(SYS_faccessat2, folder, path, mode, flags);
  // Linux before 5.8 knows no flags; the user and the effective user are the same in a training script.
  return done < 0 && errno == ENOSYS ? (int)syscall(SYS_faccessat, folder, path, mode) : done;
}

int ours_access(const char *path, int mode) INSTEAD_OF(access);
int ours_access(const char *path, int mode) { return may_access(AT_FDCWD, path, mode, 0); }

int ours_faccessat(int folder, const char *path, int mode, int flags) INSTEAD_OF(faccessat);
int ours_faccessat(int folder, const char *path, int mode, int flags) { return may_access(folder, path, mode, flags); }

int ours_euidaccess(const char *path, int mode) INSTEAD_OF(euidaccess);
int ours_euidaccess(const char *path, int mode) { return may_access(AT_FDCWD, path, mode, AT_EACCESS); }
ALSO_AS(eaccess, euidaccess)

static ssize_t read_link(int folder, const char *path, char *target, size_t size) {
  char real[PATH_MAX];
  if (path && *path) {
    path = to_read(&folder, path, false, real);
    if (!path) return -1;
  }
  ssize_t length = syscall(SYS_readlinkat, folder, path, target, size);
  // Of a descriptor or the current folder (/proc): the script knows no copy.
  if (watching() && length > (ssize_t)copy_length && strncmp(target, copy, copy_length) == 0) {
    length -= (ssize_t)copy_length;
    memmove(target, target + copy_length, (size_t)length);
  }
  return length;
}

ssize_t ours_readlink(const char *path, char *target, size_t size) INSTEAD_OF(readlink);
ssize_t ours_readlink(const char *path, char *target, size_t size) { return read_link(AT_FDCWD, path, target, size); }

ssize_t ours_readlinkat(int folder, const char *path, char *target, size_t size) INSTEAD_OF(readlinkat);
ssize_t ours_readlinkat(int folder, const char *path, char *target, size_t size) {
  return read_link(folder, path, target, size);
}

ssize_t ours_readlink_chk(const char *path, char *target, size_t size, size_t all) INSTEAD_OF(__readlink_chk);
ssize_t ours_readlink_chk(const char *path, char *target, size_t size, size_t all) {
  return read_link(AT_FDCWD, path, target, size < all ? size : all);
}

ssize_t ours_readlinkat_chk(int folder, const char *path, char *target, size_t size, size_t all)
    INSTEAD_OF(__readlinkat_chk);
ssize_t ours_readlinkat_chk(int folder, const char *path, char *target, size_t size, size_t all) {
  return read_link(folder, path, target, size < all ? size : all);
}

char *ours_realpath(const char *path, char *resolved) INSTEAD_OF(realpath);
char *ours_realpath(const char *path, char *resolved) {
  char name[PATH_MAX], real[PATH_MAX];
  struct stat found;
  if (!path || !anything_changed()) return BEHIND(realpath, realpath)(path, resolved);
  const int view = name_in_view(AT_FDCWD, path, true, name);
  if (view < 0) return NULL;
  if (view == OUTSIDE) return BEHIND(realpath, realpath)(path, resolved);
  if (find(name, real, &found) == NOWHERE) return NULL;
  return resolved ? strcpy(resolved, name) : strdup(name);
}

char *ours_realpath_chk(const char *path, char *resolved, size_t size) INSTEAD_OF(__realpath_chk);
char *ours_realpath_chk(const char *path, char *resolved, size_t size) {
  (void)size;
  return ours_realpath(path, resolved);
}

char *ours_canonicalize_file_name(const char *path) INSTEAD_OF(canonicalize_file_name);
char *ours_canonicalize_file_name(const char *path) { return ours_realpath(path, NULL); }

int ours_statfs(const char *path, struct statfs *found) INSTEAD_OF(statfs);
int ours_statfs(const char *path, struct statfs *found) {
  char real[PATH_MAX];
  int folder = AT_FDCWD;
  path = to_read(&folder, path, true, real);
  return path ? (int)syscall(SYS_statfs, path, found) : -1;
}
ALSO_AS(statfs64, statfs)

int ours_statvfs(const char *path, struct statvfs *found) INSTEAD_OF(statvfs);
int ours_statvfs(const char *path, struct statvfs *found) {
  char real[PATH_MAX];
  int folder = AT_FDCWD;
  path = to_read(&folder, path, true, real);
  return path ? BEHIND(statvfs, statvfs)(path, found) : -1;
}
ALSO_AS(statvfs64, statvfs)

#define ASKS_ATTRIBUTE(name, follow)                                                                \
  ssize_t ours_##name(const char *path, const char *attribute, void *value, size_t size) INSTEAD_OF(name); \
  ssize_t ours_##name(const char *path, const char *attribute, void *value, size_t size) {          \
    char real[PATH_MAX];                                                                             \
    int folder = AT_FDCWD;                                                                           \
    path = to_read(&folder, path, follow, real);                                                     \
    return path ? syscall(SYS_##name, path, attribute, value, size) : -1;                            \
  }
ASKS_ATTRIBUTE(getxattr, true)
ASKS_ATTRIBUTE(lgetxattr, false)

#define LISTS_ATTRIBUTES(name, follow)                                    \
  ssize_t ours_##name(const char *path, char *list, size_t size) INSTEAD_OF(name); \
  ssize_t ours_##name(const char *path, char *list, size_t size) {        \
    char real[PATH_MAX];                                                   \
    int folder = AT_FDCWD;                                                 \
    path = to_read(&folder, path, follow, real);                           \
    return path ? syscall(SYS_##name, path, list, size) : -1;              \
  }
LISTS_ATTRIBUTES(listxattr, true)
LISTS_ATTRIBUTES(llistxattr, false)

// --- the current folder -------------------------------------------------------------------------------------------------

// The kernel keeps it: a folder that only the copy has is entered there, and named as the view has it.
int ours_chdir(const char *path) INSTEAD_OF(chdir);
int ours_chdir(const char *path) {
  char real[PATH_MAX];
  struct stat found;
  int folder = AT_FDCWD;
  path = to_read(&folder, path, true, real);
  if (!path) return -1;
  // Of a folder in both the disk's is entered: what libc opens by itself, relative to it, is there.
  const bool has_own = path == real && strncmp(real, copy, copy_length) == 0 && raw_lstat(real + copy_length, &found) == 0;
  if (has_own && S_ISDIR(found.st_mode) && syscall(SYS_chdir, real + copy_length) == 0) return 0;
  return (int)syscall(SYS_chdir, path);
}

char *ours_getcwd(char *buffer, size_t size) INSTEAD_OF(getcwd);
char *ours_getcwd(char *buffer, size_t size) {
  char name[PATH_MAX];
  if (!anything_changed()) return BEHIND(getcwd, getcwd)(buffer, size);
  const ssize_t length = syscall(SYS_getcwd, name, sizeof name);
  if (length < 0) return NULL;
  char *begin = name;
  if (strncmp(name, copy, copy_length) == 0) begin = name[copy_length] ? name + copy_length : (char[]){"/"};
  if (!buffer) return strdup(begin);
  if (strlen(begin) >= size) {
    errno = size ? ERANGE : EINVAL;
    return NULL;
  }
  return strcpy(buffer, begin);
}

char *ours_getcwd_chk(char *buffer, size_t size, size_t all) INSTEAD_OF(__getcwd_chk);
char *ours_getcwd_chk(char *buffer, size_t size, size_t all) { return ours_getcwd(buffer, size < all ? size : all); }

char *ours_get_current_dir_name(void) INSTEAD_OF(get_current_dir_name);
char *ours_get_current_dir_name(void) { return ours_getcwd(NULL, 0); }
