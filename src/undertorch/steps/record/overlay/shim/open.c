// Opening files. What is opened for writing is first brought into the copy, and opened there.

#include "shared.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "raw.h"

static int failed(int error) {
  errno = error;
  return -1;
}

// What is to be opened in the place of what was asked for.
struct opening {
  int folder;
  const char *path;
  int flags;
  bool new;   // nothing of its name was in the view
  int again;  // an own descriptor, named through /proc/self/fd or /dev/stdout: it is doubled; otherwise -1
  char real[PATH_MAX];
};

static bool writes(int flags) {
  if (flags & O_PATH) return false;
  return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
}

// Files too large to be copied, opened for reading where writing was asked for as well: what is mapped of them is mapped
// privately, so that changes stay in memory.
enum { MOST_LARGE = 64 };
static struct {
  _Atomic dev_t device;
  _Atomic ino_t inode;
} large[MOST_LARGE];
static _Atomic unsigned large_count;

static void remember_large(const struct stat *file) {
  const unsigned i = atomic_fetch_add(&large_count, 1) % MOST_LARGE;
  atomic_store(&large[i].inode, file->st_ino);
  atomic_store(&large[i].device, file->st_dev);
}

bool mapped_privately(int descriptor) {
  struct stat file;
  const unsigned count = atomic_load(&large_count);
  if (!count || descriptor < 0 || raw_stat(descriptor, "", &file, AT_EMPTY_PATH) < 0) return false;
  for (unsigned i = 0; i < MOST_LARGE && i < count; i++) {
    if (atomic_load(&large[i].inode) == file.st_ino && atomic_load(&large[i].device) == file.st_dev) return true;
  }
  return false;
}

static int prepare_large(struct opening *opening, const char *name, const struct stat *file) {
  if ((opening->flags & O_ACCMODE) == O_RDWR) {
    remember_large(file);
    strcpy(opening->real, name);
    opening->flags = (opening->flags & ~(O_ACCMODE | O_CREAT | O_APPEND)) | O_RDONLY;
    return 0;
  }
  // Only written to: what is appended stands where it belongs.
  return stand_in(name) < 0 || !in_copy(name, opening->real) ? -1 : 0;
}

// A name that is nowhere in the view; errno says why.
static int prepare_new(struct opening *opening, const char *name) {
  if (!(opening->flags & O_CREAT) || errno != ENOENT) return -1;
  if (make_parents(name) < 0) return -1;
  if (snprintf(opening->real, PATH_MAX, "%s%s", copy, name) >= PATH_MAX) return failed(ENAMETOOLONG);
  raw_unlink(opening->real, 0);  // the mark that it is gone
  opening->new = true;
  copy_changed();
  return 0;
}

// A name that the disk has, and the copy does not.
static int prepare_from_disk(struct opening *opening, const char *name, const struct stat *file) {
  const int flags = opening->flags;
  if (flags & O_CREAT && flags & O_EXCL) return failed(EEXIST);
  if (S_ISBLK(file->st_mode)) {
    tell(NOT_OPENED, name);
    return failed(EACCES);
  }
  if (S_ISDIR(file->st_mode)) {
    if ((flags & O_TMPFILE) != O_TMPFILE) return 0;  // the kernel has its own word on that
    return lift(name, true) < 0 || !in_copy(name, opening->real) ? -1 : 0;
  }
  if (!S_ISREG(file->st_mode)) return 0;
  if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)) {
    opening->flags &= ~O_CREAT;
    return 0;
  }
  const bool contents = !(flags & O_TRUNC);
  if (contents && too_large(name, file->st_size)) return prepare_large(opening, name, file);
  return lift(name, contents) < 0 || !in_copy(name, opening->real) ? -1 : 0;
}

static int prepare_outside(struct opening *opening, const char *name) {
  if (sscanf(name, "/proc/self/fd/%d", &opening->again) == 1) {
    char target[PATH_MAX];
    if (name_of_descriptor(opening->again, target) == IN_VIEW && strncmp(target, "/dev/", 5) != 0) return 0;
    opening->again = -1;
    return 0;
  }
  if (!*name || may_change_outside(name)) return 0;
  tell(NOT_OPENED, name);
  return failed(EACCES);
}

static int prepare(struct opening *opening) {
  const int flags = opening->flags;
  const bool follow = !(flags & O_NOFOLLOW) && !(flags & O_CREAT && flags & O_EXCL);
  opening->again = -1;
  if (!watching()) return 0;
  if (!writes(flags)) {
    opening->path = to_read(&opening->folder, opening->path, follow, opening->real);
    return opening->path ? 0 : -1;
  }
  char name[PATH_MAX];
  struct stat file;
  const int found = name_in_view(opening->folder, opening->path, follow, name);
  if (found < 0) return -1;
  if (found == OUTSIDE) return prepare_outside(opening, name);
  lock_copy();
  int done = 0;
  switch (find(name, opening->real, &file)) {
    case NOWHERE: done = prepare_new(opening, name); break;
    case DISK: done = prepare_from_disk(opening, name, &file); break;
    case BOTH:
      if ((flags & O_TMPFILE) == O_TMPFILE && !in_copy(name, opening->real)) done = -1;
      break;
    case COPY: break;
  }
  unlock_copy();
  if (done < 0) return -1;
  opening->folder = AT_FDCWD;
  opening->path = opening->real;
  if (strncmp(opening->real, copy, copy_length) == 0 && (flags & O_TMPFILE) != O_TMPFILE) tell(WROTE, name);
  return 0;
}

int open_in_view(int folder, const char *path, int flags, mode_t mode) {
  struct opening opening = {.folder = folder, .path = path, .flags = flags};
  if (prepare(&opening) < 0) return -1;
  if (opening.again >= 0) return (int)syscall(SYS_fcntl, opening.again, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  const int opened = raw_openat(opening.folder, opening.path, opening.flags, mode);
  if (opened < 0 && opening.new && errno != EEXIST) hide_again(opening.real + copy_length);
  return opened;
}

// --- in the place of libc's -------------------------------------------------------------------------------------------------

// The third argument is there only where a file may be made.
#define MODE(flags)                                                    \
  mode_t mode = 0;                                                     \
  if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {       \
    va_list rest;                                                      \
    va_start(rest, flags);                                             \
    mode = va_arg(rest, mode_t);                                       \
    va_end(rest);                                                      \
  }

int ours_open(const char *path, int flags, ...) INSTEAD_OF(open);
int ours_open(const char *path, int flags, ...) {
  MODE(flags)
  return open_in_view(AT_FDCWD, path, flags, mode);
}
ALSO_AS(open64, open)

int ours_openat(int folder, const char *path, int flags, ...) INSTEAD_OF(openat);
int ours_openat(int folder, const char *path, int flags, ...) {
  MODE(flags)
  return open_in_view(folder, path, flags, mode);
}
ALSO_AS(openat64, openat)

// What a compiler makes of open() where sources are fortified.
int ours_open_2(const char *path, int flags) INSTEAD_OF(__open_2);
int ours_open_2(const char *path, int flags) { return open_in_view(AT_FDCWD, path, flags, 0); }
ALSO_AS(__open64_2, __open_2)

int ours_openat_2(int folder, const char *path, int flags) INSTEAD_OF(__openat_2);
int ours_openat_2(int folder, const char *path, int flags) { return open_in_view(folder, path, flags, 0); }
ALSO_AS(__openat64_2, __openat_2)

int ours_creat(const char *path, mode_t mode) INSTEAD_OF(creat);
int ours_creat(const char *path, mode_t mode) {
  return open_in_view(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
ALSO_AS(creat64, creat)

static int flags_of(const char *mode) {
  const bool both = strchr(mode, '+') != NULL;
  int flags = both ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
  if (*mode == 'w') flags |= O_CREAT | O_TRUNC;
  if (*mode == 'a') flags |= O_CREAT | O_APPEND;
  if (strchr(mode, 'x')) flags |= O_EXCL;
  if (strchr(mode, 'e')) flags |= O_CLOEXEC;
  return flags;
}

FILE *ours_fopen(const char *path, const char *mode) INSTEAD_OF(fopen);
FILE *ours_fopen(const char *path, const char *mode) {
  const int flags = flags_of(mode);
  if (!watching() || !writes(flags)) {
    char real[PATH_MAX];
    int folder = AT_FDCWD;
    path = to_read(&folder, path, true, real);
    return path ? BEHIND(fopen, fopen)(path, mode) : NULL;
  }
  const int descriptor = open_in_view(AT_FDCWD, path, flags, 0666);
  if (descriptor < 0) return NULL;
  FILE *const file = fdopen(descriptor, mode);
  if (!file) raw_close(descriptor);
  return file;
}
ALSO_AS(fopen64, fopen)

FILE *ours_freopen(const char *path, const char *mode, FILE *file) INSTEAD_OF(freopen);
FILE *ours_freopen(const char *path, const char *mode, FILE *file) {
  struct opening opening = {.folder = AT_FDCWD, .path = path, .flags = flags_of(mode)};
  if (path && prepare(&opening) < 0) return NULL;
  return BEHIND(freopen, freopen)(opening.path, mode, file);
}
ALSO_AS(freopen64, freopen)

FILE *ours_tmpfile(void) INSTEAD_OF(tmpfile);
FILE *ours_tmpfile(void) {
  if (!watching()) return BEHIND(tmpfile, tmpfile)();
  int descriptor = raw_open(copy, O_TMPFILE | O_RDWR | O_EXCL, S_IRUSR | S_IWUSR);
  if (descriptor < 0) descriptor = (int)syscall(SYS_memfd_create, "tmpfile", 0);
  return descriptor < 0 ? NULL : fdopen(descriptor, "w+");
}
ALSO_AS(tmpfile64, tmpfile)

// Fills in the six X before the suffix until `make` finds the name unused.
static int with_name(char *template, int suffix, int flags, int (*make)(const char *path, int flags)) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  const size_t length = strlen(template);
  if (suffix < 0 || length < 6 + (size_t)suffix) return failed(EINVAL);
  char *const x = template + length - 6 - (size_t)suffix;
  if (strncmp(x, "XXXXXX", 6) != 0) return failed(EINVAL);
  for (int tries = 0; tries < 1000; tries++) {
    unsigned char drawn[6];
    if (getrandom(drawn, sizeof drawn, 0) < 0) return -1;
    for (int i = 0; i < 6; i++) x[i] = letters[drawn[i] % (sizeof letters - 1)];
    const int made = make(template, flags);
    if (made >= 0 || errno != EEXIST) return made;
  }
  return failed(EEXIST);
}

static int make_file(const char *path, int flags) {
  return open_in_view(AT_FDCWD, path, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
}

static int make_private_folder(const char *path, int flags) {
  (void)flags;
  return make_folder(AT_FDCWD, path, S_IRWXU);
}

int ours_mkostemps(char *template, int suffix, int flags) INSTEAD_OF(mkostemps);
int ours_mkostemps(char *template, int suffix, int flags) { return with_name(template, suffix, flags, make_file); }
ALSO_AS(mkostemps64, mkostemps)

int ours_mkstemps(char *template, int suffix) INSTEAD_OF(mkstemps);
int ours_mkstemps(char *template, int suffix) { return with_name(template, suffix, 0, make_file); }
ALSO_AS(mkstemps64, mkstemps)

int ours_mkostemp(char *template, int flags) INSTEAD_OF(mkostemp);
int ours_mkostemp(char *template, int flags) { return with_name(template, 0, flags, make_file); }
ALSO_AS(mkostemp64, mkostemp)

int ours_mkstemp(char *template) INSTEAD_OF(mkstemp);
int ours_mkstemp(char *template) { return with_name(template, 0, 0, make_file); }
ALSO_AS(mkstemp64, mkstemp)

char *ours_mkdtemp(char *template) INSTEAD_OF(mkdtemp);
char *ours_mkdtemp(char *template) { return with_name(template, 0, 0, make_private_folder) < 0 ? NULL : template; }

void *ours_mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) INSTEAD_OF(mmap);
void *ours_mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
  void *mapped = (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
  const int shared_kinds = MAP_SHARED | MAP_SHARED_VALIDATE;
  if (mapped == MAP_FAILED && errno == EACCES && flags & shared_kinds && watching() && mapped_privately(file)) {
    mapped = (void *)syscall(SYS_mmap, address, length, protection, (flags & ~shared_kinds) | MAP_PRIVATE, file, offset);
  }
  return mapped;
}
ALSO_AS(mmap64, mmap)
