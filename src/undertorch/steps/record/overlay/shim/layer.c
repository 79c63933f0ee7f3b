// The copy: a tree beside the disk's with what the script changed. Nothing here is called before the name is known, and
// whatever changes the tree is called under its lock.

#include "shared.h"

#include <dirent.h>
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "raw.h"

static const int64_t LARGEST_LIFTED = 1 << 30;  // bytes; a second or so to copy

static int failed(int error) {
  errno = error;
  return -1;
}

static int path_in_copy(const char *name, char path[PATH_MAX]) {
  return snprintf(path, PATH_MAX, "%s%s", copy, name) < PATH_MAX ? 0 : failed(ENAMETOOLONG);
}

// What is not translated may be changed all the same where it is the process's own business.
int may_change_outside(const char *name) {
  static const char *const own[] = {"/proc/self/", "/proc/thread-self/"};
  for (int i = 0; i < 2; i++) {
    if (strncmp(name, own[i], strlen(own[i])) == 0) return true;
  }
  // The recorder's own: what it hands over at the end.
  return strncmp(name, base, base_length) == 0 && strncmp(name + base_length, "/outcome", 8) == 0;
}

// A folder of the copy that stands for one of the disk; its entries can be changed, whatever its mode says.
static int make_folder_like(const char *path, const struct stat *found) {
  const struct timespec times[2] = {found->st_atim, found->st_mtim};
  if (raw_mkdir(path, S_IRWXU) < 0) return errno == EEXIST ? 0 : -1;
  copy_changed();
  syscall(SYS_fchmodat, AT_FDCWD, path, (found->st_mode & 07777) | S_IRWXU);
  raw_utimens(path, times);
  return 0;
}

// A folder's time of change stays when something of the disk's is brought into it.
static void set_times_above(const char *path, const struct stat *folder) {
  char parent[PATH_MAX];
  const struct timespec times[2] = {folder->st_atim, folder->st_mtim};
  strcpy(parent, path);
  *strrchr(parent, '/') = '\0';
  if (strcmp(parent, copy) != 0) raw_utimens(parent, times);
}

static int stat_above(const char *path, struct stat *folder) {
  char parent[PATH_MAX];
  strcpy(parent, path);
  *strrchr(parent, '/') = '\0';
  return raw_lstat(parent, folder);
}

// Makes the folders above a name in the copy, as they are on the disk.
int make_parents(const char *name) {
  char part[PATH_MAX], path[PATH_MAX];
  struct stat found, parent = {0};
  strcpy(part, name);
  for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (path_in_copy(part, path) < 0) return -1;
    if (raw_lstat(path, &found) == 0) {
      if (!S_ISDIR(found.st_mode)) return failed(is_mark(&found) ? ENOENT : ENOTDIR);
    } else {
      if (raw_lstat(part, &found) < 0) return -1;
      if (!S_ISDIR(found.st_mode)) return failed(ENOTDIR);
      if (make_folder_like(path, &found) < 0) return -1;
      set_times_above(path, &parent);
    }
    parent = found;
    *slash = '/';
  }
  return 0;
}

bool too_large(const char *name, int64_t bytes) {
  if (bytes <= LARGEST_LIFTED && bytes <= atomic_load(&shared->room)) return false;
  tell(TOO_LARGE, name);
  return true;
}

static int pour(int from, int to) {
  if (ioctl(to, FICLONE, from) == 0) return 0;  // file systems that share blocks
  for (;;) {
    const ssize_t copied = syscall(SYS_copy_file_range, from, NULL, to, NULL, (size_t)1 << 30, 0);
    if (copied == 0) break;
    if (copied < 0) break;
  }
  char buffer[1 << 16];
  ssize_t got;
  while ((got = read(from, buffer, sizeof buffer)) > 0) {  // what is left: all of it between two file systems
    for (ssize_t done = 0, put; done < got; done += put) {
      if ((put = write(to, buffer + done, (size_t)(got - done))) < 0) return -1;
    }
  }
  return (int)got;
}

// Copied aside and renamed, so that nobody reads half a file.
static int lift_file(const char *name, const char *path, const struct stat *found, bool contents) {
  char aside[PATH_MAX + 8];
  snprintf(aside, sizeof aside, "%s/part", base);
  const int from = contents ? raw_open(name, O_RDONLY | O_CLOEXEC, 0) : -1;
  if (contents && from < 0) return -1;
  const int to = raw_open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  int done = to < 0 ? -1 : contents ? pour(from, to) : 0;
  if (to >= 0) {
    if (syscall(SYS_fchmod, to, found->st_mode & 07777) < 0) done = -1;
    raw_close(to);
  }
  if (from >= 0) raw_close(from);
  const struct timespec times[2] = {found->st_atim, found->st_mtim};
  if (done == 0) raw_utimens(aside, times);
  if (done == 0) done = raw_rename(aside, path);
  if (done < 0) {
    const int error = errno;
    raw_unlink(aside, 0);
    return failed(error);
  }
  if (contents) atomic_fetch_sub(&shared->room, found->st_size);
  return 0;
}

// Makes the copy hold what the disk has under a name: a folder without its entries, a file with its contents or without.
int lift(const char *name, bool contents) {
  char path[PATH_MAX], target[PATH_MAX];
  struct stat found;
  if (path_in_copy(name, path) < 0) return -1;
  if (raw_lstat(path, &found) == 0) return is_mark(&found) ? failed(ENOENT) : 0;
  if (errno == ENOTDIR) return failed(ENOENT);
  if (raw_lstat(name, &found) < 0 || make_parents(name) < 0) return -1;
  struct stat folder;
  const bool has_folder = stat_above(path, &folder) == 0;
  int done;
  if (S_ISDIR(found.st_mode)) {
    done = make_folder_like(path, &found);
  } else if (S_ISLNK(found.st_mode)) {
    const ssize_t length = raw_readlink(name, target, sizeof target - 1);
    if (length < 0) return -1;
    target[length] = '\0';
    done = raw_symlink(target, path);
  } else if (S_ISREG(found.st_mode)) {
    if (contents && too_large(name, found.st_size)) return failed(EFBIG);
    done = lift_file(name, path, &found, contents);
  } else {
    return failed(EPERM);  // a device, a pipe, a socket
  }
  if (has_folder) set_times_above(path, &folder);
  copy_changed();
  return done;
}

// An empty file of the same size, for one that is too large to copy.
int stand_in(const char *name) {
  char path[PATH_MAX];
  struct stat found;
  if (path_in_copy(name, path) < 0 || raw_lstat(name, &found) < 0 || lift(name, false) < 0) return -1;
  return (int)syscall(SYS_truncate, path, found.st_size);
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

// Calls for each entry of a real folder with the entry's name in the view, until one fails or is told to stop.
static int each_entry(const char *real, const char *name, int (*call)(const char *entry)) {
  DIR *folder = BEHIND(opendir, opendir)(real);
  if (!folder) return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
  int done = 0;
  char entry[PATH_MAX];
  for (struct dirent *found; done == 0 && (found = BEHIND(readdir, readdir)(folder));) {
    if (is_dots(found->d_name)) continue;
    const bool root = strcmp(name, "/") == 0;
    if (snprintf(entry, sizeof entry, "%s/%s", root ? "" : name, found->d_name) >= PATH_MAX) done = failed(ENAMETOOLONG);
    else done = call(entry);
  }
  BEHIND(closedir, closedir)(folder);
  return done;
}

// Lifts a folder with all that is in it.
int lift_tree(const char *name) {
  char real[PATH_MAX];
  struct stat found;
  const enum place place = find(name, real, &found);
  if (place == NOWHERE || place == COPY) return 0;
  if (lift(name, true) < 0 && (errno != EFBIG || stand_in(name) < 0)) return -1;
  return S_ISDIR(found.st_mode) ? each_entry(name, name, lift_tree) : 0;
}

// Marks a name of the disk as gone. What the copy had under it has to be removed before.
int hide(const char *name) {
  char path[PATH_MAX];
  if (path_in_copy(name, path) < 0 || make_parents(name) < 0) return -1;
  const int mark = raw_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
  if (mark < 0) return errno == EEXIST ? 0 : -1;
  const int done = (int)syscall(SYS_fchmod, mark, S_ISVTX);
  raw_close(mark);
  copy_changed();
  return done;
}

// Where a new entry was to take the place of a mark and could not be made, the mark comes back.
void hide_again(const char *name) {
  const int error = errno;
  struct stat found;
  if (raw_lstat(name, &found) == 0) hide(name);
  errno = error;
}

static int hide_below(const char *name) {
  char path[PATH_MAX];
  struct stat above, below;
  const bool folders = path_in_copy(name, path) == 0 && raw_lstat(path, &above) == 0 && S_ISDIR(above.st_mode) &&
                       raw_lstat(name, &below) == 0 && S_ISDIR(below.st_mode);
  return folders ? hide_entries(name) : hide(name);
}

// Marks what the disk has in a folder as gone, except for what the copy has there: another folder took its place, with
// folders of its own.
int hide_entries(const char *name) { return each_entry(name, name, hide_below); }

static int remove_entry(const char *path) {
  struct stat found;
  if (raw_lstat(path, &found) < 0) return -1;
  if (!S_ISDIR(found.st_mode)) return raw_unlink(path, 0);
  if (each_entry(path, path, remove_entry) < 0) return -1;
  return raw_unlink(path, AT_REMOVEDIR);
}

// Removes what the copy has under a name, a mark or a folder with its entries too.
int remove_from_copy(const char *name) {
  char path[PATH_MAX];
  if (path_in_copy(name, path) < 0) return -1;
  copy_changed();
  return remove_entry(path) < 0 && errno != ENOENT && errno != ENOTDIR ? -1 : 0;
}

static int is_there(const char *name) {
  char real[PATH_MAX];
  struct stat found;
  return find(name, real, &found) == NOWHERE ? 0 : 1;
}

// Whether a folder of the view has entries.
bool has_entries(const char *name) {
  char path[PATH_MAX];
  return (path_in_copy(name, path) == 0 && each_entry(path, name, is_there)) || each_entry(name, name, is_there);
}

int lifted(int folder, const char *path, bool follow, char real[PATH_MAX]) {
  char name[PATH_MAX];
  struct stat entry;
  const int found = name_in_view(folder, path, follow, name);
  if (found == OUTSIDE) return may_change_outside(name) ? OUTSIDE : failed(EACCES);
  if (found < 0) return -1;
  lock_copy();
  int done = IN_VIEW;
  if (find(name, real, &entry) == NOWHERE) done = -1;
  else if (S_ISCHR(entry.st_mode)) done = OUTSIDE;  // a terminal's mode and times
  else if (lift(name, true) < 0) done = errno == EFBIG ? TOO_LARGE_TO_LIFT : -1;
  unlock_copy();
  if (done == IN_VIEW) path_in_copy(name, real);
  return done;
}
