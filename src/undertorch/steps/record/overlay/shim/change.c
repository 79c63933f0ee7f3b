// Changes of the tree: folders, removals, renames, links; and of what a file's entry says: mode, times, attributes.

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

static int path_in_copy(const char *name, char path[PATH_MAX]) {
  return snprintf(path, PATH_MAX, "%s%s", copy, name) < PATH_MAX ? 0 : failed(ENAMETOOLONG);
}

static bool on_disk(const char *name) {
  struct stat found;
  return raw_lstat(name, &found) == 0;
}

// Whether a path ends in `.` (1) or `..` (2), which no call makes, removes or renames.
static int ends_in_dots(const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  const char *begin = path + length;
  while (begin > path && begin[-1] != '/') begin--;
  return length && strspn(begin, ".") == (size_t)(path + length - begin) && path + length - begin <= 2
             ? (int)(path + length - begin)
             : 0;
}

// A name to change: IN_VIEW, OUTSIDE where the call goes on as it is, or -1.
static int to_change(int folder, const char *path, char name[PATH_MAX]) {
  if (!watching()) return OUTSIDE;
  const int found = name_in_view(folder, path, false, name);
  if (found == OUTSIDE && *name && !may_change_outside(name)) return failed(EACCES);
  return found;
}

// Readies the copy for an entry of a name that is not there: its folder, and no mark.
static int ready(const char *name, char path[PATH_MAX]) {
  char real[PATH_MAX];
  struct stat found;
  if (find(name, real, &found) != NOWHERE) return failed(EEXIST);
  if (errno != ENOENT || make_parents(name) < 0 || path_in_copy(name, path) < 0) return -1;
  raw_unlink(path, 0);
  copy_changed();
  return 0;
}

// --- new entries --------------------------------------------------------------------------------------------------------

int make_folder(int folder, const char *path, mode_t mode) {
  char name[PATH_MAX], real[PATH_MAX];
  const int found = to_change(folder, path, name);
  if (found == OUTSIDE) return (int)syscall(SYS_mkdirat, folder, path, mode);
  if (found < 0) return -1;
  lock_copy();
  int done = ready(name, real);
  if (done == 0 && (done = raw_mkdir(real, mode)) < 0) hide_again(name);
  else if (done == 0) done = hide_entries(name);  // of a folder that was removed before
  copy_changed();
  unlock_copy();
  if (done == 0) tell(MADE_FOLDER, name);
  return done;
}

int ours_mkdirat(int folder, const char *path, mode_t mode) INSTEAD_OF(mkdirat);
int ours_mkdirat(int folder, const char *path, mode_t mode) { return make_folder(folder, path, mode); }

int ours_mkdir(const char *path, mode_t mode) INSTEAD_OF(mkdir);
int ours_mkdir(const char *path, mode_t mode) { return make_folder(AT_FDCWD, path, mode); }

int ours_symlinkat(const char *target, int folder, const char *path) INSTEAD_OF(symlinkat);
int ours_symlinkat(const char *target, int folder, const char *path) {
  char name[PATH_MAX], real[PATH_MAX];
  const int found = to_change(folder, path, name);
  if (found == OUTSIDE) return (int)syscall(SYS_symlinkat, target, folder, path);
  if (found < 0) return -1;
  lock_copy();
  int done = ready(name, real);
  if (done == 0 && (done = raw_symlink(target, real)) < 0) hide_again(name);
  unlock_copy();
  if (done == 0) tell(LINKED, name);
  return done;
}

int ours_symlink(const char *target, const char *path) INSTEAD_OF(symlink);
int ours_symlink(const char *target, const char *path) { return ours_symlinkat(target, AT_FDCWD, path); }

int ours_mknodat(int folder, const char *path, mode_t mode, dev_t device) INSTEAD_OF(mknodat);
int ours_mknodat(int folder, const char *path, mode_t mode, dev_t device) {
  char name[PATH_MAX], real[PATH_MAX];
  const int found = to_change(folder, path, name);
  if (found == OUTSIDE) return (int)syscall(SYS_mknodat, folder, path, mode, device);
  if (found < 0) return -1;
  lock_copy();
  int done = ready(name, real);
  if (done == 0 && (done = (int)syscall(SYS_mknodat, AT_FDCWD, real, mode, device)) < 0) hide_again(name);
  unlock_copy();
  if (done == 0) tell(WROTE, name);
  return done;
}

int ours_mknod(const char *path, mode_t mode, dev_t device) INSTEAD_OF(mknod);
int ours_mknod(const char *path, mode_t mode, dev_t device) { return ours_mknodat(AT_FDCWD, path, mode, device); }

int ours_mkfifoat(int folder, const char *path, mode_t mode) INSTEAD_OF(mkfifoat);
int ours_mkfifoat(int folder, const char *path, mode_t mode) { return ours_mknodat(folder, path, mode | S_IFIFO, 0); }

int ours_mkfifo(const char *path, mode_t mode) INSTEAD_OF(mkfifo);
int ours_mkfifo(const char *path, mode_t mode) { return ours_mknodat(AT_FDCWD, path, mode | S_IFIFO, 0); }

int ours_linkat(int from_folder, const char *from, int folder, const char *path, int flags) INSTEAD_OF(linkat);
int ours_linkat(int from_folder, const char *from, int folder, const char *path, int flags) {
  char name[PATH_MAX], real[PATH_MAX], source[PATH_MAX];
  if (!watching()) return (int)syscall(SYS_linkat, from_folder, from, folder, path, flags);
  int done = flags & AT_EMPTY_PATH ? OUTSIDE : lifted(from_folder, from, flags & AT_SYMLINK_FOLLOW, source);
  if (done < 0) return -1;
  const int found = to_change(folder, path, name);
  if (found < 0) return -1;
  if (found == OUTSIDE) return failed(EXDEV);
  if (done == TOO_LARGE_TO_LIFT) return failed(EMLINK);
  const bool as_given = done == OUTSIDE;  // a descriptor, or a name in /proc that stands for one
  lock_copy();
  done = ready(name, real);
  if (done == 0) {
    done = (int)syscall(SYS_linkat, as_given ? from_folder : AT_FDCWD, as_given ? from : source, AT_FDCWD, real, flags);
    if (done < 0) hide_again(name);
  }
  unlock_copy();
  if (done == 0) tell(LINKED, name);
  return done;
}

int ours_link(const char *from, const char *path) INSTEAD_OF(link);
int ours_link(const char *from, const char *path) { return ours_linkat(AT_FDCWD, from, AT_FDCWD, path, 0); }

// --- removals -----------------------------------------------------------------------------------------------------------

static int remove_name(const char *name, bool folder) {
  char real[PATH_MAX];
  struct stat found;
  if (find(name, real, &found) == NOWHERE) return -1;
  if (folder && !S_ISDIR(found.st_mode)) return failed(ENOTDIR);
  if (!folder && S_ISDIR(found.st_mode)) return failed(EISDIR);
  if (folder && has_entries(name)) return failed(ENOTEMPTY);
  if (remove_from_copy(name) < 0) return -1;
  return on_disk(name) ? hide(name) : 0;
}

static int remove_in_view(int folder, const char *path, int flags) {
  char name[PATH_MAX];
  const int found = to_change(folder, path, name);
  if (found == OUTSIDE) return (int)syscall(SYS_unlinkat, folder, path, flags);
  if (found < 0) return -1;
  const int dots = ends_in_dots(path);
  if (dots) return failed(!(flags & AT_REMOVEDIR) ? EISDIR : dots == 1 ? EINVAL : ENOTEMPTY);
  lock_copy();
  const int done = remove_name(name, flags & AT_REMOVEDIR);
  unlock_copy();
  if (done == 0) tell(REMOVED, name);
  return done;
}

int ours_unlinkat(int folder, const char *path, int flags) INSTEAD_OF(unlinkat);
int ours_unlinkat(int folder, const char *path, int flags) { return remove_in_view(folder, path, flags); }

int ours_unlink(const char *path) INSTEAD_OF(unlink);
int ours_unlink(const char *path) { return remove_in_view(AT_FDCWD, path, 0); }

int ours_rmdir(const char *path) INSTEAD_OF(rmdir);
int ours_rmdir(const char *path) { return remove_in_view(AT_FDCWD, path, AT_REMOVEDIR); }

int ours_remove(const char *path) INSTEAD_OF(remove);
int ours_remove(const char *path) {
  const int done = remove_in_view(AT_FDCWD, path, 0);
  return done < 0 && errno == EISDIR ? remove_in_view(AT_FDCWD, path, AT_REMOVEDIR) : done;
}

// --- renames ------------------------------------------------------------------------------------------------------------

// What rename(2) refuses.
static int may_rename(const char *from, const struct stat *moved, const char *to, unsigned flags) {
  char real[PATH_MAX];
  struct stat old;
  if (flags & ~RENAME_NOREPLACE) return failed(EINVAL);
  const size_t length = strlen(from);
  if (S_ISDIR(moved->st_mode) && strncmp(to, from, length) == 0 && to[length] == '/') return failed(EINVAL);
  if (strncmp(from, to, strlen(to)) == 0 && from[strlen(to)] == '/') return failed(ENOTEMPTY);
  if (find(to, real, &old) == NOWHERE) return errno == ENOENT ? 0 : -1;
  if (flags & RENAME_NOREPLACE) return failed(EEXIST);
  if (S_ISDIR(moved->st_mode) && !S_ISDIR(old.st_mode)) return failed(ENOTDIR);
  if (!S_ISDIR(moved->st_mode) && S_ISDIR(old.st_mode)) return failed(EISDIR);
  return S_ISDIR(old.st_mode) && has_entries(to) ? failed(ENOTEMPTY) : 0;
}

static int rename_name(const char *from, const char *to, unsigned flags) {
  char real[PATH_MAX], source[PATH_MAX], target[PATH_MAX];
  struct stat moved;
  if (find(from, real, &moved) == NOWHERE) return -1;
  if (strcmp(from, to) == 0) return 0;
  if (may_rename(from, &moved, to, flags) < 0 || lift_tree(from) < 0 || make_parents(to) < 0) return -1;
  if (path_in_copy(from, source) < 0 || path_in_copy(to, target) < 0) return -1;
  // A file is replaced at once, so that whoever opens it meanwhile finds the old or the new one.
  if (S_ISDIR(moved.st_mode) && remove_from_copy(to) < 0) return -1;
  if (raw_rename(source, target) < 0) return -1;
  copy_changed();
  if (on_disk(from) && hide(from) < 0) return -1;
  return S_ISDIR(moved.st_mode) ? hide_entries(to) : 0;
}

static int rename_in_view(int from_folder, const char *from, int folder, const char *path, unsigned flags) {
  char old[PATH_MAX], new[PATH_MAX];
  const int found = to_change(from_folder, from, old);
  if (found < 0) return -1;
  const int other = to_change(folder, path, new);
  if (other < 0) return -1;
  if (found == OUTSIDE || other == OUTSIDE) {
    if (found != other) return failed(EXDEV);
    return (int)syscall(SYS_renameat2, from_folder, from, folder, path, flags);
  }
  if (ends_in_dots(from) || ends_in_dots(path)) return failed(EBUSY);
  lock_copy();
  const int done = rename_name(old, new, flags);
  unlock_copy();
  if (done == 0) tell(RENAMED, new);
  return done;
}

int ours_renameat2(int from_folder, const char *from, int folder, const char *path, unsigned flags)
    INSTEAD_OF(renameat2);
int ours_renameat2(int from_folder, const char *from, int folder, const char *path, unsigned flags) {
  return rename_in_view(from_folder, from, folder, path, flags);
}

int ours_renameat(int from_folder, const char *from, int folder, const char *path) INSTEAD_OF(renameat);
int ours_renameat(int from_folder, const char *from, int folder, const char *path) {
  return rename_in_view(from_folder, from, folder, path, 0);
}

int ours_rename(const char *from, const char *path) INSTEAD_OF(rename);
int ours_rename(const char *from, const char *path) { return rename_in_view(AT_FDCWD, from, AT_FDCWD, path, 0); }
