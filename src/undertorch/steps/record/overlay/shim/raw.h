// The kernel's calls, without libc's functions in between. All answer -1 with errno where they fail.
#ifndef UNDERTORCH_OVERLAY_RAW_H
#define UNDERTORCH_OVERLAY_RAW_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_faccessat2
#define SYS_faccessat2 439  // on every machine, since Linux 5.8; older headers do not name it
#endif

static inline int raw_openat(int folder, const char *path, int flags, mode_t mode) {
  return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static inline int raw_open(const char *path, int flags, mode_t mode) { return raw_openat(AT_FDCWD, path, flags, mode); }

// On x86-64 and AArch64 libc's `struct stat` is the kernel's.
static inline int raw_stat(int folder, const char *path, struct stat *found, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, found, flags);
}

static inline int raw_lstat(const char *path, struct stat *found) {
  return raw_stat(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW);
}

static inline ssize_t raw_readlink(const char *path, char *target, size_t size) {
  return syscall(SYS_readlinkat, AT_FDCWD, path, target, size);
}

static inline int raw_mkdir(const char *path, mode_t mode) { return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }

static inline int raw_unlink(const char *path, int flags) {
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
}

static inline int raw_rename(const char *from, const char *to) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static inline int raw_symlink(const char *target, const char *path) {
  return (int)syscall(SYS_symlinkat, target, AT_FDCWD, path);
}

static inline int raw_utimens(const char *path, const struct timespec times[2]) {
  return (int)syscall(SYS_utimensat, AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

static inline void raw_close(int descriptor) { syscall(SYS_close, descriptor); }

static inline int raw_process(void) { return (int)syscall(SYS_getpid); }

#endif
